//! Requests line tables if the user requests no debug information.
//!
//! The plugin takes line numbers from clang's debug information. If the user requests none, compile units are marked with
//! [`MAP_ONLY_DEBUG_INFO_FLAG`], and the plugin strips the debug information after reading it. The mark is part of the bitcode, so it
//! survives when objects are rebuilt from bitcode and when modules are merged.

use super::arguments::CompilerCommandLine;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use trodden_unit::MAP_ONLY_DEBUG_INFO_FLAG;

/// Prefixes of options that make clang keep source locations until code generation although it writes no line tables.
const OPTIONS_THAT_NEED_LOCATIONS: &[&str] = &[
    "-Rpass",
    "-fsave-optimization-record",
    "-foptimization-record-",
    "-fauto-profile",
    "-fprofile-sample-use",
    "-fdebug-info-for-profiling",
    "-fpseudo-probe-for-profiling",
];

/// The first clang version that adds key instructions.
const FIRST_CLANG_WITH_KEY_INSTRUCTIONS: u32 = 22;
/// Option that disables key instructions. They improve stepping in debuggers, but each of them adds a source location that trodden does not
/// need.
const NO_KEY_INSTRUCTIONS: &str = "-gno-key-instructions";

/// Returns the options to add when the clang with major version `major` compiles.
pub fn debug_options_to_add(line: &CompilerCommandLine, clang: &Path, major: u32) -> Vec<OsString> {
    if line.debug {
        return Vec::new();
    }
    let mut added = vec!["-gline-tables-only"];
    if !needs_debug_locations(line) && !reads_configuration_file(line, clang) {
        added.extend((major >= FIRST_CLANG_WITH_KEY_INSTRUCTIONS).then_some(NO_KEY_INSTRUCTIONS));
        added.extend(["-Xclang", "-dwarf-debug-flags", "-Xclang", MAP_ONLY_DEBUG_INFO_FLAG]);
    }
    added.into_iter().map(OsString::from).collect()
}

fn needs_debug_locations(line: &CompilerCommandLine) -> bool {
    let needs = |text: &str| OPTIONS_THAT_NEED_LOCATIONS.iter().any(|prefix| text.starts_with(prefix));
    line.arguments.iter().filter_map(|argument| argument.to_str()).any(needs)
}

/// Returns true if clang reads a configuration file, which may request debug information. The user may name the file, or it may be beside
/// clang.
fn reads_configuration_file(line: &CompilerCommandLine, clang: &Path) -> bool {
    if line.arguments.iter().filter_map(|argument| argument.to_str()).any(|text| text.starts_with("--config")) {
        return true;
    }
    let beside = fs::canonicalize(clang).ok().and_then(|file| fs::read_dir(file.parent()?).ok());
    beside.is_some_and(|files| files.flatten().any(|file| Path::new(&file.file_name()).extension().is_some_and(|end| end == "cfg")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str, clang: &Path) -> Vec<String> {
        let arguments: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        let line = CompilerCommandLine::read(&arguments, &|_| None);
        debug_options_to_add(&line, clang, 22).into_iter().map(|argument| argument.into_string().unwrap()).collect()
    }

    const OPTIONS_IF_KEPT: &[&str] = &["-gline-tables-only"];
    const OPTIONS_IF_STRIPPED: &[&str] =
        &["-gline-tables-only", "-gno-key-instructions", "-Xclang", "-dwarf-debug-flags", "-Xclang", MAP_ONLY_DEBUG_INFO_FLAG];

    #[test]
    fn requested_debug_information_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let clang = folder.path().join("clang");
        fs::write(&clang, "").unwrap();
        for text in ["-g -c a.c", "-g0 -c a.c", "-g -g0 -c a.c", "-ggdb3 -c a.c", "-gmlt -c a.c", "-gline-tables-only -c a.c"] {
            assert!(added(text, &clang).is_empty(), "{text}");
        }
        for text in ["-c a.c", "-O2 -gsplit-dwarf -c a.c", "-gz -c a.c", "-flto -c a.c"] {
            assert_eq!(added(text, &clang), OPTIONS_IF_STRIPPED, "{text}");
        }
        let line = CompilerCommandLine::read(&["-c".into(), "a.c".into()], &|_| None);
        assert!(!debug_options_to_add(&line, &clang, 19).contains(&NO_KEY_INSTRUCTIONS.into()));
    }

    #[test]
    fn debug_information_that_clang_needs_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let clang = folder.path().join("clang");
        fs::write(&clang, "").unwrap();
        for text in ["-Rpass=regalloc -c a.c", "-fsave-optimization-record=yaml -c a.c", "-fprofile-sample-use=a.prof -c a.c"] {
            assert_eq!(added(text, &clang), OPTIONS_IF_KEPT, "{text}");
        }
    }

    #[test]
    fn debug_information_is_kept_if_clang_reads_a_configuration_file() {
        let folder = tempfile::tempdir().unwrap();
        let clang = folder.path().join("clang");
        fs::write(&clang, "").unwrap();
        assert_eq!(added("--config=mine.cfg -c a.c", &clang), OPTIONS_IF_KEPT);
        assert_eq!(added("--config mine.cfg -c a.c", &clang), OPTIONS_IF_KEPT);
        assert_eq!(added("-c a.c", &clang), OPTIONS_IF_STRIPPED);
        fs::write(folder.path().join("clang.cfg"), "-g\n").unwrap();
        assert_eq!(added("-c a.c", &clang), OPTIONS_IF_KEPT);
    }
}
