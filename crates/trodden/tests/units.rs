//! What the plugin makes of small units: each file of `tests/units` is a unit in LLVM's text, with the settings of a build on a line
//! `; settings: ...` (none: as by default), and behind the dashes the functions as code generation gets them, for each such line.
//!
//! `TRODDEN_BLESS=1` writes what is made now. A change of what is made shows here as text; whether it counts right is for other tests.
//! clang prints the functions before its first pass of code generation, which comes behind the plugin.

mod place;

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

/// The functions of a unit in a build by these settings.
fn made(place: &Place, unit: &str, settings: &str) -> String {
    let folder = InputFolder::at(place.path("inputs"));
    let request = settings.parse::<Settings>().unwrap().request(&folder).unwrap().write(&folder).unwrap();
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
            text.push_str(line);
            text.push('\n');
        }
        if line == "}" {
            inside = false;
            text.push('\n');
        }
    }
    text
}

#[test]
fn units_are_made_into_what_is_written_beside_them() {
    let place = Place::new();
    let mut units: Vec<PathBuf> = files().collect();
    units.sort();
    let bless = std::env::var_os("TRODDEN_BLESS").is_some();
    let (mut wrong, mut builds) = (Vec::new(), 0);
    for unit in &units {
        let text = std::fs::read_to_string(unit).unwrap();
        let (given, expected) = text.split_once(DASHES).unwrap_or((&text, ""));
        let asked = given.lines().filter_map(|line| line.strip_prefix(SETTINGS));
        let mut now = String::new();
        for settings in asked.map(str::trim) {
            builds += 1;
            now += &format!("{SETTINGS} {settings}\n{}", made(&place, given, settings));
        }
        let now = format!("{}\n", now.trim_end());
        if bless {
            std::fs::write(unit, format!("{given}{DASHES}{now}")).unwrap();
        } else if now != expected {
            wrong.push(format!("{}:\n{now}", unit.display()));
        }
    }
    assert!(builds >= 24, "{builds}");
    assert!(wrong.is_empty(), "TRODDEN_BLESS=1 writes what is made now:\n{}", wrong.join("\n"));
}

fn files() -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/units");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}
