//! Finds source files on this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns a closure that reads a source file. It tries the path in debug information, then the given folders, then the run's folder.
pub fn sources(folders: &[PathBuf], run: &str) -> impl Fn(&str) -> Option<String> + use<> {
    let found = locate(folders, run);
    move |path: &str| fs::read(found(path)?).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a closure that locates a source file like [`sources`], but does not read it.
pub fn locate(folders: &[PathBuf], run: &str) -> impl Fn(&str) -> Option<PathBuf> + use<> {
    let mut folders = folders.to_vec();
    folders.push(PathBuf::from(run));
    move |path: &str| {
        let path = Path::new(path);
        let is_readable = |path: &PathBuf| fs::File::open(path).is_ok_and(|file| file.metadata().is_ok_and(|m| m.is_file()));
        Some(path.to_owned())
            .filter(is_readable)
            .or_else(|| folders.iter().find_map(|folder| candidates_below(folder, path).find(is_readable)))
    }
}

/// Returns the paths at which a file may be below a folder. The complete path comes first, then the path without its first component, and
/// so on.
fn candidates_below<'a>(folder: &'a Path, path: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
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
    fn leading_components_of_a_path_are_dropped_one_by_one() {
        let found: Vec<PathBuf> = candidates_below(Path::new("/new"), Path::new("/old/src/a.c")).collect();
        assert_eq!(found, ["/new/old/src/a.c", "/new/src/a.c", "/new/a.c"].map(PathBuf::from));
    }
}
