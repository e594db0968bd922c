//! `trodden show` for flight recorders, compared with a debugger: unfinished paths in innermost frames, and the frames of a Rust program
//! that panics.

use crate::place::{Place, cargo_trodden, must, trodden};
use serde_json::Value;
use std::process::Command;

/// A program whose first argument selects the function that fails. The failing lines are marked.
const SELECTED_FAILURE_PROGRAM: &str = r##"#include <stdlib.h>
__attribute__((noinline)) static int both(int *p, int n) {
    int r = n;
    if (n & 1)
        __asm__ volatile("# odd" : "+r"(r));
    else
        __asm__ volatile("# even" : "+r"(r));
    if (n & 2)
        r += *p; // both
    return r;
}
__attribute__((noinline)) static int scan(int **p, int n) {
    int r = 0;
    for (int i = 0; i < n; i++) {
        if (i & 1)
            r += *p[i]; // scan
        else
            __asm__ volatile("# even" : "+r"(r));
    }
    return r;
}
__attribute__((noinline)) static int pass(int *p, int n) {
    int r = both(p, n & 1);
    if (n & 4)
        r ^= *p; // pass
    return r + 1;
}
int main(int argc, char **argv) {
    int one = 1, *all[] = { &one, &one, &one, NULL };
    int which = argc > 1 ? atoi(argv[1]) : 0, s = scan(all, 3) + both(&one, 2) + pass(&one, 7);
    if (which == 1) s += both(NULL, 4 + argc);
    if (which == 2) s += scan(all, 4);
    if (which == 3) s += pass(NULL, 5);
    __asm__ volatile("" : "+r"(s));
    return s & 1;
}
"##;

/// Runs a program in gdb until a signal ends the program. Returns gdb's frames as function and line, innermost first. The core file is
/// `prog.core`, and the flight recorder's file is in the folder `flight`.
fn run_in_gdb(place: &Place, program: &str, arguments: &str) -> Vec<(String, u64)> {
    let _ = std::fs::remove_dir_all(place.path("flight"));
    let mut gdb = place.command("gdb");
    gdb.args(["-nx", "-batch", "-ex", &format!("run {arguments}"), "-ex", "generate-core-file prog.core", "-ex", "bt"]).arg(program);
    gdb.env("TRODDEN_OUTPUT", place.path("flight/%m.%p.stream")).env("TRODDEN_STREAM", "60").env("DEBUGINFOD_URLS", "");
    let said = String::from_utf8(must(&mut gdb).stdout).unwrap();
    let frame = |line: &str| {
        // `#1  0x... in middle (n=3) at prog.c:12`, `#0  leaf (n=3) at prog.c:5`
        let (_, behind) = line.split_once(" in ").or_else(|| line.split_once(' '))?;
        let behind = behind.trim_start();
        let (function, place) = behind.split_once(" (")?;
        Some((function.to_owned(), place.rsplit_once(':')?.1.trim().parse().ok()?))
    };
    let frames: Vec<_> = said.lines().filter(|l| l.starts_with('#')).filter_map(frame).collect();
    assert!(!frames.is_empty(), "{said}");
    frames
}

fn show_first_thread(place: &Place, more: &[&str]) -> Value {
    let report = must(place.command(trodden()).args(["show", "flight", "--json"]).args(more));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    report["streams"][0]["threads"][0].clone()
}

/// Checks the unfinished path in the innermost frame: its function must have `paths` possible paths, and it must end at the line that gdb
/// shows.
fn check_unfinished_path(which: &str, function: &str, paths: u64) {
    let place = Place::with(&[("prog.c", SELECTED_FAILURE_PROGRAM)]);
    place.cc("--trodden=stream -O1 -g prog.c -o prog");
    let frames = run_in_gdb(&place, "./prog", which);
    assert_eq!(frames[0].0, function, "{frames:?}");
    let found = show_first_thread(&place, &["--core", "prog.core"]);
    let unfinished = &found["unfinished"];
    assert_eq!((unfinished["function"].as_str(), unfinished["paths"].as_u64()), (Some(function), Some(paths)), "{found:#}");
    let lines: Vec<u64> = unfinished["path"].as_str().unwrap().split('-').map(|line| line.parse().unwrap()).collect();
    // The unfinished path must end at gdb's line, without lines from branch sides that were not taken.
    assert_eq!(lines.last(), Some(&frames[0].1), "{found:#}");
    assert!([5, 7, 18].iter().all(|other| !lines.contains(other)), "{found:#}");
    let text = String::from_utf8(place.trodden("show flight --core prog.core").stdout).unwrap();
    let said =
        if paths == 1 { format!("on the path {}", unfinished["path"].as_str().unwrap()) } else { "on one of 2 paths of both".into() };
    assert!(text.contains(&said), "{text}");
    assert!(show_first_thread(&place, &[])["unfinished"].is_null());
}

#[test]
fn unfinished_path_of_the_innermost_frame_is_shown() {
    check_unfinished_path("3", "pass", 1);
}

#[test]
fn unfinished_path_in_a_loop_is_shown() {
    check_unfinished_path("2", "scan", 1);
}

#[test]
fn number_of_possible_unfinished_paths_is_shown() {
    check_unfinished_path("1", "both", 2);
}

const PANIC_PROGRAM: &str = r#"
#[inline(never)]
fn leaf(all: &[u32], n: usize) -> u32 {
    let mut sum = 0;
    for i in 0..=n {
        sum += all[i];
    }
    sum
}
#[inline(never)]
fn middle(all: &[u32], n: usize) -> u32 {
    if n > 3 { leaf(all, n) + 1 } else { 0 }
}
fn main() {
    let all: Vec<u32> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    println!("{}", middle(&all, all.len()) + 1);
}
"#;

#[test]
fn frames_of_an_aborting_rust_program_equal_those_of_a_debugger() {
    let manifest = "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
        [profile.dev]\nopt-level = 1\npanic = \"abort\"\n[workspace]\n";
    let place = Place::with(&[("src/main.rs", PANIC_PROGRAM), ("Cargo.toml", manifest)]);
    must(place.command(cargo_trodden()).args(["trodden", "build", "--stream"]).env("CARGO_TARGET_DIR", place.path("target")));
    let found = Command::new("find").arg(place.path("target")).args(["-name", "subject", "-type", "f"]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let expected = run_in_gdb(&place, found.lines().next().unwrap(), "1 2 3 4");
    let expected: Vec<(String, u64)> = expected.into_iter().filter(|(name, _)| name.starts_with("subject::")).collect();
    let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["subject::leaf", "subject::middle", "subject::main"]);
    let thread = show_first_thread(&place, &[]);
    let live: Vec<&Value> =
        thread["frames"].as_array().unwrap().iter().filter(|f| f["function"].as_str().unwrap().starts_with("subject::")).collect();
    let functions: Vec<&str> = live.iter().map(|f| f["function"].as_str().unwrap()).collect();
    assert_eq!(functions, names, "{thread:#}");
    for (frame, (name, line)) in live.iter().zip(&expected) {
        assert!(frame["lines"].as_array().unwrap().iter().any(|l| l["line"].as_u64() == Some(*line)), "{name}:{line}: {frame}");
    }
}
