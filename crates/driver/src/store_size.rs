//! Size and pruning of the unit cache: `trodden cache`.
//!
//! The cache grows with every build. It contains unit frames (`units`), files that were passed to builds (`inputs`), link recipes and their
//! input files (`links`, `objects`), objects of copies (`copies`), and objects of Rust crates (`crates`). Stripped programs and `trodden
//! instrument` need it; reports on programs that contain their frames do not.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use trodden_unit::UnitCache;

/// Folder for objects of copies.
pub const COPIES_FOLDER: &str = "copies";
/// Folder for instrumented objects of Rust crates.
pub const CRATES: &str = "crates";

/// The folders of the cache, with descriptions of their contents.
const PARTS: [(&str, &str); 6] = [
    ("units", "units of programs"),
    ("inputs", "files that builds were given"),
    ("links", "links"),
    ("objects", "inputs of links"),
    (COPIES_FOLDER, "objects of copies"),
    (CRATES, "objects of Rust crates"),
];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder of the cache.
#[derive(Debug)]
pub struct CacheFolder {
    /// Name of the folder.
    pub folder: &'static str,
    /// Description of its contents.
    pub description: &'static str,
    /// Size of the files that were removed; `None` if not pruned.
    pub removed: Option<Size>,
    /// Size of the files that remain.
    pub kept: Size,
}

/// Number and size of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of files, without those that are being written.
    pub files: usize,
    /// Total size in bytes, including files that are being written.
    pub bytes: u64,
}

/// Measures a folder of the cache. If `prune` is given, first removes the files that were not used for this number of days. Last use is the
/// later of the file system's access and modification times.
fn measure(store: &UnitCache, folder: &'static str, description: &'static str, prune: Option<u32>) -> Result<CacheFolder> {
    let all = files(&store.root().join(folder))?;
    let Some(days) = prune else { return Ok(CacheFolder { folder, description, removed: None, kept: size(&all) }) };
    // If the limit cannot be represented, everything is kept.
    let limit = DAY.checked_mul(days).and_then(|age| SystemTime::now().checked_sub(age));
    let (old, kept): (Vec<CacheFile>, Vec<CacheFile>) = all.into_iter().partition(|f| limit.is_some_and(|limit| f.used < limit));
    remove(&old)?;
    Ok(CacheFolder { folder, description, removed: Some(size(&old)), kept: size(&kept) })
}

/// Iterates over the folders of the cache. Each is measured when it is requested, after files that were not used for `prune` days are
/// removed. An item is an error if its folder cannot be read or written.
pub fn parts(store: &UnitCache, prune: Option<u32>) -> impl Iterator<Item = Result<CacheFolder>> {
    PARTS.into_iter().map(move |(folder, what)| measure(store, folder, what, prune))
}

struct CacheFile {
    path: PathBuf,
    bytes: u64,
    /// Last access or modification, whichever is later.
    used: SystemTime,
}

/// Returns all files below a folder, which need not exist. Ignores files that other processes remove concurrently.
fn files(folder: &Path) -> Result<Vec<CacheFile>> {
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

fn remove(files: &[CacheFile]) -> Result<()> {
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

fn size(files: &[CacheFile]) -> Size {
    // Names of files that are being written start with a dot.
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
    fn temporary_files_are_not_counted_and_old_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = UnitCache::new(folder.path());
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
