//! `trodden simulate` on programs that switch stacks, or leave frames by `longjmp`, exceptions, panics and signal handlers. Whatever is
//! called in between, `f` must have exactly the paths that its arguments determine.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// `f` has a condition for each of the low four bits of its argument, and calls `g` in the middle.
const F_SOURCE: &str = "
volatile long sink;
void g(int n);
__attribute__((noinline)) void f(int k) { if (k & 1) sink += 3; if (k & 2) sink += 5; g(20); if (k & 4) sink += 7; if (k & 8) sink += 9; }
";

/// Jumps out of four frames at once.
const LONG_JUMP_PROGRAM: &str = "
#include <setjmp.h>
jmp_buf back;
__attribute__((noinline)) void thrower(int d) { if (d == 0) longjmp(back, 1); thrower(d - 1); sink++; }
__attribute__((noinline)) void g(int n) { volatile int i = 0; for (i = 0; i < n; i++) { if (!setjmp(back)) thrower(3); } sink += i; }
int main(void) { for (int k = 0; k < 1000; k++) f(k); return 0; }
";

const EXCEPTION_PROGRAM: &str = "
#include <stdexcept>
__attribute__((noinline)) void thrower(int d) { if (d == 0) throw std::runtime_error(\"x\"); thrower(d - 1); sink = sink + 1; }
__attribute__((noinline)) void g(int n) {
  for (volatile int i = 0; i < n; i = i + 1) { try { thrower(3); } catch (std::exception &) { sink = sink + 2; } }
}
int main() { for (int k = 0; k < 100; k++) f(k); return 0; }
";

/// Jumps out of signal handlers, on the interrupted stack or on an alternate stack, over the handlers' frames and the interrupted frames.
const HANDLER_PROGRAM: &str = "
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static sigjmp_buf back; static volatile int nothing;
__attribute__((noinline)) static void out(int d) { if (d == 0) siglongjmp(back, 1); out(d - 1); sink++; }
static void handler(int n) { out(n & 3); }
__attribute__((noinline)) static void deep(int d, int n) { if (d == 0) raise(n); else deep(d - 1, n); sink++; }
__attribute__((noinline)) void g(int n) {
  for (volatile int i = 0; i < n; i++) { if (!sigsetjmp(back, 1)) deep(i % 3, i & 1 ? SIGUSR1 : SIGUSR2); }
}
int main(void) {
  stack_t other = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
  sigaltstack(&other, 0);
  struct sigaction action; memset(&action, 0, sizeof action); action.sa_handler = handler;
  sigaction(SIGUSR1, &action, 0); action.sa_flags = SA_ONSTACK; sigaction(SIGUSR2, &action, 0);
  for (int k = 0; k < 100; k++) f(k);
  return 0;
}
";

/// Each call to `g` runs three coroutines with ten steps each. The coroutines call further functions, and stacks are reused.
const COROUTINES_PROGRAM: &str = "
#include <stdlib.h>
#include <ucontext.h>
static ucontext_t own, those[3]; static char *stacks[3]; static int current, running;
__attribute__((noinline)) static void give_up(int d) { if (d) { give_up(d - 1); sink++; } else swapcontext(&those[current], &own); }
static void body(void) { for (volatile int i = 0; i < 10; i++) { give_up(i % 4); sink += i; } running--; }
__attribute__((noinline)) void g(int n) {
  running = 3;
  for (int c = 0; c < 3; c++) {
    getcontext(&those[c]);
    those[c].uc_stack.ss_sp = stacks[c]; those[c].uc_stack.ss_size = 1 << 16; those[c].uc_link = &own;
    makecontext(&those[c], body, 0);
  }
  for (int c = 0; running > 0; c = (c + 1) % 3) { current = c; swapcontext(&own, &those[c]); }
}
int main(void) {
  for (int c = 0; c < 3; c++) stacks[c] = malloc(1 << 16);
  for (int k = 0; k < 100; k++) f(k);
  return 0;
}
";

const PANIC_PROGRAM: &str = "
use std::hint::black_box;
#[inline(never)] fn thrower(d: u32) -> u32 { if d == 0 { panic!() } black_box(thrower(black_box(d - 1)) + 1) }
#[inline(never)] fn g(n: u32) -> u32 {
    (0..n).map(|_| std::panic::catch_unwind(|| thrower(black_box(3))).unwrap_or(2)).sum()
}
#[no_mangle] #[inline(never)] pub fn f(k: u32) {
    if k & 1 != 0 { black_box(3); }
    if k & 2 != 0 { black_box(5); }
    black_box(g(black_box(5)));
    if k & 4 != 0 { black_box(7); }
    if k & 8 != 0 { black_box(9); }
}
fn main() { std::panic::set_hook(Box::new(|_| ())); for k in 0..100 { f(black_box(k)); } }
";

fn compile(folder: &Path, compiler: &[&str], name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
    let status = Command::new(compiler[0]).args(&compiler[1..]).args([name, "-o", "program"]).current_dir(folder).status().unwrap();
    assert!(status.success(), "{name}");
}

fn run_simulate(folder: &Path, arguments: &[&str]) -> Value {
    let laboratory = Path::new(env!("CARGO_BIN_EXE_trodden")).with_file_name("trodden-lab");
    let out = Command::new(laboratory).arg("simulate").args(arguments).current_dir(folder).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Returns the counts of paths that start at the entry of `f`, in descending order, and the number of other paths with branches in `f`.
/// There may be a path without branches: if the compiler places a block before another one that jumps back to it, a path ends there and a
/// new one starts.
fn count_paths_of_f(report: &Value) -> (Vec<u64>, usize) {
    let is_f = |path: &&Value| path["function"].as_str().is_some_and(|name| name == "f" || name == "f(int)" || name == "_Z1fi");
    let paths: Vec<&Value> = report["paths"].as_array().unwrap().iter().filter(is_f).collect();
    let start = paths.iter().map(|path| path["descriptor"]["start"].as_str().unwrap()).min().unwrap();
    let (whole, others): (Vec<&Value>, Vec<&Value>) = paths.iter().partition(|path| path["descriptor"]["start"] == start);
    let mut counts: Vec<u64> = whole.iter().map(|path| path["count"].as_u64().unwrap()).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    (counts, others.iter().filter(|path| path["descriptor"]["length"] != 0).count())
}

/// Checks a program that calls `f` with 0, 1, 2 and so on, `calls` times in total.
fn check_program(compiler: &[&str], name: &str, text: &str, calls: u64) -> Value {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    compile(at, compiler, name, text);
    let live = run_simulate(at, &["--json", "--steps", "1", "--record", "t.trodrec", "--", "./program"]);
    // The counts of the 16 combinations of four bits follow from the arguments.
    let mut expected: Vec<u64> = (0..16).map(|bits| (0..calls).filter(|k| k % 16 == bits).count() as u64).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(count_paths_of_f(&live), (expected, 0), "{name}: {:#}", live["detector"]);
    assert_eq!(live["detector"]["guessed_repairs"], 0, "{name}");
    let again = run_simulate(at, &["--json", "--steps", "1", "--from", "t.trodrec"]);
    for key in ["detector", "paths", "tables"] {
        assert_eq!(live[key], again[key], "{name}: {key}");
    }
    live["detector"].clone()
}

#[test]
fn longjmp_leaves_several_frames() {
    let detector = check_program(&["gcc", "-O1"], "jump.c", &format!("{F_SOURCE}{LONG_JUMP_PROGRAM}"), 1000);
    // `g` jumps 20 times per call, and is never more than ten frames deep.
    assert!(detector["repairs"].as_u64() >= Some(20_000) && detector["deepest_stack"].as_u64() < Some(32), "{detector:#}");
    assert_eq!(detector["stack_overflows"], 0);
}

#[test]
fn exceptions_leave_several_frames() {
    let detector = check_program(&["g++", "-O1"], "exception.cc", &format!("{F_SOURCE}{EXCEPTION_PROGRAM}"), 100);
    assert!(detector["repairs"].as_u64() >= Some(2000), "{detector:#}");
}

#[test]
fn panics_are_caught() {
    let detector = check_program(&["rustc", "-O"], "panic.rs", PANIC_PROGRAM, 100);
    assert!(detector["repairs"].as_u64() >= Some(500), "{detector:#}");
}

#[test]
fn signal_handlers_jump_out_of_themselves() {
    let detector = check_program(&["gcc", "-O1"], "handler.c", &format!("{F_SOURCE}{HANDLER_PROGRAM}"), 100);
    // Half of the handlers run on the interrupted stack. The other half run on an alternate stack and leave it by a jump.
    assert!(detector["signals"] == 2000 && detector["repairs"].as_u64() >= Some(1000), "{detector:#}");
    assert!(detector["stack_switches"].as_u64() >= Some(1000), "{detector:#}");
}

#[test]
fn coroutines_switch_stacks() {
    let detector = check_program(&["gcc", "-O1"], "coroutines.c", &format!("{F_SOURCE}{COROUTINES_PROGRAM}"), 100);
    // Each of the three coroutines is entered eleven times and left eleven times.
    assert!(detector["stack_switches"].as_u64() >= Some(100 * 3 * 11 * 2), "{detector:#}");
}
