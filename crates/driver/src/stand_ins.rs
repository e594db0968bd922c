//! The compiler names under which `trodden build` and `trodden pgo` intercept calls of compilers. A folder at the start of a build's search
//! path contains links to this program under these names.
//!
//! Builds call compilers by plain names (`cc`), with a version (`clang-22`, `gcc-12`), or with a target (`x86_64-linux-gnu-gcc-12`). The
//! links for plain names always exist. Links for other names exist only if the search path has a compiler with that name, so that configure
//! scripts find the same compilers as without trodden.

use crate::compile_step::SourceLanguage;
use crate::context::DriverContext;
use crate::toolchain::is_program;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PLAIN_COMPILER_NAMES: [(&str, SourceLanguage); 6] = [
    ("cc", SourceLanguage::C),
    ("gcc", SourceLanguage::C),
    ("clang", SourceLanguage::C),
    ("c++", SourceLanguage::Cxx),
    ("g++", SourceLanguage::Cxx),
    ("clang++", SourceLanguage::Cxx),
];
const TARGET_PREFIXES: [&str; 4] = ["x86_64-linux-gnu-", "x86_64-pc-linux-gnu-", "x86_64-unknown-linux-gnu-", "x86_64-redhat-linux-"];

/// Returns the language of the compiler with this name; `None` if trodden does not intercept calls of this compiler.
pub fn language_of_compiler(name: &str) -> Option<SourceLanguage> {
    let kind = TARGET_PREFIXES.iter().find_map(|target| name.strip_prefix(target)).unwrap_or(name);
    let kind = match kind.rsplit_once('-') {
        Some((kind, version)) if is_version(version) => kind,
        _ => kind,
    };
    PLAIN_COMPILER_NAMES.iter().find(|(name, _)| *name == kind).map(|(_, language)| *language)
}

/// Returns all compiler names for which links to this program must exist.
pub fn stand_in_names(context: &DriverContext) -> BTreeSet<String> {
    let found = context.search_path().flat_map(|folder| list_compilers_in(&folder));
    PLAIN_COMPILER_NAMES.iter().map(|(name, _)| (*name).to_owned()).chain(found).collect()
}

fn list_compilers_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| language_of_compiler(name).is_some() && is_program(&folder.join(name))).collect()
}

fn is_version(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_recognised_with_versions_and_targets() {
        for name in ["cc", "gcc", "clang", "clang-22", "gcc-12", "gcc-4.8", "x86_64-linux-gnu-gcc", "x86_64-pc-linux-gnu-gcc-12.2.0"] {
            assert_eq!(language_of_compiler(name), Some(SourceLanguage::C), "{name}");
        }
        for name in ["c++", "g++", "clang++", "clang++-22", "g++-12", "x86_64-linux-gnu-g++-12"] {
            assert_eq!(language_of_compiler(name), Some(SourceLanguage::Cxx), "{name}");
        }
        for name in
            ["gcc-ar", "gcc-ar-12", "clang-cpp-22", "clang-format", "clang-", "clang-22x", "aarch64-linux-gnu-gcc", "ld", "gcc-12-", "22"]
        {
            assert_eq!(language_of_compiler(name), None, "{name}");
        }
    }
}
