//! What the plugin makes of small units: each file of `tests/units` is a unit in LLVM's text, with the settings of a build on a line
//! `; settings: ...` (none: as by default), and behind the dashes the functions as code generation gets them, for each such line.
//!
//! Files that a build reads are made of further lines. `known=file` (`interesting`, `watched`, `weights`) is of lines
//! `; path: FUNCTION NUMBER EXECUTIONS`, with the numbers of a default build. `segments=file` is of lines
//! `; segment: CALLER:PATH ... CALLEE:PATH`, with those of a build with `reach=calls`. `part=1` is what the first of two copies counts.
//!
//! `TRODDEN_BLESS=1` writes what is made now. A change of what is made shows here as text; whether it counts right is for other tests.
//! clang prints the functions before its first pass of code generation, which comes behind the plugin.

#[path = "units/inputs.rs"]
mod inputs;
mod place;

use inputs::Inputs;
use place::{Place, must, trodden};
use std::path::{Path, PathBuf};
use trodden_unit::Settings;
use trodden_unit::experiment::{EXPERIMENT_VARIABLE, InputFolder};

/// Between a unit and what is made of it.
const DASHES: &str = "; ----\n";
/// How a line with settings begins.
const SETTINGS: &str = "; settings:";
/// The first pass of code generation.
const PASS: &str = "pre-isel-intrinsic-lowering";

/// The functions of a unit in a build by these settings; the unit's object is in the folder.
fn made(place: &Place, unit: &str, settings: &Settings) -> String {
    let folder = InputFolder::new(place.path("inputs"));
    let request = settings.clone().request(&folder).unwrap().write(&folder).unwrap();
    place.write("unit.ll", unit);
    let mut option = std::ffi::OsString::from("-fpass-plugin=");
    option.push(trodden().with_file_name("libtrodden_instrument.so"));
    let mut clang = place.command("clang-22");
    clang.args(["-O0", "-x", "ir", "unit.ll", "-c", "-o", "unit.o"]).arg(option).env(EXPERIMENT_VARIABLE, request);
    clang.args(["-mllvm", &format!("-print-before={PASS}"), "-mllvm", "-print-module-scope"]);
    functions(&String::from_utf8(must(&mut clang).stderr).unwrap())
}

/// The functions of a printed module, without what precedes and follows them.
fn functions(printed: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in printed.lines() {
        inside |= line.starts_with("define ");
        if inside {
            text.push_str(&without_identity(line));
            text.push('\n');
        }
        if line == "}" {
            inside = false;
            text.push('\n');
        }
    }
    text
}

/// A line in which a pseudo-probe does not have its function's identifier: that is a hash of the whole unit with its map.
fn without_identity(line: &str) -> String {
    const PROBE: &str = "@llvm.pseudoprobe(i64 ";
    match line.split_once(PROBE).and_then(|(before, rest)| Some((before, rest.split_once(',')?.1))) {
        Some((before, after)) => format!("{before}{PROBE}FUNCTION,{after}"),
        None => line.to_owned(),
    }
}

#[test]
fn units_are_made_into_what_is_written_beside_them() {
    let units: Vec<PathBuf> = files().collect();
    let half = |units: &[PathBuf]| {
        let place = Place::new();
        units.iter().map(|unit| one(&place, unit)).collect::<Vec<_>>()
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

/// Builds a unit by each of its lines with settings. Gives the number of builds, and what is made now if it is not what is written.
fn one(place: &Place, unit: &Path) -> (usize, Option<String>) {
    let text = std::fs::read_to_string(unit).unwrap();
    let (given, expected) = text.split_once(DASHES).unwrap_or((&text, ""));
    let mut builds = 0;
    let mut now = String::new();
    for options in given.lines().filter_map(|line| line.strip_prefix(SETTINGS)).map(str::trim) {
        builds += 1;
        let settings = settings(place, given, options);
        now += &format!("{SETTINGS} {options}\n{}", made(place, given, &settings));
    }
    let now = format!("{}\n", now.trim_end());
    if std::env::var_os("TRODDEN_BLESS").is_some() {
        std::fs::write(unit, format!("{given}{DASHES}{now}")).unwrap();
        return (builds, None);
    }
    (builds, (now != expected).then(|| format!("{}:\n{now}", unit.display())))
}

/// Settings by their text, whose files are made of a build as by default.
fn settings(place: &Place, unit: &str, options: &str) -> Settings {
    let mut settings: Settings = options.parse().unwrap();
    let named = options
        .split(' ')
        .filter_map(|option| option.strip_suffix("=file").or_else(|| option.strip_suffix("=1").filter(|key| *key == "part")));
    let keys: Vec<&str> = named.collect();
    if !keys.is_empty() {
        // Callers' paths up to calls have numbers only where calls are edges.
        let numbers = if keys.contains(&"segments") { "reach=calls" } else { "" };
        made(place, unit, &numbers.parse().unwrap());
        let inputs = Inputs::new(&place.path("unit.o"), unit);
        keys.into_iter().for_each(|key| inputs.set(&mut settings, key, place));
    }
    settings
}

fn files() -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/units");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|file| file.extension().is_some_and(|end| end == "ll"))
}
