//! Coverage of programs with calls that do not return. The counts of lines and of branch sides are compared with counters in the program.

use crate::place::{Place, must, trodden};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Execution counts by line, and counts of both sides of each branch by line.
type Counted = (BTreeMap<u64, u64>, BTreeMap<u64, (u64, u64)>);

fn read_counts(place: &Place, options: &str) -> Counted {
    let lcov = place.trodden(&format!("export lcov run.trodden {options}"));
    let lcov = String::from_utf8(lcov.stdout).unwrap();
    let lines = lcov.lines().filter_map(|line| line.strip_prefix("DA:")?.split_once(','));
    let lines = lines.map(|(line, count)| (line.parse().unwrap(), count.parse().unwrap())).collect();
    let json = place.trodden(&format!("export llvm-json run.trodden {options}")).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let branches = json["data"][0]["files"][0]["branches"].as_array().unwrap().iter();
    let number = |branch: &Value, at: usize| branch[at].as_u64().unwrap();
    (lines, branches.map(|b| (number(b, 0), (number(b, 4), number(b, 5)))).collect())
}

fn build_and_record(name: &str, text: &str, level: &str) -> Place {
    let place = Place::with(&[(name, text)]);
    match name.ends_with(".cc") {
        true => place.cxx(&format!("--trodden=coverage -w {level} {name} -o own")),
        false => place.cc(&format!("--trodden=coverage -w {level} {name} -o own")),
    };
    // Some programs end with a status other than 0, which `must` would reject.
    place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]).output().unwrap();
    place
}

const LEVELS: [&str; 3] = ["-O0", "-O1", "-O2"];

/// `step` does not return from 3 of 10 calls.
#[test]
fn lines_after_a_call_count_only_its_returns() {
    const SOMETIMES_RETURNS_PROGRAM: &str = "#include <setjmp.h>\n#include <stdio.h>\nstatic jmp_buf back;\nstatic volatile int n;\n\
        __attribute__((noinline)) static void step(void) { if (n % 4 == 1) longjmp(back, 1); }\n\
        __attribute__((noinline)) static void work(int i) {\n  puts(\"before\");\n  step();\n  if (i & 1)\n    puts(\"odd\");\n  else\n    \
        puts(\"even\");\n  puts(\"after\");\n}\nint main(void) {\n  for (n = 0; n < 10; n++)\n    if (!setjmp(back))\n      work(n);\n}\n";
    for level in LEVELS {
        let place = build_and_record("some.c", SOMETIMES_RETURNS_PROGRAM, level);
        let (lines, branches) = read_counts(&place, "");
        // The calls with 1, 5 and 9 do not return.
        let expected = [(7, 10), (8, 10), (9, 7), (10, 2), (12, 5), (13, 7), (14, 7)];
        assert_eq!(expected.map(|(line, _)| (line, lines[&line])), expected, "{level}");
        assert_eq!(branches[&9], (2, 5), "{level}");
        let (lines, _) = read_counts(&place, "--like llvm-cov");
        assert_eq!((lines[&9], lines[&13]), (10, 10), "{level}");
    }
}

/// One of two instances of a template throws.
#[test]
fn instances_of_a_template_have_separate_counts() {
    const TWO_INSTANCES_PROGRAM: &str = "#include <cstdio>\ntemplate <int N> __attribute__((noinline)) void work(int i) \
        {\n  std::puts(\"before\");\n  \
        if (N && i % 2)\n    throw i;\n  std::puts(\"between\");\n}\n\
        template <int N> __attribute__((noinline)) void outer(int i) {\n  work<N>(i);\n  std::puts(\"after\");\n}\n\
        int main() {\n  for (int i = 0; i < 6; i++)\n    try {\n      outer<0>(i);\n      outer<1>(i);\n      std::puts(\"both\");\n    \
        } catch (int) {\n      std::puts(\"caught\");\n    }\n}\n";
    for level in LEVELS {
        let (lines, _) = read_counts(&build_and_record("both.cc", TWO_INSTANCES_PROGRAM, level), "");
        let expected = [(3, 12), (5, 3), (6, 9), (9, 12), (10, 9), (15, 6), (16, 6), (17, 3), (19, 3)];
        assert_eq!(expected.map(|(line, _)| (line, lines[&line])), expected, "{level}");
    }
}

/// Loops of each kind are left by a `longjmp` from a call in their body, in their condition or, if they have one, in their step.
#[test]
fn loops_left_by_longjmp_have_exact_counts() {
    const LOOPS_PROGRAM: &str = "#include <setjmp.h>\nstatic jmp_buf back;\nstatic volatile int n, stop, sink;\n\
        __attribute__((noinline)) static int step(int v) { if (n++ == stop) longjmp(back, 1); return v; }\n\
        __attribute__((noinline)) static void work(void) {\n  for (int i = 0;\n       step(i) < 2;\n       i = step(i) + 1)\n  { \
        step(i);\n    sink++;\n  }\n  int k = 0;\n  do {\n    step(k);\n    sink++;\n  } while (step(++k) < 2);\n  \
        while (step(k--) > 0) {\n    step(k);\n    sink++;\n  }\n  sink++;\n}\n\
        int main(void) {\n  for (stop = 0; stop < 20; stop++) {\n    n = 0;\n    if (!setjmp(back))\n      work();\n  }\n}\n";
    // Calls to `step` in order. In the `for` loop: condition, body, step, condition, body, step, condition. In the `do` loop: body,
    // condition, body, condition. In the `while` loop: condition, body, condition, body, condition. These are 16 calls, so `work` returns
    // normally if `stop` is 16 or more.
    for level in LEVELS {
        let (lines, branches) = read_counts(&build_and_record("loops.c", LOOPS_PROGRAM, level), "");
        let expected =
            [(7, 20 + 17 + 14), (8, 18 + 15), (9, 19 + 16), (10, 18 + 15), (12, 13), (14, 13 + 11), (15, 12 + 10), (16, 12 + 10)];
        assert_eq!(expected.map(|(line, _)| (line, lines[&line])), expected, "{level}");
        let expected = [(17, 9 + 7 + 5), (18, 8 + 6), (19, 7 + 5), (21, 4)];
        assert_eq!(expected.map(|(line, _)| (line, lines[&line])), expected, "{level}");
        assert_eq!((branches[&7], branches[&16], branches[&17]), ((19 + 16, 13), (11, 9), (8 + 6, 4)), "{level}");
    }
}

/// Debug information and the coverage mapping may have different names for a folder. Pages and tracefiles must contain each file once, with
/// the counts from the mapping. Code after a call that did not return must have its own counts.
#[test]
fn files_with_two_names_have_their_counts() {
    const LEAVES_PROGRAM: &str = "#include <stdlib.h>\nstatic void (*volatile leave)(int) = exit;\nint main(void) {\n  \
        for (int i = 0; i < 3; i++)\n    if (i > 1)\n      leave(0);\n  return 0;\n}\n";
    for option in ["", "-fdebug-prefix-map=HERE=/usr/src", "-fcoverage-prefix-map=HERE=/usr/src"] {
        let place = Place::with(&[("leave.c", LEAVES_PROGRAM)]);
        let here = place.path("");
        let here = here.to_str().unwrap().trim_end_matches('/');
        place.cc(&format!("--trodden=coverage -O1 -g {} {here}/leave.c -o own", option.replace("HERE", here)));
        place.trodden("record --no-store -o run.trodden -- ./own");
        let (lines, _) = read_counts(&place, "");
        assert_eq!([4, 5, 6, 7].map(|line| lines[&line]), [3, 3, 1, 0], "{option}");
        let page: Value = serde_json::from_slice(&place.trodden("annotate main run.trodden --json").stdout).unwrap();
        let of_page = page["source"]["lines"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let of_page: Vec<u64> =
            of_page.filter_map(|line| line["count"].as_str().and_then(|count| count.parse().ok()).or(line["count"].as_u64())).collect();
        // A page shows no lines if the source file is not found under its name.
        if !option.contains("debug") {
            assert_eq!(of_page, lines.values().copied().collect::<Vec<_>>(), "{option}");
        }
    }
}

/// Generates random functions. Each line first counts itself, and each condition counts its sides.
struct Program {
    text: String,
    random: u64,
    line: u64,
    /// Each counted line, with the number of the function that contains it.
    lines: Vec<(u64, u64)>,
    conditions: Vec<(u64, u64)>,
    is_cxx: bool,
}

impl Program {
    fn new(seed: u64, is_cxx: bool) -> Program {
        let mut program = Program { text: String::new(), random: seed, line: 1, lines: Vec::new(), conditions: Vec::new(), is_cxx };
        let (leave, tail) = if is_cxx { (CXX_PROLOGUE, CXX_EPILOGUE) } else { (C_PROLOGUE, C_EPILOGUE) };
        program.push_text(leave);
        program.push_text(SHARED_PROLOGUE);
        let functions = if is_cxx { 4 } else { 3 };
        for function in 0..functions {
            let inlined = if function + 2 < functions { "static inline" } else { "__attribute__((noinline)) static" };
            program.push_text(&format!("{inlined} void f{function}(int a) {{\n"));
            if is_cxx && program.random_below(3) > 0 {
                program.push_text("Guard guard;\n");
            }
            program.push_block(function, if is_cxx { 2 } else { 3 });
            program.push_text("}\n");
        }
        program.push_text(tail);
        program
    }

    fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
        self.line += text.matches('\n').count() as u64;
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % bound
    }

    fn generate_condition(&mut self, function: u64) -> String {
        self.lines.push((self.line, function));
        self.conditions.push((self.line, function));
        format!("hit({0}), side({0}, odd(a))", self.line)
    }

    fn push_block(&mut self, function: u64, depth: u64) {
        for _ in 0..2 + self.random_below(3) {
            self.push_statement(function, depth);
        }
    }

    fn push_statement(&mut self, function: u64, depth: u64) {
        let line = self.line;
        match self.random_below(if depth == 0 { 3 } else { 8 + u64::from(self.is_cxx) }) {
            0 => self.push_counted_statement(function, &format!("hit({line}); sink += a;")),
            1 if function > 0 => {
                let called = self.random_below(function);
                self.push_counted_statement(function, &format!("hit({line}); f{called}(a + 1);"));
            }
            1 | 2 => self.push_counted_statement(function, &format!("hit({line}); may_leave();")),
            3 => self.push_nested_statement("if", function, depth, false),
            4 => self.push_nested_statement("if", function, depth, true),
            5 => self.push_nested_statement("while", function, depth, false),
            6 => {
                self.push_counted_statement(function, &format!("hit({line}); switch (next() % 3) {{"));
                for label in ["case 0:", "case 1:", "default:"] {
                    self.push_text(&format!("{label}\n"));
                    self.push_block(function, depth - 1);
                    if self.random_below(2) == 0 {
                        self.push_text("break;\n");
                    }
                }
                self.push_text("}\n");
            }
            7 => {
                self.push_text("do {\n");
                self.push_block(function, depth - 1);
                let condition = self.generate_condition(function);
                self.push_text(&format!("}} while ({condition});\n"));
            }
            _ => {
                self.push_text("try {\n");
                self.push_block(function, depth - 1);
                self.push_text("} catch (int) {\n");
                let line = self.line;
                self.push_counted_statement(function, &format!("hit({line}); sink += a;"));
                self.push_block(function, depth - 1);
                self.push_text("}\n");
            }
        }
    }

    fn push_counted_statement(&mut self, function: u64, statement: &str) {
        self.lines.push((self.line, function));
        self.push_text(&format!("{statement}\n"));
    }

    fn push_nested_statement(&mut self, keyword: &str, function: u64, depth: u64, has_other: bool) {
        let condition = self.generate_condition(function);
        self.push_text(&format!("{keyword} ({condition}) {{\n"));
        self.push_block(function, depth - 1);
        if has_other {
            self.push_text("} else {\n");
            self.push_block(function, depth - 1);
        }
        self.push_text("}\n");
    }
}

const C_PROLOGUE: &str =
    "#include <setjmp.h>\n#include <stdio.h>\n#include <stdlib.h>\nstatic jmp_buf back;\n#define LEAVE longjmp(back, 1)\n";
const CXX_PROLOGUE: &str = "#include <stdio.h>\n#include <stdlib.h>\n#define LEAVE throw 1\nextern int sink;\n\
    struct Guard { ~Guard() { sink++; } };\n";
const SHARED_PROLOGUE: &str = "static unsigned state = 1;\nint sink;\nstatic int calls, hits[4000], sides[4000][2];\n\
    __attribute__((noinline)) unsigned next(void) { return (state = state * 1103515245 + 12345) >> 16; }\n\
    __attribute__((noinline)) int odd(int a) { return next() % 5 < 2; }\n\
    static inline void hit(int n) { hits[n]++; }\nstatic inline int side(int n, int c) { sides[n][c]++; return c; }\n\
    __attribute__((noinline)) void show(void) {\n  for (int i = 0; i < 4000; i++)\n    \
    printf(\"%d %d %d\\n\", hits[i], sides[i][0], sides[i][1]);\n}\n\
    static void (*volatile leave)(int) = exit;\n\
    __attribute__((noinline)) void may_leave(void) {\n  if (next() % 11 == 0) LEAVE;\n  if (++calls > 3000) leave(0);\n}\n";
const C_EPILOGUE: &str = "int main(void) {\n  atexit(show);\n  for (volatile int i = 0; i < 300; i++)\n    if (!setjmp(back)) f2(i);\n}\n";
const CXX_EPILOGUE: &str = "int main(void) {\n  atexit(show);\n  for (volatile int i = 0; i < 300; i++)\n    try {\n      f3(i);\n    } \
    catch (int) {\n    }\n}\n";

/// Compares the count of each line with the program's own count, except in functions that trodden marks as inexact. Returns the number of
/// marked functions.
fn check_random_program(seed: u64, level: &str, is_cxx: bool) -> usize {
    let program = Program::new(seed, is_cxx);
    let place = build_and_record(if is_cxx { "random.cc" } else { "random.c" }, &program.text, level);
    let output = must(&mut place.command(place.path("own")));
    let own: Vec<Vec<u64>> = String::from_utf8(output.stdout).unwrap().lines().map(parse_numbers).collect();
    let (lines, branches) = read_counts(&place, "");
    let export: Value = serde_json::from_slice(&place.trodden("export llvm-json run.trodden").stdout).unwrap();
    let marked = export["not_exact"].as_array().unwrap().iter().map(|mark| mark["function"].as_str().unwrap().to_owned());
    let marked: BTreeSet<String> = marked.filter(|name| name.starts_with('f')).collect();
    let is_exact = |function: u64| !marked.iter().any(|name| name.starts_with(&format!("f{function}")));
    // A function that is never called may have no regions.
    let executions = |line: u64| lines.get(&line).copied().unwrap_or(0);
    let sides = |line: u64| branches.get(&line).copied().unwrap_or((0, 0));
    let mut differences = String::new();
    for &(line, _) in program.lines.iter().filter(|(_, function)| is_exact(*function)) {
        if executions(line) != own[line as usize][0] {
            writeln!(differences, "line {line}: {} instead of {}", executions(line), own[line as usize][0]).unwrap();
        }
    }
    for &(line, _) in program.conditions.iter().filter(|(_, function)| is_exact(*function)) {
        let expected = (own[line as usize][2], own[line as usize][1]);
        if sides(line) != expected {
            writeln!(differences, "branch {line}: {:?} instead of {expected:?}", sides(line)).unwrap();
        }
    }
    assert!(differences.is_empty(), "seed {seed} {level}\n{differences}\n{}", program.text);
    assert!(own.iter().any(|counts| counts[0] > 0));
    marked.len()
}

fn parse_numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Checks random programs. At most `max_marked` of their functions may be marked as inexact.
fn check_random_programs(seeds: std::ops::Range<u64>, level: &str, is_cxx: bool, max_marked: usize) {
    let marked: usize = seeds.map(|seed| check_random_program(seed, level, is_cxx)).sum();
    println!("{marked} functions are marked");
    assert!(marked <= max_marked, "{marked} functions are marked");
}

#[test]
fn coverage_of_random_c_programs_is_exact_without_optimisation() {
    check_random_programs(1..5, "-O0", false, 0);
}

#[test]
fn coverage_of_random_c_programs_is_exact_with_optimisation() {
    check_random_programs(1..5, "-O2", false, 0);
}

#[test]
fn coverage_of_random_cxx_programs_is_exact_without_optimisation() {
    check_random_programs(1..5, "-O0", true, 0);
}

#[test]
fn coverage_of_random_cxx_programs_is_exact_with_optimisation() {
    check_random_programs(1..5, "-O2", true, 4);
}
