//! How large the unit cache is, and making it smaller: `trodden cache`.
//!
//! The store grows with every build: the frames of units (`units`), earlier profiles that builds were given (`inputs`),
//! what links were made of (`links`, `objects`), and objects of copies (`copies`). A program that carries its frames is
//! reported without it; stripped programs and `trodden instrument` need it.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use trodden_unit::UnitCache;

/// The store's folder of objects of copies.
pub const COPIES: &str = "copies";

/// The folders of a store, and what is in them.
const PARTS: [(&str, &str); 5] = [
    ("units", "units of programs"),
    ("inputs", "files that builds were given"),
    ("links", "links"),
    ("objects", "inputs of links"),
    (COPIES, "objects of copies"),
];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder of the store.
#[derive(Debug)]
pub struct Part {
    /// Its name.
    pub folder: &'static str,
    /// What is in it.
    pub what: &'static str,
    /// What was removed, where old files were to be.
    pub removed: Option<Size>,
    /// What is there.
    pub kept: Size,
}

/// How much some files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Files, without those that are being written.
    pub files: usize,
    /// Their bytes, with those.
    pub bytes: u64,
}

/// Measures a folder of a store, and first removes what was not used for so many days. Use is known as far as the file system says.
///
/// # Errors
/// It cannot be read or written.
fn part(store: &UnitCache, folder: &'static str, what: &'static str, prune: Option<u32>) -> Result<Part> {
    let all = files(&store.root().join(folder))?;
    let Some(days) = prune else { return Ok(Part { folder, what, removed: None, kept: size(&all) }) };
    // A day count beyond time itself keeps everything.
    let limit = DAY.checked_mul(days).and_then(|age| SystemTime::now().checked_sub(age));
    let (old, kept): (Vec<File>, Vec<File>) = all.into_iter().partition(|f| limit.is_some_and(|limit| f.used < limit));
    remove(&old)?;
    Ok(Part { folder, what, removed: Some(size(&old)), kept: size(&kept) })
}

/// The folders of a store, measured one after the other as they are asked for; what was not used for so many days is removed before.
/// Each is an error if it cannot be read or written.
pub fn parts(store: &UnitCache, prune: Option<u32>) -> impl Iterator<Item = Result<Part>> {
    PARTS.into_iter().map(move |(folder, what)| part(store, folder, what, prune))
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

fn size(files: &[File]) -> Size {
    // What is being written has a name with a dot in front.
    let whole = files.iter().filter(|f| !f.path.file_name().is_some_and(starts_with_dot));
    Size { files: whole.count(), bytes: files.iter().map(|f| f.bytes).sum() }
}

fn starts_with_dot(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_written_is_no_file_yet_and_old_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = UnitCache::at(folder.path());
        let units = folder.path().join("units/ab");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join("one.unit"), [0; 10]).unwrap();
        fs::write(units.join(".new-two"), [0; 5]).unwrap();
        let first = |prune| parts(&store, prune).next().unwrap().unwrap();
        assert_eq!((first(None).kept, first(None).removed), (Size { files: 1, bytes: 15 }, None));
        assert_eq!(first(Some(u32::MAX)).removed, Some(Size { files: 0, bytes: 0 }));
        assert_eq!(first(Some(0)).removed, Some(Size { files: 1, bytes: 15 }));
        assert_eq!(first(None).kept, Size { files: 0, bytes: 0 });
        assert_eq!(parts(&store, None).count(), PARTS.len());
    }
}
