//! Where source files are.

use std::fs;
use std::path::{Path, PathBuf};

/// Where source files are: at the path that the compiler knew, else below the given folders, else below the folder of the run.
pub fn sources(folders: &[PathBuf], run: &str) -> impl Fn(&str) -> Option<String> + use<> {
    let found = locate(folders, run);
    move |path: &str| fs::read(found(path)?).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The place of a source file, likewise.
pub fn locate(folders: &[PathBuf], run: &str) -> impl Fn(&str) -> Option<PathBuf> + use<> {
    let mut folders = folders.to_vec();
    folders.push(PathBuf::from(run));
    move |path: &str| {
        let path = Path::new(path);
        let there = |path: &PathBuf| fs::File::open(path).is_ok_and(|file| file.metadata().is_ok_and(|m| m.is_file()));
        Some(path.to_owned()).filter(there).or_else(|| folders.iter().find_map(|folder| below(folder, path).find(there)))
    }
}

/// The places of a path below a folder: whole, then without its first part, and so on.
fn below<'a>(folder: &'a Path, path: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let mut rest = path.components();
    std::iter::from_fn(move || {
        let tail = rest.as_path().to_owned();
        rest.next()?;
        Some(tail)
    })
    .filter(|tail| tail.is_relative())
    .map(move |tail| folder.join(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_looked_for_below_a_folder_by_ever_shorter_paths() {
        let found: Vec<PathBuf> = below(Path::new("/new"), Path::new("/old/src/a.c")).collect();
        assert_eq!(found, ["/new/old/src/a.c", "/new/src/a.c", "/new/a.c"].map(PathBuf::from));
    }
}
