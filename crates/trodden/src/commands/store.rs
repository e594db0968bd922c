//! `trodden store`: how large the unit store is, and making it smaller.
//!
//! The store grows with every build: the frames of units (`units`), earlier profiles that builds were given (`inputs`),
//! what links were made of (`links`, `objects`), and objects of copies (`copies`). A program that carries its frames is
//! reported without it; stripped programs and `trodden instrument` need it.

use crate::cli::Store;
use crate::commands::copies::OBJECTS;
use crate::driver::assets;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const PARTS: [(&str, &str); 5] = [
    ("units", "units of programs"),
    ("inputs", "files that builds were given"),
    ("links", "links"),
    ("objects", "inputs of links"),
    (OBJECTS, "objects of copies"),
];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Prints what the store holds; removes old files first if that is asked for.
///
/// # Errors
/// There is no place for a store, or it cannot be read or written.
pub fn run(job: &Store) -> Result<ExitCode> {
    let store = assets::store()?;
    let root = store.root();
    let mut out = crate::output::text();
    writeln!(out, "{}", root.display())?;
    for (folder, what) in PARTS {
        let mut files = files(&root.join(folder))?;
        if let Some(days) = job.prune {
            // A day count beyond time itself keeps everything.
            let limit = DAY.checked_mul(days).and_then(|age| SystemTime::now().checked_sub(age));
            let (old, kept): (Vec<File>, Vec<File>) = files.into_iter().partition(|f| limit.is_some_and(|limit| f.used < limit));
            remove(&old)?;
            writeln!(out, "  {:8} {} removed", folder, summary(&old))?;
            files = kept;
        }
        writeln!(out, "  {:8} {}  ({what})", folder, summary(&files))?;
    }
    Ok(ExitCode::SUCCESS)
}

struct File {
    path: PathBuf,
    bytes: u64,
    /// When it was last read or written, as far as the file system says.
    used: SystemTime,
}

/// All files below a folder; none if it is not there. A file that another process removes meanwhile is passed over.
fn files(folder: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.with_context(|| format!("cannot read {}", folder.display()))?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                let used = metadata.modified()?.max(metadata.accessed().unwrap_or(SystemTime::UNIX_EPOCH));
                files.push(File { path: entry.path(), bytes: metadata.len(), used });
            }
        }
    }
    Ok(files)
}

fn remove(files: &[File]) -> Result<()> {
    for file in files {
        match fs::remove_file(&file.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", file.path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn summary(files: &[File]) -> String {
    let bytes: u64 = files.iter().map(|f| f.bytes).sum();
    // What is being written has a name with a dot in front.
    let count = files.iter().filter(|f| !f.path.file_name().is_some_and(starts_with_dot)).count();
    format!("{count:>8} files, {:>9.1} MB", bytes as f64 / 1e6)
}

fn starts_with_dot(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
