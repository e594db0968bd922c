//! Line and call counts of optimised code, compared with llvm-cov, which counts in the front end. Three programs are built at `-O2`.
//!
//! The compiler's line table determines which lines have code. Lines that contain only a brace are left out: code for exceptions belongs to
//! the closing brace, and a function's entry code belongs to the opening brace but is counted at the line of the function's name.

use crate::place::{Place, must, trodden};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PROGRAMS: [&str; 3] = ["words.c", "calculator.c", "shapes.cc"];

/// Line and call counts of one source file.
#[derive(Debug, Default)]
struct Coverage {
    lines: BTreeMap<u32, u64>,
    calls: BTreeMap<String, u64>,
}

fn parse_tracefile(trace: &str, file: &str) -> Coverage {
    let mut coverage = Coverage::default();
    let of_file = |r: &&str| r.lines().any(|l| l.strip_prefix("SF:").is_some_and(|f| f.ends_with(file)));
    for line in trace.split("end_of_record\n").filter(of_file).flat_map(str::lines) {
        if let Some((line, count)) = line.strip_prefix("DA:").and_then(|l| l.split_once(',')) {
            coverage.lines.insert(line.parse().unwrap(), count.parse().unwrap());
        }
        if let Some((count, name)) = line.strip_prefix("FNDA:").and_then(|l| l.split_once(',')) {
            // llvm-cov prefixes the names of local functions with the name of the file.
            *coverage.calls.entry(name.rsplit(':').next().unwrap().to_owned()).or_default() += count.parse::<u64>().unwrap();
        }
    }
    coverage
}

fn read_output(place: &Place, program: &str, arguments: &str) -> String {
    String::from_utf8(place.tool(program, arguments).stdout).unwrap()
}

fn find_lines_with_code(place: &Place, program: &str, file: &str) -> BTreeSet<u32> {
    let table = read_output(place, "llvm-dwarfdump-22", &format!("--debug-line {program}"));
    let (mut numbers, mut number, mut lines) = (BTreeSet::new(), String::new(), BTreeSet::new());
    for row in table.lines() {
        if row.starts_with("debug_line[") {
            numbers.clear();
        } else if let Some(rest) = row.strip_prefix("file_names[") {
            number = rest.split(']').next().unwrap().trim().to_owned();
        } else if row.trim_start().starts_with("name: ") && row.trim_end().ends_with(&format!("{file}\"")) {
            numbers.insert(number.clone());
        } else if row.starts_with("0x") {
            let fields: Vec<&str> = row.split_whitespace().collect();
            lines.extend((numbers.contains(fields[3])).then(|| fields[1].parse::<u32>().unwrap()).filter(|l| *l > 0));
        }
    }
    lines
}

#[test]
fn line_and_call_counts_of_optimised_code_agree_with_llvm_cov() {
    let (mut all_wanted, mut all_missing) = (0, Vec::new());
    for file in PROGRAMS {
        let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lines").join(file)).unwrap();
        let place = Place::with(&[(file, &source)]);
        let (ours, theirs) = if file.ends_with("cc") { ("c++", "clang++-22") } else { ("cc", "clang-22") };
        place.trodden(&format!("{ours} -O2 -g {file} -o counted"));
        place.tool(theirs, &format!("-O2 -g -fprofile-instr-generate -fcoverage-mapping {file} -o covered"));
        place.record("counted");
        must(place.command(place.path("covered")).env("LLVM_PROFILE_FILE", place.path("run.raw")));
        place.tool("llvm-profdata-22", "merge -o run.profdata run.raw");
        let expected =
            parse_tracefile(&read_output(&place, "llvm-cov-22", "export --format=lcov --instr-profile run.profdata covered"), file);
        let found = parse_tracefile(
            &String::from_utf8(must(place.command(trodden()).args(["export", "lcov", "run.trodden"])).stdout).unwrap(),
            file,
        );

        let is_brace = |line: &u32| source.lines().nth(*line as usize - 1).is_none_or(|l| matches!(l.trim(), "{" | "}" | "};"));
        let executed = || expected.lines.iter().filter(|(_, n)| **n > 0).map(|(line, _)| *line);
        let zero: Vec<u32> = executed().filter(|l| found.lines.get(l) == Some(&0) && !is_brace(l)).collect();
        assert!(zero.is_empty(), "{file}: executed lines that are shown as 0: {zero:?}");
        let unexecuted = |line: &u32| expected.lines.get(line) == Some(&0);
        let invented: Vec<&u32> = found.lines.iter().filter(|(line, n)| **n > 0 && unexecuted(line)).map(|(line, _)| line).collect();
        assert!(invented.is_empty(), "{file}: lines that were not executed and have counts: {invented:?}");

        let with_code = find_lines_with_code(&place, "counted", file);
        let wanted: Vec<u32> = executed().filter(|l| with_code.contains(l) && !is_brace(l)).collect();
        let missing: Vec<u32> = wanted.iter().copied().filter(|l| !found.lines.contains_key(l)).collect();
        assert!(wanted.len() >= 15, "{file}: only {} lines with code were executed", wanted.len());
        all_wanted += wanted.len();
        all_missing.extend(missing.iter().map(|line| format!("{file}:{line}")));

        // If the optimiser knows a call's result on some paths, these paths contain no code of the inlined body, and the call is not
        // counted there. If it knows the result on all paths, nothing remains to be counted.
        for (name, calls) in expected.calls.iter().filter(|(_, calls)| **calls > 0) {
            let Some(&known) = found.calls.get(name) else { continue };
            assert!(known.abs_diff(*calls) * 10 <= *calls, "{file}: {known} calls of {name}, not {calls}; {:?}", found.calls);
        }
        let same = expected.calls.iter().filter(|(name, calls)| found.calls.get(*name) == Some(calls)).count();
        assert!(same * 10 >= expected.calls.len() * 8, "{file}: {same} functions of {} have equal counts", expected.calls.len());
        let equal = wanted.iter().filter(|l| found.lines.get(l) == expected.lines.get(l)).count();
        println!("{file}: {} executed lines with code, {} missing, {equal} with equal counts", wanted.len(), missing.len());
    }
    assert!(all_missing.len() * 50 <= all_wanted, "of {all_wanted} lines {all_missing:?} are missing");
}

#[test]
fn maps_have_the_line_graphs_before_optimisation_and_programs_no_embedded_bitcode() {
    let source = "\
int twice(int a) {
  return a * 2;
}
int main(int argc, char **argv) {
  if (argc > 5)
    return twice(argc);
  return 0;
}
";
    let place = Place::with(&[("twice.c", source)]);
    let graphs = |program: &str| {
        let image = trodden_unit::InstrumentedImage::read(&fs::read(place.path(program)).unwrap()).unwrap();
        image.frames[0].map().unwrap().line_graphs
    };
    place.trodden("cc -O2 -g twice.c -o optimised");
    let found = graphs("optimised");
    let lines = |name: &str| -> BTreeSet<u32> {
        let function = found.functions.iter().find(|f| f.name == name).unwrap();
        function.blocks.iter().flat_map(|b| b.lines.clone()).collect()
    };
    assert_eq!(lines("twice"), BTreeSet::from([2]));
    assert!(lines("main").is_superset(&BTreeSet::from([5, 6, 7])), "{found:?}");
    let place_of = |name: &str| found.functions.iter().position(|f| f.name == name).unwrap();
    let main = &found.functions[place_of("main")];
    let [(block, called)] = main.calls[..] else { panic!("{main:?}") };
    assert_eq!((called as usize, main.blocks[block as usize].lines.contains(&6)), (place_of("twice"), true), "{main:?}");
    let sections = read_output(&place, "llvm-readelf-22", "-S optimised");
    assert!(!sections.contains(".llvmbc"), "{sections}");
    // This variant is made from the bitcode stored in the cache.
    place.trodden("instrument optimised --sample -o variant");
    assert_eq!(graphs("variant"), found);
    // Unoptimised code is not moved, so each line's own code shows whether the line was executed.
    place.trodden("cc -O0 -g twice.c -o plain");
    assert!(graphs("plain").functions.is_empty());
}

#[test]
fn lines_after_a_call_that_ended_the_program_are_not_executed() {
    let source = "\
void end(int code);
int *volatile where, begun, sum;
int run(int *step) {
  for (;;)
    switch (*step++) {
    case 0:
      sum++;
      break;
    case 1:
      if (!where)
        end(sum);
      begun = *where;
      where = 0;
      break;
    default:
      return sum;
    }
}
int main(int argc, char **argv) {
  int steps[] = {0, 0, argc, 3};
  return run(steps);
}
";
    let ends = "#include <stdlib.h>\nvoid end(int code) {\n  exit(code & 4);\n}\n";
    for level in ["-O0", "-O2"] {
        let place = Place::with(&[("run.c", source), ("end.c", ends)]);
        place.trodden(&format!("cc {level} -g run.c end.c -o counted"));
        place.record("counted");
        let trace = String::from_utf8(must(place.command(trodden()).args(["export", "lcov", "run.trodden"])).stdout).unwrap();
        let lines = parse_tracefile(&trace, "run.c").lines;
        assert_eq!([7, 10, 11].map(|line| lines.get(&line).copied()), [Some(2), Some(1), Some(1)], "{level}: {lines:?}");
        assert!((12..=16).all(|line| lines.get(&line).is_none_or(|n| *n == 0)), "{level}: {lines:?}");
        assert_eq!(parse_tracefile(&trace, "end.c").lines.get(&3), Some(&1), "{level}");
    }
}

#[test]
fn lines_after_a_call_left_by_longjmp_are_not_executed() {
    let source = "\
#include <setjmp.h>
jmp_buf back;
volatile int before, behind;
void leave(void);
__attribute__((noinline)) void body(int i) {
  if (i > 3) {
    before++;
    leave();
    behind++;
  }
}
int main(void) {
  for (volatile int i = 0; i < 10; i++)
    if (!setjmp(back))
      body(i);
  return behind;
}
";
    let leave = "#include <setjmp.h>\nextern jmp_buf back;\nvoid leave(void) {\n  longjmp(back, 1);\n}\n";
    for level in ["-O0", "-O1", "-O2"] {
        let place = Place::with(&[("run.c", source), ("leave.c", leave)]);
        place.trodden(&format!("cc {level} -g run.c leave.c -o counted"));
        place.record("counted");
        let trace = String::from_utf8(must(place.command(trodden()).args(["export", "lcov", "run.trodden"])).stdout).unwrap();
        let lines = parse_tracefile(&trace, "run.c").lines;
        assert_eq!([7, 8, 9].map(|line| lines.get(&line).copied()), [Some(6), Some(6), Some(0)], "{level}: {lines:?}");
        let report = String::from_utf8(place.trodden("report run.trodden").stdout).unwrap();
        assert!(report.contains("body  stopped at a call in lines 7-8"), "{level}: {report}");
    }
}

#[test]
fn header_has_one_name_however_it_is_included() {
    let header = "static inline int twice(int a) {\n  return a * 2;\n}\n";
    let user = |name: &str, path: &str| format!("#include \"{path}\"\nint {name}(int a) {{\n  return twice(a);\n}}\n");
    let main = "int one(int), two(int);\nint main(int argc, char **argv) {\n  return one(argc) - two(argc);\n}\n";
    let (one, two) = (user("one", "./twice.h"), user("two", "sub/../twice.h"));
    let place = Place::with(&[("twice.h", header), ("one.c", &one), ("two.c", &two), ("main.c", main), ("sub/empty.h", "")]);
    place.trodden("cc -O1 -g one.c two.c main.c -o counted");
    place.record("counted");
    let trace = String::from_utf8(must(place.command(trodden()).args(["export", "lcov", "run.trodden"])).stdout).unwrap();
    let names: Vec<&str> = trace.lines().filter(|l| l.starts_with("SF:") && l.ends_with("twice.h")).collect();
    assert_eq!(names.len(), 1, "{trace}");
    assert_eq!(parse_tracefile(&trace, "twice.h").lines.get(&2), Some(&2), "{trace}");
}

#[test]
fn map_marks_blocks_that_stop_and_lines_with_only_a_jump() {
    let source = "\
#include <stdlib.h>
int main(int argc, char **argv) {
  if (argc > 5)
    abort();
  int sum = 0;
  switch (argc) {
  case 1:
    sum = atoi(argv[0]);
    break;
  default:
    sum = 2;
  }
  return sum;
}
";
    let place = Place::with(&[("main.c", source)]);
    place.trodden("cc -O2 -g main.c -o counted");
    let image = trodden_unit::InstrumentedImage::read(&fs::read(place.path("counted")).unwrap()).unwrap();
    let graphs = image.frames[0].map().unwrap().line_graphs;
    let blocks = &graphs.functions.iter().find(|f| f.name == "main").unwrap().blocks;
    assert_eq!(blocks.iter().filter(|b| b.stops).map(|b| b.lines.clone()).collect::<Vec<_>>(), [[4]], "{blocks:?}");
    let jump = blocks.iter().find(|b| b.lines.contains(&8)).unwrap().jump;
    assert_eq!((jump, blocks.iter().any(|b| b.lines.contains(&9))), (Some(9), false), "{blocks:?}");
}
