//! `trodden-lab with --calls -- trace record`: runs record only calls and returns. Such call traces are compared with traces of all blocks.

use crate::traced::{Folder, errors, is_installed, must};
use trodden_trace::{ThreadNumber, TraceEvent, TraceFile};

/// A program with mutual recursion, calls through pointers, callbacks from the C library, and loops and branches without calls.
const CALLS_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static volatile int sum;
static int odd(int n);
__attribute__((noinline)) static void leaf(int n) { for (int i = 0; i < 40; i++) if (i & n) sum += i; else sum ^= n; }
__attribute__((noinline)) static int even(int n) { if (n == 0) return 1; if (n & 2) leaf(n); return odd(n - 1) + 0; }
__attribute__((noinline)) static int odd(int n) { if (n == 0) return 0; int s = n & 4 ? 3 : 5; sum += s; return even(n - 1) + s; }
static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    if (x & 1) leaf(1);
    return (x > y) - (x < y);
}
static int (*volatile by_pointer[2])(int) = {even, odd};
int main(void) {
    int data[9] = {5, 3, 9, 1, 7, 2, 8, 6, 4};
    for (int i = 0; i < 30; i++) { if (i % 3 == 0) sum += by_pointer[i & 1](i % 7); else if (i % 5 == 1) leaf(i); else sum--; }
    qsort(data, 9, sizeof data[0], compare);
    printf("%d %d\n", sum, data[4]);
    if (sum & 1) exit(3);
    return 0;
}
"#;

/// A program with `longjmp` across frames, out of a loop and out of a recursion.
const JUMPS_PROGRAM: &str = r#"
#include <setjmp.h>
#include <stdio.h>
static jmp_buf back;
static volatile int sum;
__attribute__((noinline)) static void step(int n) { for (int i = 0; i < n; i++) if (i & 1) sum += i; }
__attribute__((noinline)) static void deep(int n) {
    for (int i = 0; i < n; i++) { step(i); if (i == 3) longjmp(back, n); if (i & 1 && n < 6) deep(n + 1); }
}
int main(void) {
    for (volatile int i = 0; i < 5; i++) { if (setjmp(back) == 0) deep(i); else step(2); }
    printf("%d\n", sum);
    return 0;
}
"#;

fn describe_steps(folder: &Folder, name: &str) -> Vec<String> {
    let trace = TraceFile::open(&folder.path(name)).unwrap();
    let mut steps = Vec::new();
    let mut called = Some("begins".to_owned());
    for event in trace.stream(ThreadNumber(0)) {
        match event.unwrap() {
            TraceEvent::Call { outside, tail } => {
                called = Some(format!("calls{}{}", if outside { " back" } else { "" }, if tail { " last" } else { "" }))
            }
            TraceEvent::Block(block) => steps.extend(called.take().map(|how| format!("{how} {}", trace.name(trace.function_of(block))))),
            TraceEvent::Return => steps.push("returns".to_owned()),
            TraceEvent::Unwind => steps.push("unwinds".to_owned()),
        }
    }
    steps
}

/// Returns the number of recorded events (executions of watched blocks), summed over all runs.
fn count_witness_executions(folder: &Folder, name: &str) -> u64 {
    TraceFile::open(&folder.path(name)).unwrap().end().runs.iter().map(|run| run.hits).sum()
}

fn assert_matches_stepping(folder: &Folder, program: &[&str], status: i32) {
    let whole = folder.record(&["--runs", "3"], "whole.trace", program);
    assert!(whole.status.code() == Some(status) && !errors(&whole).contains("of one run instead"), "{}", errors(&whole));
    let truth = describe_steps(folder, "whole.trace");
    assert!(truth.len() > 20, "{truth:?}");
    for runs in ["2", "3"] {
        let calls = folder.record(&["--calls", "--runs", runs], "calls.trace", program);
        assert!(calls.status.code() == Some(status) && !errors(&calls).contains("of one run instead"), "{}", errors(&calls));
        assert_eq!(calls.stdout, whole.stdout);
        let own = describe_steps(folder, "calls.trace");
        let parts = own.iter().zip(&truth).position(|(a, b)| a != b);
        assert!(own == truth, "{runs} runs: {} and {} steps, part at {parts:?}", own.len(), truth.len());
        let (own, all) = (count_witness_executions(folder, "calls.trace"), count_witness_executions(folder, "whole.trace"));
        assert!(own < all, "{own} of {all}");
    }
}

#[test]
fn call_traces_agree_with_traces_of_all_blocks() {
    let folder = Folder::new();
    folder.compile("cc", "calls.c", CALLS_PROGRAM);
    assert_matches_stepping(&folder, &["./app"], 0);
    folder.compile("cc", "jumps.c", JUMPS_PROGRAM);
    assert_matches_stepping(&folder, &["./app"], 0);
    if is_installed("/usr/bin/gzip") {
        assert_matches_stepping(&folder, &["/usr/bin/gzip", "-c", "input"], 0);
    }
}

#[test]
fn commands_that_need_all_blocks_are_rejected() {
    let folder = Folder::new();
    folder.compile("cc", "calls.c", CALLS_PROGRAM);
    let single = folder.record(&["--calls", "--runs", "1"], "calls.trace", &["./app"]);
    assert!(single.status.code() == Some(2) && errors(&single).contains("--calls needs several runs"), "{}", errors(&single));
    must(folder.record(&["--runs", "2"], "whole.trace", &["./app"]));
    must(folder.record(&["--calls", "--runs", "2"], "calls.trace", &["./app"]));
    must(folder.trodden(&["diff", "calls.trace", "calls.trace"]));
    for arguments in [
        &["diff", "calls.trace", "whole.trace"][..],
        &["import", "calls.trace", "-o", "p.trodden", "--no-store"],
        &["find", "calls.c:7", "calls.trace"],
    ] {
        let refused = folder.trodden(arguments);
        assert!(
            refused.status.code() == Some(2) && errors(&refused).contains("contains only calls and returns"),
            "{arguments:?} {refused:?}"
        );
    }
    let report = must(folder.trodden(&["report", "calls.trace"]));
    assert!(report.contains("even") && report.contains("compare"), "{report}");
}
