//! Reading profiles: queries on paths that are split at cut edges, corrupt files, suites of several programs, and the contents of outputs.

use crate::place::{Place, laboratory, must, trodden};
use serde_json::Value;
use std::fs;
use std::process::Output;
use trodden_wire::RawHeader;
use trodden_wire::layout::Layout;

fn run_trodden(place: &Place, arguments: &[&str]) -> Output {
    place.command(trodden()).args(arguments).output().unwrap()
}

fn read_json(place: &Place, arguments: &[&str]) -> Value {
    let output = run_trodden(place, arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {output:?}"))
}

fn read_messages(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A program with three decisions in a row; `flags` selects their sides. If a function may have at most two paths, this one is cut between
/// the decisions.
const CUT_PROGRAM: &str = "\
#include <stdlib.h>
#define NOP __asm__ volatile(\"nop\")
__attribute__((noinline)) void walk(int flags) {
    if (flags & 1)
        NOP;
    NOP;
    if (flags & 2)
        NOP;
    NOP;
    if (flags & 4)
        NOP;
    NOP;
}
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        walk(atoi(argv[i]));
    return 0;
}
";

fn build_and_record_cut() -> Place {
    let place = Place::with(&[("a.c", CUT_PROGRAM)]);
    must(place.command(trodden()).args(["cc", "-O1", "-g", "a.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", "max-paths=2"));
    place
}

#[test]
fn expressions_are_matched_across_cuts() {
    let place = build_and_record_cut();
    let find = |expression: &str| {
        let output = run_trodden(&place, &["find", expression, "--json"]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (output.status.code().unwrap(), found["answer"].as_str().unwrap().to_owned(), found)
    };
    // All executions take all three sides, so the answer is certain.
    place.trodden("record -- ./prog 7 7 7");
    assert!(read_messages(&run_trodden(&place, &["report"])).contains("cut"), "the program is cut");
    let (status, answer, found) = find("walk: 5 .. 11");
    assert_eq!((status, answer.as_str(), &found["paths_found"]), (0, "yes", &Value::from(1)), "{found:#}");
    assert_eq!((&found["paths"][0]["count"], &found["paths"][0]["count_is_exact"]), (&Value::from(3), &Value::from(false)), "{found:#}");
    assert!(found["paths"][0]["pieces"].as_array().unwrap().len() > 1, "{found:#}");
    let text = read_messages(&run_trodden(&place, &["find", "walk: 5 .. 8 .. 11"]));
    assert!(text.contains("taken at least 3 times"), "{text}");
    // Every execution goes through line 11, so no path matches.
    assert_eq!(find("walk: 5 !11").1, "no");
    // Three of four executions take the first side, and three of four the last side. At least two executions thus take both.
    place.trodden("record -- ./prog 1 4 5 5");
    let (_, answer, found) = find("walk: 5 .. 11");
    assert_eq!((answer.as_str(), &found["paths"][0]["count"]), ("yes", &Value::from(2)), "{found:#}");
    // One of the two executions takes the first side, and one takes the last side. Whether one execution takes both is unknown.
    for flags in ["5 0", "1 4"] {
        place.trodden(&format!("record -- ./prog {flags}"));
        assert_eq!((find("walk: 5 .. 11").0, find("walk: 5 .. 11").1.as_str()), (2, "unknown"), "{flags}");
        let output = run_trodden(&place, &["find", "walk: 5 .. 11"]);
        let text = read_messages(&output);
        assert!(output.status.code() == Some(2) && text.contains("unknown: paths are cut") && text.contains("--table-slots"), "{text}");
        assert_eq!(find("walk: 8").1, "no", "it is within one piece");
    }
    // In a variant without cuts, the query has an answer.
    place.trodden("instrument prog --output whole --table-slots 64");
    place.trodden("record -- ./whole 1 4");
    assert_eq!(find("walk: 5 .. 11").1, "no");
    place.trodden("record -- ./whole 5 0");
    assert_eq!(find("walk: 5 .. 11").1, "yes");
}

#[test]
fn nonexistent_lines_and_functions_are_errors() {
    let place = build_and_record_cut();
    place.trodden("record -- ./prog 7");
    for (expression, message) in [
        ("walk: 5 .. 900", "contains code of line 900"),
        ("walk: 5 !900", "line 900"),
        ("wlak: 5", "`wlak`"),
        ("walk: nothing()", "inlined code of nothing"),
    ] {
        for arguments in [&["find", expression][..], &["instrument", "prog", "-o", "watch", "--watch", expression]] {
            let output = run_trodden(&place, arguments);
            assert!(output.status.code() == Some(2) && read_messages(&output).contains(message), "{arguments:?}: {output:?}");
        }
    }
    let watch = |expression: &str| run_trodden(&place, &["instrument", "prog", "-o", "watch", "--watch", expression]);
    let across = watch("walk: 5 .. 11");
    assert!(across.status.code() == Some(2) && read_messages(&across).contains("unknown: paths are cut"), "{across:?}");
    // The excluded line may lie beyond the cut, in the next part of the path.
    let excluded = watch("walk: 5 !11");
    assert!(excluded.status.code() == Some(2) && read_messages(&excluded).contains("unknown: paths are cut"), "{excluded:?}");
    let within = watch("walk: 5");
    assert!(within.status.success() && read_messages(&within).contains("warning") && read_messages(&within).contains("cut"), "{within:?}");
}

#[test]
fn intact_part_of_a_corrupt_profile_is_used() {
    let place = build_and_record_cut();
    place.write("b.c", "int other(int n) { return n * 3; }\n");
    place.cc("-O1 -g a.c b.c -o prog");
    for _ in 0..3 {
        place.trodden("record --suite nightly -- ./prog 7");
    }
    let file = ".trodden/profiles/000002.trodden";
    let bytes = fs::read(place.path(file)).unwrap();
    fs::write(place.path(file), &bytes[..bytes.len() - 20]).unwrap();
    let report = run_trodden(&place, &["report", "2"]);
    let text = read_messages(&report);
    assert!(report.status.success() && text.contains("walk") && text.contains("is corrupt") && text.contains("000002.trodden"), "{text}");
    assert!(read_json(&place, &["report", "2", "--json"])["damaged"][0].as_str().unwrap().contains("000002.trodden"));
    for arguments in [
        &["annotate", "walk", "2"][..],
        &["find", "walk: 5", "2"],
        &["export", "lcov", "2"],
        &["diff", "1", "2"],
        &["suite", "list", "--redundant", "nightly"],
    ] {
        let output = run_trodden(&place, arguments);
        assert!(output.status.success() && read_messages(&output).contains("is corrupt"), "{arguments:?}: {output:?}");
    }
    let merged = run_trodden(&place, &["merge", "--output", "all.trodden", "nightly"]);
    assert!(merged.status.code() == Some(1) && read_messages(&merged).contains("is corrupt"), "{merged:?}");
    assert_eq!(read_json(&place, &["report", "all.trodden", "--json"])["run"]["runs"], 3);
    fs::write(place.path(file), &bytes[..100]).unwrap();
    let nothing = run_trodden(&place, &["report", "2"]);
    assert!(nothing.status.code() == Some(2) && read_messages(&nothing).contains("000002.trodden"), "{nothing:?}");
}

#[test]
fn json_is_complete_and_top_0_means_no_limit() {
    let functions: String =
        (0..15).map(|i| format!("__attribute__((noinline)) int f{i}(int n) {{ __asm__ volatile(\"\"); return n + {i}; }}\n")).collect();
    let calls: String = (0..15).map(|i| format!(" n = f{i}(n);")).collect();
    let place = Place::with(&[("a.c", &format!("{functions}int main(void) {{ int n = 0;{calls} return 0; }}\n"))]);
    place.cc("-O1 -g a.c -o prog");
    place.trodden("record -- ./prog");
    let paths = |arguments: &[&str]| read_json(&place, arguments)["paths"].as_array().unwrap().len();
    assert_eq!(paths(&["report", "--json"]), 16);
    assert_eq!(paths(&["report", "--json", "--top", "0"]), 16);
    assert_eq!(paths(&["report", "--json", "--top", "3"]), 3);
    assert_eq!(paths(&["find", "..", "--json"]), 16);
    let shown = |arguments: &[&str]| {
        read_messages(&run_trodden(&place, arguments)).lines().find(|l| l.starts_with("Hottest paths")).unwrap_or_default().to_owned()
    };
    assert!(shown(&["report"]).contains("10 of 16 shown"), "{}", shown(&["report"]));
    assert!(shown(&["report", "--top", "0"]).contains("16 of 16 shown"));
    assert!(!read_messages(&run_trodden(&place, &["find", "..", "--top", "0"])).contains("more (--top)"));
}

#[test]
fn coverage_lists_only_existing_files() {
    let place = Place::with(&[
        ("src/a.c", "#include \"../lib/b.h\"\n#include \"gone.h\"\nint main(int n, char **v) { return twice(n) + gone(n) > 9; }\n"),
        ("lib/b.h", "static inline int twice(int n) {\n  return 2 * n;\n}\n"),
        ("src/gone.h", "static inline int gone(int n) {\n  return 3 * n;\n}\n"),
    ]);
    place.cc("-O0 -g src/a.c -o prog");
    place.remove("src/gone.h");
    must(place.command(trodden()).args(["record", "--", "./prog"]));
    let files = |arguments: &[&str]| {
        let output = run_trodden(&place, &[&["export", "lcov"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text
            .lines()
            .filter_map(|l| l.strip_prefix("SF:"))
            .map(|f| f.replace(&*place.path("").canonicalize().unwrap().to_string_lossy(), "ROOT"));
        (names.collect::<Vec<_>>(), String::from_utf8(output.stderr).unwrap())
    };
    let (all, note) = files(&[]);
    assert!(all == ["ROOT/lib/b.h", "ROOT/src/a.c"] && note.contains("gone.h"), "{all:?}: {note}");
    assert_eq!(files(&["--relative-to", "."]).0, ["lib/b.h", "src/a.c"]);
    assert_eq!(files(&["--include", "src", "--relative-to", "src"]).0, ["a.c"]);
    assert_eq!(files(&["--exclude", "*.h"]).0, ["ROOT/src/a.c"]);
    let wrong = run_trodden(&place, &["export", "folded", "--include", "src"]);
    assert!(wrong.status.code() == Some(2) && read_messages(&wrong).contains("lcov"), "{wrong:?}");
}

#[test]
fn control_characters_in_names_reach_neither_terminal_nor_tracefile() {
    let source = "int strange(int n) __asm__(\"str\\nange\");\n__attribute__((noinline)) int strange(int n) { return n + 1; }\n\
                  int main(int n, char **v) { return strange(n) - 2; }\n";
    let place = Place::with(&[("a\u{1b}[31m.c", source)]);
    must(place.command(trodden()).args(["cc", "-O1", "-g", "a\u{1b}[31m.c", "-o", "prog\u{1b}[31m"]));
    must(place.command(trodden()).args(["record", "-o", "p\u{1b}.trodden", "--", "./prog\u{1b}[31m"]));
    let files = ["p\u{1b}.trodden", "prog\u{1b}[31m"];
    for arguments in [
        &["report", files[0]][..],
        &["info", files[0]],
        &["info", "--json", files[1]],
        &["annotate", "main", files[0]],
        &["info", "no\u{1b}file"],
        &["report", "no\u{1b}file"],
    ] {
        let text = read_messages(&run_trodden(&place, arguments));
        assert!(!text.contains('\u{1b}') && !text.is_empty(), "{arguments:?}: {text:?}");
    }
    let escaped = "p\u{1b}[31m\u{9b}";
    for (program, arguments) in [
        (trodden(), &["cache"][..]),
        (trodden(), &["cache", "--prune", "3"]),
        (trodden(), &["doctor"]),
        (trodden(), &["doctor", "--json"]),
        (laboratory(), &["plan", files[1]]),
        (laboratory(), &["plan", "--json", files[1]]),
    ] {
        let mut command = place.command(program);
        command.env("TRODDEN_CACHE", place.path(escaped)).args(arguments);
        let text = read_messages(&command.output().unwrap());
        assert!(!text.contains(['\u{1b}', '\u{9b}']) && !text.is_empty(), "{arguments:?}: {text:?}");
    }
    let lcov = String::from_utf8(run_trodden(&place, &["export", "lcov", files[0]]).stdout).unwrap();
    let known = ["TN:", "SF:", "FN", "DA:", "BR", "LF:", "LH:", "end_of_record"];
    assert!(lcov.contains("str\u{fffd}ange") && lcov.lines().all(|l| known.iter().any(|k| l.starts_with(k))), "{lcov}");
}

#[test]
fn cached_map_of_a_different_unit_is_rejected() {
    let place = Place::with(&[("a.c", "int main(void) { return 0; }\n"), ("b.c", "int main(int n, char **v) { return n > 1; }\n")]);
    place.cc("-O1 -g a.c -o one");
    place.cc("-O1 -g b.c -o other");
    place.tool("strip", "one");
    let units = |program: &str| place.image(program).units[0].unit.to_string();
    let at = |unit: &str| place.path(&format!("store/units/{}/{unit}.unit", &unit[..2]));
    fs::copy(at(&units("other")), at(&units("one"))).unwrap();
    must(place.command("llvm-strip-22").args(["--remove-section", ".trodden.unit", "one"]));
    let output = run_trodden(&place, &["info", "one"]);
    let text = read_messages(&output);
    assert!(
        output.status.code() == Some(2) && text.contains(&units("other")) && text.contains(".unit") && text.contains("one"),
        "{output:?}"
    );
}

/// A program is rebuilt between two runs of a suite. Reports must use the build of the newest run.
#[test]
fn newest_build_of_a_suite_is_read() {
    let place = Place::with(&[("prog.c", CUT_PROGRAM)]);
    for (source, argument) in [(CUT_PROGRAM.to_owned(), "1"), (CUT_PROGRAM.replace("flags & 4", "flags & 8"), "3")] {
        fs::write(place.path("prog.c"), source).unwrap();
        place.cc("-O1 -g prog.c -o prog");
        must(place.command(trodden()).args(["record", "--suite", "nightly", "--", "./prog", argument]));
    }
    let report = run_trodden(&place, &["report", "nightly"]);
    let text = read_messages(&report);
    assert!(
        text.contains("./prog 3") && text.contains("skipping ") && text.contains("000001.trodden: `") && !text.contains("./prog 1"),
        "{text}"
    );
}

/// Counts that a raw file has lost must be reported whenever the profile is read, not only when it is created.
#[test]
fn profile_of_a_truncated_raw_file_is_marked_inexact() {
    let place = Place::with(&[("prog.c", CUT_PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    must(place.command(place.path("prog")).args(["1", "3"]).env("TRODDEN_OUTPUT", place.path("raw/counts.raw")));
    let bytes = fs::read(place.path("raw/counts.raw")).unwrap();
    // The truncated file contains only one counter of the first region.
    let start = RawHeader::read(&bytes).unwrap().regions_offset as usize;
    fs::write(place.path("raw/counts.raw"), &bytes[..start + 8]).unwrap();
    let collected = run_trodden(&place, &["import", "--no-store", "-o", "c.trodden", "raw"]);
    assert!(
        !collected.status.success() && read_messages(&collected).contains("the counts in region 0 of the file are incomplete"),
        "{collected:?}"
    );
    assert!(read_messages(&run_trodden(&place, &["report", "c.trodden"])).contains("not exact"));
    assert!(!read_json(&place, &["report", "c.trodden", "--json"])["totals"]["not_exact"].as_array().unwrap().is_empty());
}

/// The function `work` is in a different file than the unit that includes it, and contains inlined code from a third file.
#[test]
fn differences_name_the_files_of_lines() {
    let place = Place::with(&[
        ("one.c", "#include \"part.c\"\nint main(int c, char **v) { return work(v[1]) == 77; }\n"),
        (
            "part.c",
            "#include \"small.h\"\n\n__attribute__((noinline)) int work(const char *s) {\n    int n = 0;\n    \
                for (; *s; s++)\n        if (low(*s))\n            n += 2;\n        else\n            puts(\"x\");\n    return n;\n}\n",
        ),
        (
            "small.h",
            "int puts(const char *);\nstatic inline int low(int c) {\n if (c == 'a')\n  return puts(\"a\") > 99;\n return c < 'Z';\n}\n",
        ),
    ]);
    place.cc("-O1 -g one.c -o one");
    for (file, argument) in [("before.trodden", "AAz"), ("after.trodden", "aaAz")] {
        must(place.command(trodden()).args(["record", "--no-store", "-o", file, "--", "./one", argument]));
    }
    let output = place.trodden("diff before.trodden after.trodden");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nwork  (part.c; entered 1 -> 1)\n"), "{text}");
    let appeared = text.lines().find(|line| line.contains("appeared") && line.contains("small.h:4")).unwrap_or_else(|| panic!("{text}"));
    let lines = appeared.split_once("lines ").unwrap().1;
    // In such a list, a line number without a file name refers to the file named last. The function's own file comes first.
    assert!(lines.contains("part.c:"), "{text}");
    let json: Value = serde_json::from_slice(&place.trodden("diff --json before.trodden after.trodden").stdout).unwrap();
    let work = json["functions"].as_array().unwrap().iter().find(|f| f["function"] == "work").unwrap();
    assert_eq!((work["source"].as_str(), work["file"].as_str().unwrap().ends_with("/part.c")), (Some("one.c"), true));
}

/// A program with two functions, `mixed` and `steady`, that have three paths each. The first argument is the number of times that `mixed`
/// takes its first path. The second argument is the number of times that `mixed` takes its last path, and selects the path that `steady`
/// takes once.
const RARE_PROGRAM: &str = "\
#include <stdlib.h>
__attribute__((noinline)) void mixed(int way) {
    if (way == 0)
        __asm__ volatile(\"# mixed 0\");
    else if (way == 1)
        __asm__ volatile(\"# mixed 1\");
    else
        __asm__ volatile(\"# mixed 2\");
}
__attribute__((noinline)) void steady(int way) {
    if (way == 0)
        __asm__ volatile(\"# steady 0\");
    else if (way == 1)
        __asm__ volatile(\"# steady 1\");
    else
        __asm__ volatile(\"# steady 2\");
}
int main(int argc, char **argv) {
    for (int i = 0; i < 10000; i++) {
        mixed(i >= atoi(argv[1]));
        steady(0);
    }
    for (int i = 0; i < atoi(argv[2]); i++)
        mixed(2);
    steady(atoi(argv[2]));
    return 0;
}
";

/// Paths that round to 0.0 % of their function's executions in both profiles are counted instead of listed. JSON lists all paths.
#[test]
fn differences_of_rare_paths_are_counted_instead_of_listed() {
    let place = Place::with(&[("rare.c", RARE_PROGRAM)]);
    place.cc("-O1 -g rare.c -o rare");
    for (file, common, rare) in [("before.trodden", "6000", "1"), ("after.trodden", "3000", "2")] {
        must(place.command(trodden()).args(["record", "--no-store", "-o", file, "--", "./rare", common, rare]));
    }
    let text = String::from_utf8(place.trodden("diff before.trodden after.trodden").stdout).unwrap();
    let section = |function: &str| {
        text.split("\n\n").find(|section| section.starts_with(function)).map(|section| section.lines().collect::<Vec<_>>())
    };
    // Two paths have thousands of executions. The third has 1 before and 2 after, both of which round to 0.0 %.
    let mixed = section("mixed  (rare.c; entered 10001 -> 10002)").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(mixed.iter().filter(|line| line.starts_with("  share ")).count(), 2, "{text}");
    assert_eq!(mixed.last(), Some(&"  ... and 1 path with 0.0 % of the executions both times (--json)"), "{text}");
    assert!(!text.contains("0.0 % -> 0.0 %"), "{text}");
    // In `steady`, one path vanished and one appeared, but both round to 0.0 % in both profiles, so the function is not listed.
    assert!(section("steady").is_none(), "{text}");
    assert!(text.contains("\n\n1 function differs only in paths with 0.0 % of the executions both times (--json)\n"), "{text}");
    let json = read_json(&place, &["diff", "--json", "before.trodden", "after.trodden"]);
    let paths = |name: &str| {
        json["functions"].as_array().unwrap().iter().find(|f| f["function"] == name).unwrap()["paths"].as_array().unwrap().len()
    };
    assert_eq!((paths("mixed"), paths("steady")), (3, 2), "{json:#}");
}
