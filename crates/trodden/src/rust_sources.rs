//! Finds sources of Rust's standard library. Debug information calls them `/rustc/COMMIT/library/...` if the sources were not installed
//! when the program was built. The toolchain with this commit has the sources if its component `rust-src` is installed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_report::source_files;

/// Prefix of standard library paths in debug information.
pub const STANDARD_LIBRARY_PREFIX: &str = "/rustc/";
/// The folder with the sources, relative to the toolchain's folder.
const TOOLCHAIN_SOURCES_FOLDER: &str = "lib/rustlib/src/rust";

/// Returns a function that reads sources for reports: first those of [`source_files::sources`], then those of the standard library in an
/// installed toolchain.
pub fn read_project_or_toolchain_source(folders: &[PathBuf], run: &str) -> impl Fn(&str) -> Option<String> + use<> {
    let usual = source_files::sources(folders, run);
    let library = StandardLibrarySources { toolchains: find_toolchains(), known: RefCell::default() };
    move |path: &str| usual(path).or_else(|| fs::read_to_string(library.find(path)?).ok())
}

struct StandardLibrarySources {
    toolchains: Vec<PathBuf>,
    /// Source folders that were already looked up, by commit. `None` if no installed toolchain has the sources of the commit.
    known: RefCell<BTreeMap<String, Option<PathBuf>>>,
}

impl StandardLibrarySources {
    /// Returns the path of a standard library file on this machine. `None` if the file is not in the standard library, or if no installed
    /// toolchain of its commit has sources.
    fn find(&self, path: &str) -> Option<PathBuf> {
        let (commit, file) = path.strip_prefix(STANDARD_LIBRARY_PREFIX)?.split_once('/')?;
        let mut known = self.known.borrow_mut();
        let folder = known.entry(commit.to_owned()).or_insert_with(|| {
            let has_sources = self.toolchains.iter().filter(|toolchain| toolchain.join(TOOLCHAIN_SOURCES_FOLDER).is_dir());
            has_sources
                .into_iter()
                .find(|toolchain| toolchain_commit(toolchain).as_deref() == Some(commit))
                .map(|found| found.join(TOOLCHAIN_SOURCES_FOLDER))
        });
        folder.as_ref().map(|folder| folder.join(file))
    }
}

/// Returns the folders of installed toolchains: those of rustup, and the parents of folders in `PATH` that contain `rustc`.
fn find_toolchains() -> Vec<PathBuf> {
    let rustup = env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".rustup")));
    let installed = rustup.and_then(|folder| fs::read_dir(folder.join("toolchains")).ok()).into_iter().flatten();
    let mut found: Vec<PathBuf> = installed.flatten().map(|entry| entry.path()).collect();
    found.sort();
    let path = env::var_os("PATH").unwrap_or_default();
    found.extend(env::split_paths(&path).filter(|folder| folder.join("rustc").exists()).filter_map(|f| Some(f.parent()?.to_owned())));
    found
}

/// Returns the commit that a toolchain's compiler was built from, or `None` if the compiler cannot be run.
fn toolchain_commit(toolchain: &Path) -> Option<String> {
    let output = Command::new(toolchain.join("bin/rustc")).arg("-vV").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("commit-hash: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Creates a toolchain whose compiler reports `commit`.
    fn create_toolchain(folder: &Path, commit: &str) -> PathBuf {
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::create_dir_all(folder.join(TOOLCHAIN_SOURCES_FOLDER).join("library/core")).unwrap();
        fs::write(folder.join("bin/rustc"), format!("#!/bin/sh\necho rustc 1.0\necho 'commit-hash: {commit}'\n")).unwrap();
        fs::set_permissions(folder.join("bin/rustc"), fs::Permissions::from_mode(0o755)).unwrap();
        folder.to_owned()
    }

    #[test]
    fn sources_come_from_the_toolchain_with_the_same_commit() {
        let folder = env::temp_dir().join(format!("trodden-rust-sources-{}", std::process::id()));
        let toolchains =
            vec![create_toolchain(&folder.join("old"), "aaa"), create_toolchain(&folder.join("new"), "bbb"), folder.join("none")];
        let library = StandardLibrarySources { toolchains, known: RefCell::default() };
        let expected = folder.join("new").join(TOOLCHAIN_SOURCES_FOLDER).join("library/core/lib.rs");
        assert_eq!(library.find("/rustc/bbb/library/core/lib.rs"), Some(expected));
        assert_eq!(library.find("/rustc/ccc/library/core/lib.rs"), None);
        assert_eq!(library.find("/home/me/lib.rs"), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
