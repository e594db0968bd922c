//! Coverage computed from paths equals the coverage that the compiler's own instrumentation measures. All counts that `llvm-cov export`
//! prints are compared.
// Length: all forms of coverage are compared on the same programs.

use crate::place::{Place, cargo_trodden, must, trodden};
use serde_json::Value;
use std::process::Command;

const PROGRAMS: [(&str, &str); 6] = [
    ("plain.c", include_str!("../coverage/plain.c")),
    ("jump.c", include_str!("../coverage/jump.c")),
    ("cxx.cc", include_str!("../coverage/cxx.cc")),
    ("threads.c", include_str!("../coverage/threads.c")),
    ("killed.c", include_str!("../coverage/killed.c")),
    ("decisions.c", include_str!("../coverage/decisions.c")),
];

/// The program for which conditions (MC/DC) are compared as well.
const DECISIONS_FILE: &str = "decisions.c";

/// Returns the JSON that `llvm-cov export` writes for a program and a profile: all regions, branches and functions with their counts.
fn export_llvm_coverage(place: &Place, program: &str, profile: &str) -> Value {
    let text = place.tool("llvm-cov-22", &format!("export {program} -instr-profile={profile}")).stdout;
    let mut all: Value = serde_json::from_slice(&text).unwrap();
    all["data"].take()
}

/// Runs the compiler's own coverage build. Its counters are in a shared mapping of the file, so that forks and kills lose no counts.
fn run_reference_build(place: &Place, compiler: &str, options: &str, source: &str) {
    let counting = "-fprofile-instr-generate -fcoverage-mapping -fprofile-update=atomic -mllvm -runtime-counter-relocation";
    let counting = if source == DECISIONS_FILE { format!("{counting} -fcoverage-mcdc") } else { counting.to_owned() };
    place.tool(compiler, &format!("{options} {counting} {source} -o reference"));
    let raw = format!("%c{}", place.path("reference.profraw").display());
    // Some programs end with a status other than 0, which `must` would reject.
    place.command(place.path("reference")).env("LLVM_PROFILE_FILE", raw).output().unwrap();
    place.tool("llvm-profdata-22", "merge reference.profraw -o reference.profdata");
}

fn check_file(source: &str, level: &str) {
    let (name, text) = PROGRAMS.iter().find(|(name, _)| *name == source).unwrap();
    check_program(name, text, level);
}

/// Compares trodden's coverage of a program with that of the compiler's own build. Returns a test folder in which `own` is the program
/// built with trodden's coverage.
fn check_program(name: &str, text: &str, level: &str) -> Place {
    let place = Place::with(&[(name, text)]);
    let (compiler, driver) = if name.ends_with(".cc") { ("clang++-22", "c++") } else { ("clang-22", "cc") };
    let options = format!("{level} -w -pthread");
    run_reference_build(&place, compiler, &options, name);
    let option = if name == DECISIONS_FILE { "--trodden=coverage=mcdc" } else { "--trodden=coverage" };
    place.trodden(&format!("{driver} {option} {options} {name} -o own"));
    place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]).output().unwrap();
    place.trodden("export profdata run.trodden -o own.profdata");
    let (llvm, own) =
        (export_llvm_coverage(&place, "reference", "reference.profdata"), export_llvm_coverage(&place, "own", "own.profdata"));
    assert!(llvm[0]["functions"].as_array().unwrap().iter().any(|f| f["count"].as_u64() > Some(0)), "{name} {level}: nothing was executed");
    assert_eq!(llvm, own, "{name} {level}");
    assert_eq!(llvm[0]["totals"]["mcdc"]["covered"].as_u64() > Some(0), name == DECISIONS_FILE, "{name} {level}");
    let text = place.trodden("export llvm-json run.trodden --like llvm-cov").stdout;
    assert_eq!(llvm, serde_json::from_slice::<Value>(&text).unwrap()["data"], "{name} {level}: coverage export");
    place
}

#[test]
fn c_coverage_equals_llvms_without_optimisation() {
    check_file("plain.c", "-O0");
}

#[test]
fn c_coverage_equals_llvms_with_optimisation() {
    check_file("plain.c", "-O2");
}

#[test]
fn frames_that_do_not_return_have_llvms_counts() {
    check_file("jump.c", "-O2");
}

#[test]
fn cxx_coverage_equals_llvms_without_optimisation() {
    check_file("cxx.cc", "-O0");
}

#[test]
fn cxx_coverage_equals_llvms_with_optimisation() {
    check_file("cxx.cc", "-O2");
}

#[test]
fn coverage_of_threads_equals_llvms() {
    check_file("threads.c", "-O2");
}

/// Returns, for each region and for each side of each branch in a function, whether it was executed.
fn find_executed_sides(function: &Value) -> Vec<bool> {
    let all = |list: &str, counts: std::ops::Range<usize>| -> Vec<bool> {
        let each = function[list].as_array().unwrap().iter().flat_map(|one| one.as_array().unwrap()[counts.clone()].iter());
        each.map(|count| count.as_u64() > Some(0)).collect()
    };
    [all("regions", 4..5), all("branches", 4..6)].concat()
}

/// LLVM is not exact here in either of its modes. In merging mode (`%m`), it knows which code was executed, but a child's counts also
/// include its parent's counts before the fork. In continuous mode, it counts everything once, but computes 0 for a parent's code after
/// `if (fork() == 0)`. trodden's coverage must agree with merging mode about what was executed, and with continuous mode about counts,
/// except in functions that child processes continue.
fn check_forked_processes(level: &str) {
    let place = Place::with(&[("forks.c", include_str!("../coverage/forks.c"))]);
    run_reference_build(&place, "clang-22", level, "forks.c");
    must(place.command(place.path("reference")).env("LLVM_PROFILE_FILE", place.path("each-%m.profraw")));
    let each = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let each = each.into_iter().find(|name| name.starts_with("each-")).unwrap();
    place.tool("llvm-profdata-22", &format!("merge {each} -o each.profdata"));
    place.trodden(&format!("cc --trodden=coverage {level} forks.c -o own"));
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]));
    let output = place.trodden("export llvm-json run.trodden --like llvm-cov");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("returned twice"));
    let own = serde_json::from_slice::<Value>(&output.stdout).unwrap()["data"].take();
    let [once, each] = ["reference", "each"].map(|name| export_llvm_coverage(&place, "reference", &format!("{name}.profdata")));
    let [own, once, each] = [&own, &once, &each].map(|all| all[0]["functions"].as_array().unwrap());
    assert_eq!(own.len(), 4);
    for ((own, once), each) in own.iter().zip(once).zip(each) {
        let name = own["name"].as_str().unwrap();
        assert_eq!((&own["name"], find_executed_sides(own)), (&each["name"], find_executed_sides(each)), "{name}");
        if name.ends_with("work") {
            assert_eq!(own, once);
        }
        assert!(own["count"].as_u64() <= each["count"].as_u64(), "{name}");
    }
    // The function is called once and continued by four processes.
    let serve = own.iter().find(|f| f["name"].as_str().unwrap().ends_with("serve")).unwrap();
    assert_eq!(serve["count"], 1 + 4);
}

#[test]
fn forked_processes_are_counted_without_optimisation() {
    check_forked_processes("-O0");
}

#[test]
fn forked_processes_are_counted_with_optimisation() {
    check_forked_processes("-O2");
}

/// Without trodden's precautions, LLVM would duplicate the code of all following cases into each case, and then compare all duplicates to
/// merge them again.
#[test]
fn cases_that_fall_through_are_not_duplicated() {
    let cases: String = (0..60).map(|n| format!("  case {n}: sum += {n};\n")).collect();
    let text = format!(
        "static volatile unsigned sum;\n__attribute__((noinline)) void add(unsigned n) {{\n  switch (n % 60) {{\n{cases}  \
        default: sum++;\n  }}\n}}\nint main(void) {{ for (int i = 0; i < 100; i++) add(i * i); return 0; }}\n"
    );
    let place = check_program("cases.c", &text, "-O1");
    place.trodden("cc -O1 -w cases.c -o counted");
    let size = |image: &str| -> u64 {
        let symbols = String::from_utf8(place.tool("nm", &format!("-S {image}")).stdout).unwrap();
        let add = symbols.lines().find(|line| line.ends_with(" add")).expect("nm lists the function");
        u64::from_str_radix(add.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    let (own, counted) = (size("own"), size("counted"));
    assert!(own < counted * 3 / 2, "{own} bytes, {counted} without coverage");
}

/// LLVM knows the executions of a child that ends with `_exit` only in continuous mode.
#[test]
fn parents_code_after_a_fork_is_executed() {
    const PARENT_PROGRAM: &str = "#include <sys/wait.h>\n#include <unistd.h>\nint main(int n, char **v) {\n  pid_t child = fork();\n  \
        if (child == 0) {\n    _exit(0);\n  } else {\n    waitpid(child, 0, 0);\n  }\n  return 0;\n}\n";
    let place = Place::with(&[("parent.c", PARENT_PROGRAM)]);
    place.trodden("cc --trodden=coverage -O1 parent.c -o own");
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]));
    let lines = String::from_utf8(place.trodden("export lcov run.trodden").stdout).unwrap();
    for line in ["DA:4,2", "DA:6,1", "DA:8,1", "DA:10,1"] {
        assert!(lines.lines().any(|l| l == line), "{line}: {lines}");
    }
}

/// In LLVM's arithmetic, the code after the second return has the count 0: one entry minus one first return.
#[test]
fn warning_names_functions_with_calls_that_return_twice() {
    const RETURNS_TWICE_PROGRAM: &str = "#include <setjmp.h>\nstatic jmp_buf back;\n__attribute__((noinline)) static void away(int n) {\n  \
        if (n < 2) longjmp(back, 1);\n}\nint main(int n, char **v) {\n  if (setjmp(back) == 0) {\n    away(n);\n  }\n  return 0;\n}\n";
    let place = Place::with(&[("back.c", RETURNS_TWICE_PROGRAM)]);
    place.trodden("cc --trodden=coverage -O1 back.c -o own");
    let warned = |arguments: &[&str]| {
        must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]).args(arguments));
        String::from_utf8(place.trodden("coverage report run.trodden").stderr).unwrap().contains("a call in main returned twice")
    };
    assert!(warned(&[]) && !warned(&["no jump"]));
}

/// All export formats use source names. With `--like llvm-cov`, they use linkage names as `llvm-cov export` does.
#[test]
fn exports_use_source_names() {
    const TEMPLATE_PROGRAM: &str = "namespace a { template <class T> struct Box {\n  T t;\n  Box(T x) : t(x) {}\n}; }\n\
        static int local(int n) { return n + 1; }\nint main() { a::Box<int> b(1); a::Box<long> c(1); return local(1) - 2; }\n";
    let place = Place::with(&[("box.cc", TEMPLATE_PROGRAM)]);
    place.cxx("--trodden=coverage -O1 box.cc -o own");
    place.trodden("record --no-store -o run.trodden -- ./own");
    let names = |options: &str| -> (Vec<String>, Vec<String>) {
        let json: Value = serde_json::from_str(&read_output(&place, &format!("export llvm-json run.trodden {options}"))).unwrap();
        let functions = json["data"][0]["functions"].as_array().unwrap();
        let lcov = read_output(&place, &format!("export lcov run.trodden {options}"));
        let lcov = lcov.lines().filter_map(|line| Some(line.strip_prefix("FNDA:")?.to_owned()));
        (functions.iter().map(|f| f["name"].as_str().unwrap().to_owned()).collect(), lcov.collect())
    };
    let readable = ["main", "box.cc:local(int)", "a::Box<int>::Box(int)", "a::Box<long>::Box(long)"];
    let linkage = ["main", "box.cc:_ZL5locali", "_ZN1a3BoxIiEC2Ei", "_ZN1a3BoxIlEC2El"];
    for (expected, options) in [(readable, ""), (linkage, "--like llvm-cov")] {
        let (json, lcov) = names(options);
        assert_eq!(json, expected);
        assert_eq!(lcov, expected.map(|name| format!("1,{name}")));
    }
}

#[test]
fn coverage_of_a_killed_process_equals_llvms() {
    check_file("killed.c", "-O2");
}

#[test]
fn mcdc_conditions_equal_llvms_without_optimisation() {
    check_file(DECISIONS_FILE, "-O0");
}

#[test]
fn mcdc_conditions_equal_llvms_with_optimisation() {
    check_file(DECISIONS_FILE, "-O2");
}

/// Returns the line counts of the recorded run as exported to lcov, and the output of `coverage show` with its branches.
fn read_lines_of_run(place: &Place, options: &str) -> (std::collections::BTreeMap<u32, u64>, String) {
    let lcov = read_output(place, &format!("export lcov run.trodden {options}"));
    let numbers = lcov.lines().filter_map(|line| line.strip_prefix("DA:")?.split_once(','));
    let lines = numbers.map(|(line, count)| (line.parse().unwrap(), count.parse().unwrap())).collect();
    (lines, read_output(place, &format!("coverage show run.trodden --conditions {options}")))
}

fn check_code_after_calls_that_do_not_return(level: &str) {
    const LEAVES_PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\nstatic void (*volatile leave)(int) = exit;\nint main(void) {\n  \
        puts(\"before\");\n  leave(0);\n  puts(\"after\");\n  for (int i = 0; i < 3; i++)\n    puts(\"more\");\n\n  return 0;\n}\n";
    let place = Place::with(&[("leave.c", LEAVES_PROGRAM)]);
    place.cc(&format!("--trodden=coverage {level} leave.c -o own"));
    place.trodden("record --no-store -o run.trodden -- ./own");
    let (lines, _) = read_lines_of_run(&place, "");
    for (line, executed) in [(4, true), (5, true), (6, true), (7, false), (8, false), (9, false), (11, false)] {
        assert_eq!(lines[&line] > 0, executed, "{level} line {line}: {lines:?}");
    }
    let (lines, _) = read_lines_of_run(&place, "--like llvm-cov");
    assert_eq!((lines[&7], lines[&9], lines[&11]), (1, 0, 1), "{level}");
    // The number of regions depends only on the source, not on what was executed.
    let regions = |options: &str| -> Value {
        let report: Value = serde_json::from_str(&read_output(&place, &format!("coverage report run.trodden --json {options}"))).unwrap();
        report["total"]["regions"]["count"].clone()
    };
    assert_eq!(regions(""), regions("--like llvm-cov"));
}

#[test]
fn code_after_exit_is_unexecuted_without_optimisation() {
    check_code_after_calls_that_do_not_return("-O0");
}

#[test]
fn code_after_exit_is_unexecuted_with_optimisation() {
    check_code_after_calls_that_do_not_return("-O2");
}

/// The unexecuted code ends with the brace before `else`, on the same line.
#[test]
fn else_block_that_begins_on_the_last_line_of_unexecuted_code_is_executed() {
    const ELSE_PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\nstatic void (*volatile leave)(int) = exit;\n\
        static void step(int last) {\n  if (last) {\n    leave(0);\n    puts(\"after\");\n  } else {\n    putchar('o');\n  }\n  \
        puts(\"end\");\n}\nint main(void) {\n  step(0);\n  step(1);\n  return 0;\n}\n";
    for level in ["-O0", "-O2"] {
        let place = Place::with(&[("other.c", ELSE_PROGRAM)]);
        place.cc(&format!("--trodden=coverage {level} other.c -o own"));
        place.trodden("record --no-store -o run.trodden -- ./own");
        let (lines, _) = read_lines_of_run(&place, "");
        let executed: Vec<u32> = lines.iter().filter(|(_, count)| **count > 0).map(|(line, _)| *line).collect();
        assert!([4, 5, 6, 9, 11, 13, 14, 15].iter().all(|line| executed.contains(line)), "{level}: {lines:?}");
        assert_eq!((lines[&7], lines[&16]), (0, 0), "{level}: {lines:?}");
    }
}

/// Being killed inside the last loop does not count as leaving the loop.
#[test]
fn loop_in_which_the_program_was_killed_has_no_executed_exit() {
    const WAITING_PROGRAM: &str = "#include <signal.h>\n#include <unistd.h>\nstatic volatile int stop;\nint main(void) {\n  \
        for (int i = 0; i < 3; i++)\n    write(1, \"x\", 1);\n  while (!stop)\n    kill(getpid(), SIGKILL);\n  return 0;\n}\n";
    for level in ["-O0", "-O2"] {
        let place = Place::with(&[("wait.c", WAITING_PROGRAM)]);
        place.cc(&format!("--trodden=coverage {level} wait.c -o own"));
        place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]).output().unwrap();
        let (lines, branches) = read_lines_of_run(&place, "");
        assert!(lines[&6] == 3 && lines[&8] == 1 && lines[&9] == 0, "{level}: {lines:?}");
        assert!(branches.contains("Branch (7:10): [True: 1, False: 0]"), "{level}: {branches}");
        assert!(branches.contains("Branch (5:19): [True: 3, False: 1]"), "{branches}");
    }
}

/// For an object whose destructor is empty, optimised code calls the base class's destructor directly.
#[test]
fn executed_empty_destructor_is_covered() {
    const DERIVED_CLASS_PROGRAM: &str = "int g;\nstruct B { virtual ~B(); };\nstruct D : B { ~D() override; };\nB::~B() { g++; \
        }\nD::~D() {}\n\
        int main() {\n  { D d; }\n  return g - 1;\n}\n";
    let place = Place::with(&[("derived.cc", DERIVED_CLASS_PROGRAM)]);
    place.cxx("--trodden=coverage -O2 derived.cc -o own");
    place.trodden("record --no-store -o run.trodden -- ./own");
    let (lines, _) = read_lines_of_run(&place, "");
    assert_eq!((lines[&4], lines[&5]), (1, 1), "{lines:?}");
}

fn expect_error(place: &Place, arguments: &str) -> String {
    let output = place.command(trodden()).args(arguments.split_whitespace()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

fn read_output(place: &Place, arguments: &str) -> String {
    String::from_utf8(place.trodden(arguments).stdout).unwrap()
}

#[test]
fn suites_show_what_each_test_adds() {
    let place = Place::with(&[("parse.c", include_str!("../coverage/parse.c")), ("tests.txt", TEST_LIST)]);
    place.trodden("build --coverage -- clang -O2 parse.c -o parse");
    place.trodden("suite run tests --commands tests.txt");
    let report = read_output(&place, "coverage report tests --functions --combinations 1");
    assert!(
        report.contains("parse     14/14 100.00%") && report.contains("8 of 54") && report.contains("never together: path "),
        "{report}"
    );
    let added: Value = serde_json::from_str(&read_output(&place, "suite order tests --by lines --json")).unwrap();
    let lines = |test: &Value| test["adds_lines"].as_object().unwrap().values().map(|l| l.as_array().unwrap().len()).sum::<usize>();
    let found: Vec<_> =
        added["tests"].as_array().unwrap().iter().map(|t| (t["test"].as_str().unwrap(), lines(t), t["adds_paths"].as_u64())).collect();
    assert_eq!(found, [("minus", 20, Some(1)), ("big", 1, Some(3)), ("bad", 1, Some(1)), ("plain", 0, Some(3))]);
    assert_eq!(read_output(&place, "suite order tests --by lines --names"), "minus\nbig\nbad\nplain\n");
    assert_eq!(read_output(&place, "suite order tests --by lines --file parse.c"), read_output(&place, "suite order tests --by lines"));
    assert!(expect_error(&place, "suite order tests --by lines --file nowhere").contains("nowhere"));
    let difference = read_output(&place, "coverage report tests --baseline 1");
    assert!(difference.contains("only in 1: 0 lines, 0 paths") && difference.contains("parse.c: 7-9, 12, 16\n"), "{difference}");
    for (arguments, status) in [
        ("tests --fail-under lines=100,regions=1", 0),
        ("1 --fail-under lines=77.3", 1),
        ("1 --fail-under lines=77.2", 0),
        ("1 --fail-under lines=77.2,functions=100,branches=99", 1),
        ("tests --baseline 1 --fail-under baseline", 0),
        ("1 --baseline tests --fail-under baseline", 1),
        ("1 --baseline tests", 0),
        ("1 --baseline tests --fail-under lines=1", 2),
        ("1 --fail-under baseline", 2),
    ] {
        let output = place.command(trodden()).args(["coverage", "report"]).args(arguments.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments}: {output:?}");
    }
    let lcov = read_output(&place, "export lcov tests");
    assert!(lcov.contains("DA:16,1\n") && lcov.contains("LF:22\nLH:22\n"), "{lcov}");
    place.trodden("coverage show tests --html pages --conditions");
    assert!(std::fs::read_to_string(place.path("pages/index.html")).unwrap().contains("parse.c"));
    assert!(std::fs::read_to_string(place.path("pages/paths.html")).unwrap().contains("<td>8 of 54</td>"));
}

const TEST_LIST: &str = "plain\t./parse 1 2 3\nminus\t./parse -5\nbig\t./parse 123456\nbad\t./parse 7x\n";

#[test]
fn changed_lines_are_distinguished() {
    let place = Place::with(&[("parse.c", include_str!("../coverage/parse.c"))]);
    let git = |arguments: &str| place.tool("git", &format!("-c user.name=a -c user.email=a@b {arguments}"));
    git("init -q .");
    git("add parse.c");
    git("commit -q -m first");
    let changed = include_str!("../coverage/parse.c").replace("value > 100", "value > 99").replace("sign = -1", "sign = 0 - 1");
    place.write("parse.c", &changed);
    place.cc("--trodden=coverage -O2 parse.c -o parse");
    place.trodden("record -- ./parse 5");
    let report = read_output(&place, "coverage report --changed-since HEAD");
    assert!(report.contains("1/2  50.00%") && report.contains("not executed: line 7\n"), "{report}");
}

/// The counts in the margin come from the coverage mapping, so no executed line may show 0.
#[test]
fn annotated_lines_have_the_counts_of_the_mapping() {
    let place = Place::with(&[("cxx.cc", include_str!("../coverage/cxx.cc"))]);
    place.cxx("--trodden=coverage -O2 cxx.cc -o own");
    place.trodden("record --no-store -o run.trodden -- ./own");
    let lcov = read_output(&place, "export lcov run.trodden");
    let known: std::collections::BTreeMap<u64, u64> = lcov
        .lines()
        .filter_map(|l| l.strip_prefix("DA:")?.split_once(','))
        .map(|(l, n)| (l.parse().unwrap(), n.parse().unwrap()))
        .collect();
    let page: Value = serde_json::from_str(&read_output(&place, "annotate main run.trodden --json")).unwrap();
    let lines = page["source"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 29, "the lines of `main`");
    for line in lines {
        let count = line["count"].as_str().map(|c| c.parse().unwrap()).or(line["count"].as_u64());
        assert_eq!(count, known.get(&line["line"].as_u64().unwrap()).copied(), "{line}");
    }
}

#[test]
fn program_that_changed_since_it_ran_is_rejected() {
    let place = Place::with(&[("plain.c", include_str!("../coverage/plain.c"))]);
    place.cc("--trodden=coverage -O1 -w plain.c -o own");
    place.trodden("record --no-store -o run.trodden -- ./own");
    std::fs::rename(place.path("own"), place.path("moved")).unwrap();
    assert!(expect_error(&place, "coverage report run.trodden").contains("own, because the file no longer exists"));
    place.trodden("coverage report run.trodden --object moved");
    place.cc("--trodden=coverage -O2 -w plain.c -o own");
    assert!(expect_error(&place, "coverage report run.trodden").contains("own was rebuilt after it ran"));
    assert!(expect_error(&place, "coverage report run.trodden --object moved --object own").contains("own is not the recorded program"));
    // A library that no recorded program loaded is reported as not executed.
    std::fs::write(place.path("idle.c"), "int f(int x) {\n  return x ? 1 : 2;\n}\nint main(void) { return f(0); }\n").unwrap();
    place.cc("--trodden=coverage -O1 -w idle.c -o idle");
    let with_idle = read_output(&place, "coverage report run.trodden --object moved --object idle");
    assert!(with_idle.lines().any(|line| line.contains("idle.c") && line.contains("0/4")), "{with_idle}");
    assert!(
        expect_error(&place, "coverage show run.trodden --object moved --function nothing_so_called")
            .contains("no function matches `nothing_so_called`")
    );
    place.tool("llvm-objcopy-22", "--remove-section=__llvm_covmap moved own");
    assert!(expect_error(&place, "coverage report run.trodden").contains("own has no section __llvm_covmap"));
    // Coverage does not need the sections that `strip` removes.
    place.tool("strip", "moved -o own");
    place.trodden("coverage report run.trodden");
    std::fs::write(place.path("own"), &std::fs::read(place.path("moved")).unwrap()[..3000]).unwrap();
    assert!(expect_error(&place, "coverage report run.trodden").contains("own is corrupt (rebuild it with --coverage"));
    place.cc("-O1 -w plain.c -o without");
    place.trodden("record --no-store -o without.trodden -- ./without");
    assert!(expect_error(&place, "coverage report without.trodden").contains("`trodden build --coverage -- ...`"));
    let refused = expect_error(&place, "cc --trodden=coverage -fprofile-instr-generate -fcoverage-mapping plain.c");
    assert!(refused.contains("-fprofile-instr-generate cannot be combined with `--coverage`"), "{refused}");
}

/// Removes the variables that cargo sets for tests, because they would change what the tested command does.
fn remove_cargos_variables(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO") && n != "CARGO_HOME") {
        command.env_remove(name);
    }
    ["RUSTC_WRAPPER", "RUSTFLAGS", "OUT_DIR"].into_iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// Removes parts of names that differ between builds: cargo uses different hashes if flags differ.
fn remove_hashes(mut data: Value) -> Value {
    let functions = data[0]["functions"].as_array_mut().unwrap();
    functions.iter_mut().for_each(|f| f["name"] = Value::Null);
    functions.sort_by_key(Value::to_string);
    data
}

#[test]
fn rust_coverage_equals_llvms() {
    let manifest = "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let place = Place::with(&[("Cargo.toml", manifest), ("src/main.rs", include_str!("../coverage/subject.rs"))]);
    let target = "x86_64-unknown-linux-gnu";
    must(remove_cargos_variables(place.command(cargo_trodden())).args(["build", "--release", "--coverage"]));
    let program = format!("target/trodden/{target}/release/subject");
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--"]).arg(place.path(&program)));
    let arguments = ["build", "--release", "--target", target, "--target-dir", "reference"];
    must(remove_cargos_variables(place.command("cargo")).args(arguments).env("RUSTFLAGS", "-Cinstrument-coverage"));
    let reference = format!("reference/{target}/release/subject");
    must(place.command(place.path(&reference)).env("LLVM_PROFILE_FILE", "reference.profraw"));
    place.tool("llvm-profdata-22", "merge reference.profraw -o reference.profdata");
    place.trodden("export profdata run.trodden -o own.profdata");
    let llvm = remove_hashes(export_llvm_coverage(&place, &reference, "reference.profdata"));
    assert_eq!(llvm, remove_hashes(export_llvm_coverage(&place, &program, "own.profdata")));
    let report = String::from_utf8(place.trodden("coverage report run.trodden").stdout).unwrap();
    assert!(report.contains("main.rs") && !report.contains("/rustc/"), "{report}");
}

#[test]
fn functions_inlined_into_other_crates_are_executed() {
    let package = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n{rest}");
    let subject = package("subject", "[workspace]\n[dependencies]\nmiddle.path = \"middle\"\n");
    let place = Place::with(&[
        ("Cargo.toml", &subject),
        ("src/main.rs", "fn main() {\n    (0..3).for_each(|n| println!(\"{}\", middle::four(n)));\n}\n"),
        ("middle/Cargo.toml", &package("middle", "[dependencies]\nlibrary.path = \"../library\"\n")),
        ("middle/src/lib.rs", "pub fn four(n: u32) -> u32 {\n    library::twice(n) * 2\n}\n"),
        ("library/Cargo.toml", &package("library", "")),
        ("library/src/lib.rs", "#[inline(always)]\npub fn twice(n: u32) -> u32 {\n    let two = 2;\n    n * two\n}\n"),
    ]);
    must(remove_cargos_variables(place.command(cargo_trodden())).args(["build", "--coverage"]));
    let program = place.path("target/trodden/x86_64-unknown-linux-gnu/debug/subject");
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--"]).arg(program));
    let tracefile = String::from_utf8(place.trodden("export lcov run.trodden").stdout).unwrap();
    let library = tracefile.split("end_of_record").find(|file| file.contains("library/src/lib.rs")).unwrap();
    assert!(library.contains("DA:3,3\n"), "{library}");
}

/// Options rename folders either in the coverage mapping or in debug information, but not in both.
#[test]
fn files_in_renamed_folders_have_their_paths() {
    let place = Place::with(&[
        ("src/one.c", "#include \"part.c\"\nint main(int n, char **v) { return n > 5 && v ? 1 : work(n) == 77; }\n"),
        ("src/part.c", "__attribute__((noinline)) static int work(int n) { if (n > 1) return 2; return 1; }\n"),
    ]);
    let here = place.path("");
    let here = here.display().to_string();
    let here = here.trim_end_matches('/');
    let mut reports = Vec::new();
    for option in ["", "-fcoverage-prefix-map=HERE=.", "-fcoverage-prefix-map=HERE=/usr/src", "-fdebug-prefix-map=HERE=/usr/src"] {
        place.cc(&format!("--trodden=coverage -O1 -g {} {here}/src/one.c -o prog", option.replace("HERE", here)));
        place.trodden("record --no-store -o run.trodden -- ./prog");
        let report = |more: &str| read_output(&place, &format!("coverage report run.trodden {more}"));
        reports.push((report(""), report("--functions")));
    }
    assert!(reports[0].0.contains("paths taken of possible") && reports[0].0.contains("part.c"), "{}", reports[0].0);
    for report in &reports {
        assert_eq!(report, &reports[0]);
    }
}
