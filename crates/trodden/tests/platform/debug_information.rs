//! Objects must have the debug information that the user requested. Unit maps must contain line numbers even if the user requested none.

use super::{MAIN_SOURCE, STEP_SOURCE, create_two_units};
use crate::place::{Place, must, trodden};
use trodden_unit::UnitMap;

fn list_sections(place: &Place, file: &str) -> Vec<String> {
    let table = String::from_utf8(place.tool("readelf", &format!("--section-headers --wide {file}")).stdout).unwrap();
    let names = table.split_whitespace().filter(|word| word.starts_with(".debug_"));
    names.map(str::to_owned).collect()
}

fn list_lines(place: &Place, program: &str, function: &str) -> Vec<u32> {
    let maps: Vec<UnitMap> = place.image(program).frames.iter().map(|frame| frame.map().unwrap()).collect();
    let function = maps.iter().flat_map(|map| &map.functions).find(|f| f.name == function).expect("the function is counted");
    function.blocks.iter().flat_map(|block| &block.positions).map(|position| position.line).collect()
}

#[test]
fn objects_have_no_debug_information_unless_it_is_requested() {
    for more in ["-O0", "-O2", "-O2 --trodden=sample", "-O2 --trodden=stream", "-O2 --trodden=coverage", "-O2 --trodden=events=tsc"] {
        let place = create_two_units();
        place.cc(&format!("{more} main.c step.c -o prog"));
        assert!(list_sections(&place, "prog").is_empty(), "{more}: {:?}", list_sections(&place, "prog"));
        assert!(list_lines(&place, "prog", "step").contains(&1), "{more}");
        let text = String::from_utf8(place.cc(&format!("{more} -S step.c -o -")).stdout).unwrap();
        assert!(!text.contains("\t.loc\t"), "{more}");
    }
}

#[test]
fn requested_debug_information_is_kept() {
    let place = create_two_units();
    for (option, all) in [("-g", true), ("-ggdb", true), ("-gmlt", false), ("-gline-tables-only", false)] {
        place.cc(&format!("-O2 {option} main.c step.c -o prog"));
        let sections = list_sections(&place, "prog");
        assert!(sections.contains(&".debug_line".into()), "{option}");
        assert!(list_lines(&place, "prog", "step").contains(&1), "{option}");
        let variables = String::from_utf8(place.tool("llvm-dwarfdump-22", "--debug-info prog").stdout).unwrap();
        assert_eq!(variables.contains("DW_TAG_formal_parameter"), all, "{option}");
    }
    place.cc("-O2 -g0 main.c step.c -o prog");
    assert!(list_sections(&place, "prog").is_empty());
    assert!(list_lines(&place, "prog", "step").is_empty(), "the user wants no lines");
}

/// Commands on traces read line numbers from the program's own debug information, so it must not be removed.
#[test]
fn programs_built_for_traces_have_line_tables() {
    let place = create_two_units();
    for settings in ["observe=addresses", "observe=trace"] {
        let mut compile = place.command(trodden());
        must(compile.args(["cc", "-O2", "main.c", "step.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", settings));
        assert!(list_sections(&place, "prog").contains(&".debug_line".into()), "{settings}");
    }
}

#[test]
fn stored_bitcode_has_lines_but_objects_have_no_debug_information() {
    let place = create_two_units();
    place.cc("-O2 main.c step.c -o prog");
    place.trodden("instrument prog -o other --chords off");
    assert!(list_sections(&place, "other").is_empty());
    assert_eq!(list_lines(&place, "other", "step"), list_lines(&place, "prog", "step"));
    place.trodden("instrument other -o third");
    assert_eq!(list_lines(&place, "third", "step"), list_lines(&place, "prog", "step"));
    place.cc("-O2 -g main.c step.c -o prog");
    place.trodden("instrument prog -o other --chords off");
    assert!(list_sections(&place, "other").contains(&".debug_info".into()));
}

#[test]
fn whole_programs_have_debug_information_if_one_unit_requests_it() {
    let kept = format!("__attribute__((noinline)) {STEP_SOURCE}");
    let place = Place::with(&[("main.c", MAIN_SOURCE), ("step.c", &kept)]);
    for (option, has) in [("", false), ("-g", true)] {
        place.cc("--trodden=lto -O2 -c main.c");
        place.cc(&format!("--trodden=lto -O2 {option} -c step.c"));
        place.cc("--trodden=lto -O2 main.o step.o -o prog");
        assert_eq!(list_sections(&place, "prog").contains(&".debug_line".into()), has, "{option}");
        assert!(list_lines(&place, "prog", "step").contains(&1), "{option}");
    }
}
