//! `trodden-lab loops`. Expected iterations follow from the text of the tested program, and the expected code without counting comes from
//! clang.

use crate::place::{Place, laboratory, must, trodden};
use serde_json::Value;

/// `sum` has a loop of a single block. `mix` has nested loops, the inner one with a branch.
const PROGRAM: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) unsigned sum(unsigned s, int n) { for (int i = 0; i < n; i++) s = s * 1103515245u + 12345u; return s; }\n\
    __attribute__((noinline)) unsigned mix(volatile unsigned *p, int n) {\n\
      for (int j = 0; j < 3; j++) for (int i = 0; i < n; i++) if (*p & 1) *p = *p * 3 + 1; else *p = *p / 2 + i;\n      return *p; }\n\
    int main(void) { volatile unsigned v = 9; printf(\"%u %u\\n\", sum(1, 5000), mix(&v, 1000)); return 0; }\n";

fn record_program() -> Place {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-O2 -g -fno-unroll-loops a.c -o prog");
    place.trodden("record -- ./prog");
    place
}

fn list_loops(place: &Place, arguments: &str) -> Vec<Value> {
    let found: Value = serde_json::from_slice(&place.laboratory(&format!("loops --json {arguments}")).stdout).unwrap();
    assert_eq!(found["schema_version"], 1);
    found["loops"].as_array().unwrap().clone()
}

/// Counts the instructions of a function's only loop in clang's assembly.
fn count_by_clang(place: &Place, function: &str) -> usize {
    place.tool("clang-22", "-O2 -g -fno-unroll-loops -S a.c -o plain.s");
    let text = std::fs::read_to_string(place.path("plain.s")).unwrap();
    let own = text.lines().skip_while(|l| !l.starts_with(&format!("{function}:"))).take_while(|l| !l.starts_with(".Lfunc_end"));
    let body = own.skip_while(|l| !l.contains("This Inner Loop Header")).skip(1);
    let is_code = |l: &&str| l.starts_with('\t') && !l.trim().starts_with(['.', '#']);
    let mut count = 0;
    for line in body.filter(is_code) {
        count += 1;
        if line.trim().starts_with('j') {
            break;
        }
    }
    count
}

#[test]
fn plain_loop_equals_clangs_and_counting_adds_instructions() {
    let place = record_program();
    let all = list_loops(&place, "./prog --top 9");
    let of = |name: &str| all.iter().find(|l| l["function"] == name).unwrap_or_else(|| panic!("no loop of {name}: {all:?}"));
    let sum = of("sum");
    assert_eq!(sum["iterations"], 5000);
    assert_eq!(sum["plain"].as_f64().unwrap(), count_by_clang(&place, "sum") as f64);
    let added = sum["counted"].as_f64().unwrap() - sum["plain"].as_f64().unwrap();
    assert!(added > 0.0 && added < 12.0, "counting adds {added} instructions to an iteration");
    assert_eq!(of("mix")["iterations"], 3000);
}

#[test]
fn outer_loop_excludes_inner_blocks() {
    let place = record_program();
    let all = list_loops(&place, "./prog --function mix");
    let iterations: Vec<u64> = all.iter().map(|l| l["iterations"].as_u64().unwrap()).collect();
    assert_eq!(iterations, [3000, 3], "the hotter loop comes first");
    let blocks = |l: &Value| l["blocks"].as_array().unwrap().iter().filter_map(|b| b["place"]["block"].as_u64()).collect::<Vec<_>>();
    assert!(blocks(&all[0]).iter().all(|b| !blocks(&all[1]).contains(b)), "{all:?}");
}

#[test]
fn parameters_change_the_counted_code() {
    let place = record_program();
    let text = |arguments: &str| String::from_utf8(place.laboratory(&format!("loops ./prog --function mix {arguments}")).stdout).unwrap();
    assert!(text("").contains("machine instructions per iteration: "));
    assert_ne!(text(""), text("--max-paths 1"));
}

#[test]
fn errors_say_what_to_do() {
    let place = record_program();
    let error = |arguments: &str| {
        let output = place.command(laboratory()).args(arguments.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error("loops ./prog --function nothing").contains("no function `nothing` was executed"));
    must(place.command(trodden()).args(["cc", "-O2", "a.c", "-o", "other"]));
    assert!(error("loops ./other").contains("trodden record -- ./other"));
    must(place.command(trodden()).args(["cc", "-O1", "a.c", "-o", "lean"]).env("TRODDEN_INSTRUMENT", "keep=map"));
    place.trodden("record -- ./lean");
    assert!(error("loops ./lean").contains("Rebuild the program without the setting `keep=map`"));
    // With `--residual`, the loop iterates on counted and on uncounted paths.
    place.trodden("instrument ./prog --residual last -o prog.field");
    place.trodden("record -- ./prog.field");
    assert!(error("loops ./prog.field").contains("Build it without --residual"));
}
