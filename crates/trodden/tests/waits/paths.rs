//! Waits in programs that were built to write path streams: each step of an explanation is a Ball-Larus path.

use super::place::{Place, must, trodden};
use super::{build_recorder, check_consistency};
use serde_json::Value;

/// A program whose function `refresh` has three paths. Lines 6 and 8 call the C library, which writes no stream. Line 10 reaches line 6 in
/// a frame of its own.
const REFRESH_PROGRAM: &str = r#"#include <pthread.h>
#include <string.h>
char index_of[1 << 23], cache[1 << 23];
__attribute__((noinline)) static void refresh(int turn) {
  if (turn % 3 == 0)
    memmove(index_of, index_of + 1, sizeof index_of - 1);
  else if (turn % 3 == 1)
    memset(cache, turn, sizeof cache);
  else
    refresh(turn + 1);
  __asm__ volatile("" ::: "memory");
}
static void *writer(void *unused) {
  for (int turn = 0; turn < 600; turn++)
    refresh(turn);
  return unused;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, writer, 0);
  pthread_join(thread, 0);
  return 0;
}
"#;

#[test]
fn steps_of_programs_that_write_streams_are_paths() {
    build_recorder();
    let place = Place::with(&[("refresh.c", REFRESH_PROGRAM)]);
    let run = |arguments: &[&str]| must(place.command(trodden()).args(arguments));
    run(&["cc", "--trodden=stream", "-O1", "-g", "-pthread", "refresh.c", "-o", "app"]);
    run(&["record", "--whole-program", "--", env!("CARGO_BIN_EXE_trodden"), "waits", "record", "-o", "app.waits", "--", "./app"]);
    let report: Value = serde_json::from_slice(&run(&["report", "app.waits", "--json", "--stream", "1"]).stdout).unwrap();
    check_consistency(&report);
    let join = report["waits"].as_array().unwrap().iter().find(|wait| wait["kind"] == "join").unwrap();
    let steps: Vec<&Value> = join["classes"].as_array().unwrap().iter().flat_map(|class| class["plus"].as_array().unwrap()).collect();
    // A step's line comes from samples and debug information, and its path from the stream. Both must agree.
    let at = |line: u32| {
        let is_there = move |step: &&&Value| step["line"] == line && step["function"] == "refresh" && step["state"] == "computing";
        steps.iter().filter(is_there).map(|step| (step["path"]["lines"].as_str().unwrap_or("none"), step["ns"].as_u64().unwrap()))
    };
    for (line, own, other) in [(6, "-6-", "-8-"), (8, "-8-", "-6-")] {
        let all: u64 = at(line).map(|(_, ns)| ns).sum();
        let right: u64 = at(line).filter(|(lines, _)| lines.contains(own) && !lines.contains(other)).map(|(_, ns)| ns).sum();
        // Near the function's entry and exit, a sample may be assigned to the neighbouring event.
        assert!(right > 0 && right * 10 >= all * 9, "line {line}: {right} of {all} ns: {steps:#?}");
    }

    // The stream of another run must be rejected, with advice in the error.
    run(&["waits", "record", "-o", "app.waits", "--", "./app"]);
    let refused = place.command(trodden()).args(["report", "app.waits", "--stream", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("trodden record --whole-program -- trodden waits record"), "{said}");
}
