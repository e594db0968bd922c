//! Names of compilers that `trodden build` and `trodden pgo` stand in for: a folder that is first on the search path of
//! a build has links to the program under these names.
//!
//! Builds name compilers by their kind (`cc`), with a version (`clang-22`, `gcc-12`), and with a target
//! (`x86_64-linux-gnu-gcc-12`). The usual names are always there; those with versions and targets only where the search
//! path has such a compiler, so that configuration finds what it would find otherwise.

use crate::compile_step::SourceLanguage;
use crate::context::DriverContext;
use crate::toolchain::is_program;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Kinds of compilers by their names.
const KINDS: [(&str, SourceLanguage); 6] = [
    ("cc", SourceLanguage::C),
    ("gcc", SourceLanguage::C),
    ("clang", SourceLanguage::C),
    ("c++", SourceLanguage::Cxx),
    ("g++", SourceLanguage::Cxx),
    ("clang++", SourceLanguage::Cxx),
];
/// What names of compilers for this machine may begin with.
const TARGETS: [&str; 4] = ["x86_64-linux-gnu-", "x86_64-pc-linux-gnu-", "x86_64-unknown-linux-gnu-", "x86_64-redhat-linux-"];

/// The language of a compiler of this name, if it is one that trodden stands in for.
pub fn language(name: &str) -> Option<SourceLanguage> {
    let kind = TARGETS.iter().find_map(|target| name.strip_prefix(target)).unwrap_or(name);
    let kind = match kind.rsplit_once('-') {
        Some((kind, version)) if is_version(version) => kind,
        _ => kind,
    };
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, language)| *language)
}

/// The names to stand in for.
pub fn names(context: &DriverContext) -> BTreeSet<String> {
    let found = context.search_path().flat_map(|folder| compilers_in(&folder));
    KINDS.iter().map(|(name, _)| (*name).to_owned()).chain(found).collect()
}

fn compilers_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| language(name).is_some() && is_program(&folder.join(name))).collect()
}

/// `12`, `4.8`.
fn is_version(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_known_with_versions_and_targets() {
        for name in ["cc", "gcc", "clang", "clang-22", "gcc-12", "gcc-4.8", "x86_64-linux-gnu-gcc", "x86_64-pc-linux-gnu-gcc-12.2.0"] {
            assert_eq!(language(name), Some(SourceLanguage::C), "{name}");
        }
        for name in ["c++", "g++", "clang++", "clang++-22", "g++-12", "x86_64-linux-gnu-g++-12"] {
            assert_eq!(language(name), Some(SourceLanguage::Cxx), "{name}");
        }
        for name in
            ["gcc-ar", "gcc-ar-12", "clang-cpp-22", "clang-format", "clang-", "clang-22x", "aarch64-linux-gnu-gcc", "ld", "gcc-12-", "22"]
        {
            assert_eq!(language(name), None, "{name}");
        }
    }
}
