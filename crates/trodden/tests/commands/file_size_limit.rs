//! Recording under a file size limit (`ulimit -f`, in blocks of at least 512 bytes). Every loss must be reported, and the signal for
//! exceeding the limit must not kill trodden.

use crate::place::{Place, trodden};
use std::process::Output;

const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int step(int n) { return n & 1 ? n * 3 : n / 2; }
int main(void) {
    int sum = 0;
    for (int i = 0; i < 1000; i++) sum += step(i);
    printf("%d\n", sum);
    return 0;
}
"#;

fn run_with_limit(place: &Place, blocks: u32, arguments: &str) -> Output {
    let script = format!("ulimit -f {blocks} && exec \"$0\" {arguments}");
    place.command("sh").args(["-c", &script]).arg(trodden()).output().unwrap()
}

/// The limit leaves room for the log and the profile, but not for a region of a stream.
#[test]
fn loss_of_a_stream_without_room_is_reported() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
    let output = run_with_limit(&place, 600, "record --whole-program --no-store -o lost.trodden -- ./prog");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the counts of 1 thread are lost") && said.contains("ulimit -f"), "{said}");
    let report = String::from_utf8(place.trodden("report lost.trodden").stdout).unwrap();
    assert!(report.contains("not exact") && report.contains("the counts of 1 thread are lost"), "{report}");
    // The loss is also reported for a flight recorder and in a suite.
    let output = run_with_limit(&place, 600, "record --last 10 -- ./prog");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("1 thread could not be recorded"), "{said}");
    let output = run_with_limit(&place, 600, "record --whole-program --suite tests -- ./prog");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("1 run lost counts"), "{said}");
    // Without the limit, nothing is lost.
    let output = place.trodden("record --whole-program --no-store -o whole.trodden -- ./prog");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("lost"));
}

#[test]
fn writes_beyond_the_limit_are_errors_with_reasons() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    place.trodden("record --no-store -o run.trodden -- ./prog");
    let output = run_with_limit(&place, 1, "report run.trodden --html page.html");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("page.html"), "{:?}: {said}", output.status);
    // trodden handles SIGXFSZ itself, but the programs it starts must have the default action.
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "x", "--", "cat", "/proc/self/status"]).output().unwrap();
    let status = String::from_utf8_lossy(&output.stdout);
    for set in ["SigIgn:", "SigCgt:"] {
        let mask = status.lines().find_map(|line| line.strip_prefix(set)).expect("Linux says so");
        assert_eq!(u64::from_str_radix(mask.trim(), 16).unwrap() >> 24 & 1, 0, "{status}");
    }
}
