//! `trodden cache`: measures and prunes the unit cache.
//!
//! The cache grows with every build. It contains unit frames (`units`), files that were passed to builds (`inputs`), link recipes (`links`)
//! with their input files (`objects`), objects of instrumented copies of programs (`copies`), and objects of Rust crates (`crates`).
//! `trodden instrument` and reports on stripped programs need the cache. Reports on programs that contain their unit frames do not.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use trodden_unit::UnitCache;

/// Folder for the objects of instrumented copies of programs, each of which counts some of the paths.
pub const COPIES_FOLDER: &str = "copies";
/// Folder for instrumented objects of Rust crates.
pub const CRATES_FOLDER: &str = "crates";

const CACHE_FOLDERS: [(&str, &str); 6] = [
    ("units", "units of programs"),
    ("inputs", "files that builds were given"),
    ("links", "links"),
    ("objects", "inputs of links"),
    (COPIES_FOLDER, "objects of copies"),
    (CRATES_FOLDER, "objects of Rust crates"),
];
const ONE_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// One folder of the cache, measured and perhaps pruned.
#[derive(Debug)]
pub struct CacheFolder {
    /// Name of the folder.
    pub folder: &'static str,
    /// What the folder contains.
    pub description: &'static str,
    /// What was removed; `None` if the folder was not pruned.
    pub removed: Option<CacheSize>,
    /// The files that remain.
    pub kept: CacheSize,
}

/// Number and size of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Number of files, except those that are still being written.
    pub files: usize,
    /// Total size in bytes, including files that are still being written.
    pub bytes: u64,
}

/// Measures a folder of the cache. If `prune` is a number of days, first removes files that were not used for that long. A file's last use
/// is its access time or its modification time, whichever is later.
fn measure(store: &UnitCache, folder: &'static str, description: &'static str, prune: Option<u32>) -> Result<CacheFolder> {
    let all = list_files(&store.root().join(folder))?;
    let Some(days) = prune else { return Ok(CacheFolder { folder, description, removed: None, kept: total_size(&all) }) };
    // If the limit is outside the range of `SystemTime`, no file is removed.
    let limit = ONE_DAY.checked_mul(days).and_then(|age| SystemTime::now().checked_sub(age));
    let (old, kept): (Vec<CacheFile>, Vec<CacheFile>) = all.into_iter().partition(|f| limit.is_some_and(|limit| f.used < limit));
    remove_files(&old)?;
    Ok(CacheFolder { folder, description, removed: Some(total_size(&old)), kept: total_size(&kept) })
}

/// Iterates over the folders of the cache. A folder is pruned and measured (see [`measure`]) only when its item is requested. The item is
/// an error if the folder cannot be read or written.
pub fn measure_folders(store: &UnitCache, prune: Option<u32>) -> impl Iterator<Item = Result<CacheFolder>> {
    CACHE_FOLDERS.into_iter().map(move |(folder, what)| measure(store, folder, what, prune))
}

struct CacheFile {
    path: PathBuf,
    bytes: u64,
    /// Time of the last access or of the last modification, whichever is later.
    used: SystemTime,
}

/// Returns all files below a folder, which may not exist. Ignores files that other processes remove meanwhile.
fn list_files(folder: &Path) -> Result<Vec<CacheFile>> {
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
                files.push(CacheFile { path: entry.path(), bytes: metadata.len(), used });
            }
        }
    }
    Ok(files)
}

fn remove_files(files: &[CacheFile]) -> Result<()> {
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

fn total_size(files: &[CacheFile]) -> CacheSize {
    // A file that is being written has a name that starts with a dot.
    let whole = files.iter().filter(|f| !f.path.file_name().is_some_and(starts_with_dot));
    CacheSize { files: whole.count(), bytes: files.iter().map(|f| f.bytes).sum() }
}

fn starts_with_dot(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_are_not_counted_and_old_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = UnitCache::new(folder.path());
        let units = folder.path().join("units/ab");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join("one.unit"), [0; 10]).unwrap();
        fs::write(units.join(".new-two"), [0; 5]).unwrap();
        let first = |prune| measure_folders(&store, prune).next().unwrap().unwrap();
        assert_eq!((first(None).kept, first(None).removed), (CacheSize { files: 1, bytes: 15 }, None));
        assert_eq!(first(Some(u32::MAX)).removed, Some(CacheSize { files: 0, bytes: 0 }));
        assert_eq!(first(Some(0)).removed, Some(CacheSize { files: 1, bytes: 15 }));
        assert_eq!(first(None).kept, CacheSize { files: 0, bytes: 0 });
        assert_eq!(measure_folders(&store, None).count(), CACHE_FOLDERS.len());
    }
}
