//! Small units, as the plugin instruments them. Each file in `tests/units` is a unit in LLVM's text form. Each of its lines `; settings:
//! ...` gives the settings of one build (default settings if nothing follows). After the dashes come, for each of these builds, the
//! functions that code generation gets.
//!
//! Further lines describe the input files of a build. `known=file` (also `interesting`, `watched` and `weights`) is made from lines `;
//! path: FUNCTION NUMBER EXECUTIONS`, with the path numbers of a default build. `segments=file` is made from lines `; segment: CALLER:PATH
//! ... CALLEE:PATH`, with the path numbers of a build with `reach=calls`. `part=1` selects what the first of two copies counts.
//!
//! `TRODDEN_BLESS=1` writes the current output to the files, so that a change of the output shows up as text. Whether the code counts
//! correctly is tested elsewhere. clang prints the functions before its first code generation pass, which runs after the plugin.

#[path = "../units/inputs.rs"]
mod inputs;

use crate::place::{Place, must, trodden};
use inputs::Inputs;
use std::path::{Path, PathBuf};
use trodden_unit::Settings;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, InputFolder};

/// Line between the unit's code and the expected output.
const OUTPUT_SEPARATOR: &str = "; ----\n";
const SETTINGS_PREFIX: &str = "; settings:";
const FIRST_CODEGEN_PASS: &str = "pre-isel-intrinsic-lowering";

/// Builds a unit with these settings and returns its functions. The unit's object stays in the folder.
fn build_unit(place: &Place, unit: &str, settings: &Settings) -> String {
    let folder = InputFolder::new(place.path("inputs"));
    let request = settings.clone().request(&folder).unwrap().write(&folder).unwrap();
    place.write("unit.ll", unit);
    let mut option = std::ffi::OsString::from("-fpass-plugin=");
    option.push(trodden().with_file_name("libtrodden_instrument.so"));
    let mut clang = place.command("clang-22");
    clang.args(["-O0", "-x", "ir", "unit.ll", "-c", "-o", "unit.o"]).arg(option).env(EXPERIMENT_VARIABLE, request);
    clang.args(["-mllvm", &format!("-print-before={FIRST_CODEGEN_PASS}"), "-mllvm", "-print-module-scope"]);
    extract_llvm_functions(&String::from_utf8(must(&mut clang).stderr).unwrap())
}

fn extract_llvm_functions(printed: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in printed.lines() {
        inside |= line.starts_with("define ");
        if inside {
            text.push_str(&remove_identity(line));
            text.push('\n');
        }
        if line == "}" {
            inside = false;
            text.push('\n');
        }
    }
    text
}

/// Removes the function's identifier from a line with a pseudo-probe, because it is a hash of the whole unit and its map.
fn remove_identity(line: &str) -> String {
    const PROBE_PREFIX: &str = "@llvm.pseudoprobe(i64 ";
    match line.split_once(PROBE_PREFIX).and_then(|(before, rest)| Some((before, rest.split_once(',')?.1))) {
        Some((before, after)) => format!("{before}{PROBE_PREFIX}FUNCTION,{after}"),
        None => line.to_owned(),
    }
}

#[test]
fn built_units_agree_with_the_expected_text() {
    let units: Vec<PathBuf> = list_unit_files().collect();
    let half = |units: &[PathBuf]| {
        let place = Place::new();
        units.iter().map(|unit| check_unit(&place, unit)).collect::<Vec<_>>()
    };
    let (first, second) = units.split_at(units.len() / 2);
    let made = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(second));
        [half(first), other.join().unwrap()].concat()
    });
    let builds: usize = made.iter().map(|(builds, _)| builds).sum();
    let wrong: Vec<String> = made.into_iter().filter_map(|(_, differs)| differs).collect();
    assert!(units.len() >= 41 && builds >= 74, "{builds}");
    assert!(wrong.is_empty(), "TRODDEN_BLESS=1 writes what is made now:\n{}", wrong.join("\n"));
}

/// Builds a unit once for each of its lines with settings. Returns the number of builds, and the new output if it differs from the expected
/// output.
fn check_unit(place: &Place, unit: &Path) -> (usize, Option<String>) {
    let text = std::fs::read_to_string(unit).unwrap();
    let (given, expected) = text.split_once(OUTPUT_SEPARATOR).unwrap_or((&text, ""));
    let mut builds = 0;
    let mut now = String::new();
    for options in given.lines().filter_map(|line| line.strip_prefix(SETTINGS_PREFIX)).map(str::trim) {
        builds += 1;
        let settings = parse_settings(place, given, options);
        now += &format!("{SETTINGS_PREFIX} {options}\n{}", build_unit(place, given, &settings));
    }
    let now = format!("{}\n", now.trim_end());
    if std::env::var_os("TRODDEN_BLESS").is_some() {
        std::fs::write(unit, format!("{given}{OUTPUT_SEPARATOR}{now}")).unwrap();
        return (builds, None);
    }
    (builds, (now != expected).then(|| format!("{}:\n{now}", unit.display())))
}

/// Parses settings, and creates the input files that they name from a default build.
fn parse_settings(place: &Place, unit: &str, options: &str) -> Settings {
    let mut settings: Settings = options.parse().unwrap();
    let named = options
        .split(' ')
        .filter_map(|option| option.strip_suffix("=file").or_else(|| option.strip_suffix("=1").filter(|key| *key == "part")));
    let keys: Vec<&str> = named.collect();
    if !keys.is_empty() {
        // Only this setting gives numbers to the callers' paths up to calls, which segments consist of.
        let numbers = if keys.contains(&"segments") { "reach=calls" } else { "" };
        build_unit(place, unit, &numbers.parse().unwrap());
        let inputs = Inputs::new(&place.path("unit.o"), unit);
        keys.into_iter().for_each(|key| inputs.create_input(&mut settings, key, place));
    }
    settings
}

fn list_unit_files() -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/units");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|file| file.extension().is_some_and(|end| end == "ll"))
}
