//! `trodden trace record --collector compiled`, for programs built with a sled (a patchable sequence of nops) in each block that can be
//! watched. The traces are compared with single-stepping, block by block.

use crate::place::{Place, laboratory, must, trodden, with_choices};
use std::process::Command;

/// A program with a switch that has a jump table, recursion, an indirect call, a loop of short blocks, and a signal that the program sends
/// to itself.
const C_PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
static volatile int caught;
static void handler(int s) { caught += s > 0 ? 1 : 2; }
__attribute__((noinline)) static int step(int op, int a) {
    switch (op) {
    case 0: return a + 1; case 1: return a * 3; case 2: puts("two"); return a; case 3: return -a;
    case 4: raise(SIGUSR1); return a ^ 5; case 5: return a << 2; default: return 7;
    }
}
__attribute__((noinline)) static int deep(int n) { return n < 2 ? n : deep(n - 1) + deep(n - 2); }
int (*const steps[2])(int) = { deep, putchar };
int main(int argc, char **argv) {
    signal(SIGUSR1, handler);
    int a = argc;
    for (int i = 0; i < 40; i++) { a = step(i % 8, a) & 0xffff; if (a & 1) continue; if (i % 3 == 0) a += deep(i % 9); }
    return printf("%d %d %d\n", a, steps[argc > 1](6), caught) < 0;
}
"#;

const CXX_PROGRAM: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>
struct Shape { virtual ~Shape() = default; virtual int area() const = 0; };
struct Square : Shape {
    int a;
    Square(int a) : a(a) {}
    int area() const override { if (a < 0) throw std::runtime_error("negative"); return a * a; }
};
struct Line : Shape { int area() const override { return 0; } };
struct Guard { int *n; ~Guard() { ++*n; } };
static int left;
__attribute__((noinline)) static int area(const Shape &shape) { Guard guard{&left}; return shape.area(); }
__attribute__((noinline)) static int careful(const Shape &shape) {
    try { return area(shape); } catch (const std::exception &) { return -1; }
}
int main() {
    std::vector<int> all;
    for (int i = -2; i < 6; i++) all.push_back(careful(Square(i)) + careful(Line()));
    std::string text;
    for (int n : all) text += n < 0 ? "-" : n > 9 ? "+" : ".";
    std::printf("%s %d\n", text.c_str(), left);
}
"#;

impl Place {
    fn record_trace(&self, options: &str, file: &str) -> std::process::Output {
        let mut command = self.command(trodden());
        with_choices(command.args(["trace", "record", "--output", file]), options.split_whitespace()).args(["--", "./prog"]);
        command.output().unwrap()
    }

    fn record_blocks(&self, options: &str) -> Vec<String> {
        let output = self.record_trace(options, "t.trace");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !errors.contains("falling back to one run"), "{options}: {errors}");
        let shown = self.trodden("export addresses t.trace").stdout;
        String::from_utf8(shown).unwrap().lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect()
    }
}

fn assert_matches_stepping(place: &Place) {
    let stepped = place.record_blocks("--collector single-step");
    assert!(stepped.len() > 150, "{}", stepped.len());
    for options in ["--runs 4", "--runs 1", "--runs 3 --witness-strategy weighted"] {
        let compiled = place.record_blocks(&format!("--collector compiled {options}"));
        let parts = compiled.iter().zip(&stepped).position(|(a, b)| a != b);
        assert!(compiled == stepped, "{options}: {} and {} blocks, part at {parts:?}", compiled.len(), stepped.len());
    }
}

#[test]
fn sled_traces_of_a_c_program_agree_with_stepping() {
    let place = Place::with(&[("prog.c", C_PROGRAM)]);
    for optimisation in ["-O0", "-O2"] {
        let mut compile = place.command(trodden());
        must(compile.args(["cc", "-g", optimisation, "prog.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", "observe=trace"));
        assert_matches_stepping(&place);
    }
    // Without a recorder, the program must run normally.
    assert!(String::from_utf8_lossy(&must(&mut place.command(place.path("prog"))).stdout).contains("two"));
}

#[test]
fn sled_traces_of_a_cxx_program_agree_with_stepping() {
    let place = Place::with(&[("prog.cc", CXX_PROGRAM)]);
    let build = ["with", "--witnesses", "--", "build", "--", "sh", "-c", "$CXX -O1 prog.cc -o prog && strip prog"];
    must(place.command(laboratory()).args(build));
    assert_matches_stepping(&place);
}

#[test]
fn programs_without_sleds_and_conflicting_options_are_rejected() {
    let place = Place::with(&[("prog.c", C_PROGRAM)]);
    must(Command::new("cc").current_dir(place.path("")).args(["-O1", "prog.c", "-o", "prog"]));
    let refused = place.record_trace("--collector compiled --runs 2", "t.trace");
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    assert!(errors.contains("prog has no witness sleds") && errors.contains("trodden-lab with --witnesses"), "{errors}");
    let both = place.command(laboratory()).args("with --witnesses -- build --sample -- true".split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&both.stderr).into_owned();
    assert!(!both.status.success() && errors.contains("--witnesses (observe=trace)"), "{errors}");
}
