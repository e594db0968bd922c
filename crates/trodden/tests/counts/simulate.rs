//! `trodden simulate` under QEMU, on system programs, on the programs of these tests, and on recordings of both.

use crate::webdriver::Browser;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Options that only `trodden-lab simulate` accepts.
const LABORATORY_OPTIONS: [&str; 10] = [
    "--branch-queue",
    "--counter-bits",
    "--extensions",
    "--mapping",
    "--model",
    "--path-limit",
    "--preset",
    "--processor",
    "--profile-of",
    "--sequence",
];

/// Runs `trodden simulate`, or `trodden-lab simulate` if one of the options requires it.
fn run_simulate(folder: &Path, arguments: &[&str]) -> Output {
    if arguments.iter().any(|option| LABORATORY_OPTIONS.contains(option)) {
        return run_laboratory(folder, &[&["simulate"], arguments].concat());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
    command.arg("simulate").args(arguments).current_dir(folder).env_remove("TRODDEN_QUIET");
    command.output().unwrap()
}

fn run_laboratory(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_trodden")).with_file_name("trodden-lab"));
    command.args(arguments).current_dir(folder).env_remove("TRODDEN_QUIET");
    command.output().unwrap()
}

fn run_sweep(folder: &Path, arguments: &[&str]) -> Output {
    run_laboratory(folder, &[&["sweep"], arguments].concat())
}

fn read_json(folder: &Path, arguments: &[&str]) -> Value {
    let out = run_simulate(folder, arguments);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn expect_error(folder: &Path, arguments: &[&str]) -> String {
    let out = run_simulate(folder, arguments);
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stdout));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn compile(folder: &Path, name: &str, text: &str, options: &[&str]) {
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, text).unwrap();
    let status = Command::new("gcc").args(options).arg("-o").arg(folder.join(name)).arg(&source).status().unwrap();
    assert!(status.success());
}

/// A program without libraries. Its instructions and branches can be counted by hand.
const COUNTED_PROGRAM: &str = "\
asm(\".globl _start\\n_start: mov $1000, %ecx\\n1: test $1, %ecx\\njz 2f\\nnop\\n2: call 3f\\ndec %ecx\\njnz 1b\\n\
mov $60, %eax\\nxor %edi, %edi\\nsyscall\\n3: cld\\nlea -64(%rsp), %rdi\\nmov %rcx, %rdx\\nmov $8, %ecx\\nrep stosb\\nmov %rdx, \
%rcx\\nret\\n\");";

#[test]
fn counts_of_a_small_program_are_exact() {
    let folder = TempDir::new().unwrap();
    compile(folder.path(), "counted", COUNTED_PROGRAM, &["-nostdlib", "-static", "-g"]);
    let report = read_json(folder.path(), &["--json", "--", "./counted"]);
    // The program executes one instruction before the loop and three at the end. Each iteration executes 12 (test, jz, call, seven of the
    // callee, dec, jnz), and every other iteration executes a nop.
    assert_eq!(report["instructions"], 1 + 1000 * 12 + 500 + 3);
    assert_eq!(report["branches"]["retired"], 4000);
    // In each call, the loop of `stosb` has eight iterations, and each counts as an entry of its block.
    assert_eq!(report["string_iterations"], 1000 * 8);
    let kinds: Vec<(&str, u64, u64)> = report["branches"]["by_kind"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| (k["kind"].as_str().unwrap(), k["taken"].as_u64().unwrap(), k["not_taken"].as_u64().unwrap()))
        .collect();
    assert!(kinds.contains(&("conditional", 500 + 999, 501)) && kinds.contains(&("call", 1000, 0)) && kinds.contains(&("return", 1000, 0)));
    assert_eq!(report["overlap"], 100.0);
    let counts: Vec<u64> = report["paths"].as_array().unwrap().iter().map(|p| p["count"].as_u64().unwrap()).collect();
    // One path each for the callee, the two sides of the loop's branch, the start of the program with the first iteration, and the last
    // iteration.
    assert_eq!(counts, [1000, 499, 499, 1, 1]);
    let first = &report["paths"][0];
    assert_eq!(first["instructions"].as_array().unwrap().last().unwrap()["text"], "ret");
}

#[test]
fn a_recording_can_be_replayed_with_many_tables() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text"), "a line of text that repeats\n".repeat(300)).unwrap();
    let run = read_json(at, &["--json", "--record", "b.trodrec", "--", "bzip2", "-9", "text"]);
    assert!(at.join("text.bz2").exists());
    let read =
        read_json(at, &["--json", "--from", "b.trodrec", "--table", "512x4", "--table", "16x2,start,lru", "--table", "65536x16,mix"]);
    for key in ["instructions", "threads", "branches", "detector", "overlap", "paths", "distinct_paths"] {
        assert_eq!(run[key], read[key], "{key}");
    }
    let overlaps: Vec<f64> = read["tables"].as_array().unwrap().iter().map(|t| t["overlap"].as_f64().unwrap()).collect();
    assert!(overlaps[0] > overlaps[1] && overlaps[2] > 99.999, "{overlaps:?}");
    assert!(run["branches"]["retired"].as_u64().unwrap() > 100_000);
    let functions: Vec<&str> = run["paths"].as_array().unwrap().iter().filter_map(|p| p["function"].as_str()).collect();
    assert!(functions.iter().any(|f| f.starts_with("BZ2_")), "{:?}", &functions[..functions.len().min(20)]);
    check_truncated_recordings(at);
}

fn check_truncated_recordings(at: &Path) {
    let whole = fs::read(at.join("b.trodrec")).unwrap();
    fs::write(at.join("cut.trodrec"), &whole[..whole.len() - 30]).unwrap();
    assert!(expect_error(at, &["--from", "cut.trodrec"]).contains("truncated at offset"));
    let partial = run_simulate(at, &["--from", "cut.trodrec", "--partial"]);
    let notes = String::from_utf8_lossy(&partial.stderr).into_owned();
    assert!(partial.status.success() && notes.contains("warning") && notes.contains("truncated"), "{notes}");
    assert!(expect_error(at, &["--from", "b.trodrec", "--event", "l2-misses"]).contains("need all instructions"));
}

#[test]
fn threads_and_signal_handlers_are_separate() {
    const PROGRAM: &str = "\
#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n\
static volatile int seen;\nstatic void handler(int n) { for (int i = 0; i < 10; i++) seen += n > 0; }\n\
static void *work(void *p) { volatile long s = 0; for (int i = 0; i < 5000; i++) s += i; return p; }\n\
int main(void) { pthread_t t[3]; signal(SIGUSR1, handler);\n\
for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, work, 0);\n\
for (int i = 0; i < 20; i++) raise(SIGUSR1);\nfor (int i = 0; i < 3; i++) pthread_join(t[i], 0);\nreturn seen == 200 ? 7 : 1; }\n";
    let folder = TempDir::new().unwrap();
    compile(folder.path(), "threads", PROGRAM, &["-O1", "-g", "-pthread"]);
    let out = run_simulate(folder.path(), &["--json", "--", "./threads"]);
    // The exit status must be that of the simulated program.
    assert_eq!(out.status.code(), Some(7), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((report["threads"].as_u64(), report["detector"]["signals"].as_u64()), (Some(4), Some(20)));
    assert_eq!(report["detector"]["gaps"], 0);
    let path = |function: &str| {
        report["paths"].as_array().unwrap().iter().filter(|p| p["function"] == function).map(|p| p["count"].as_u64().unwrap()).max()
    };
    assert!(path("work") >= Some(3 * 4990) && path("handler") >= Some(20 * 8), "{:?} {:?}", path("work"), path("handler"));
    let lines =
        report["paths"].as_array().unwrap().iter().filter(|p| p["function"] == "work").any(|p| p["instructions"][0]["line"].is_string());
    assert!(lines, "no source lines");
}

#[test]
fn events_and_slowdown_come_from_the_processor_model() {
    let folder = TempDir::new().unwrap();
    compile(folder.path(), "counted", COUNTED_PROGRAM, &["-nostdlib", "-static", "-g"]);
    let run = |more: &[&str]| {
        let arguments =
            [&["--json", "--event", "instructions", "--event", "l1-misses", "--event", "power-analytical"], more, &["--", "./counted"]];
        read_json(folder.path(), &arguments.concat())
    };
    let fast = run(&["--branch-queue", "1", "--counter-bits", "32"]);
    let cycles = |report: &Value| report["processor"]["cycles"].as_f64().unwrap();
    assert!(fast["processor"]["slowdown_percent"].as_f64().unwrap() > 1.0);
    // Events are counted at the end of each path, so instructions after the last path's end are missing.
    let counted = fast["events"][0]["total"].as_u64().unwrap();
    assert!(counted > 12_400 && counted <= fast["instructions"].as_u64().unwrap(), "{counted}");
    let reference = run(&["--model", "reference", "--event", "power-cycle", "--event", "mispredictions"]);
    let bare = run(&["--event", "mispredictions"]);
    assert!((cycles(&reference) - cycles(&bare)).abs() / cycles(&reference) < 0.03, "{} {}", cycles(&reference), cycles(&bare));
    assert!(expect_error(folder.path(), &["--event", "power-cycle", "--", "./counted"]).contains("--model reference"));
}

/// A program whose detected paths are converted to function paths.
const PATHS_PROGRAM: &str = "
#include <stdio.h>
__attribute__((noinline)) static int classify(int x) {
  int r = 0;
  if (x & 1) r += 3;
  if (x % 3 == 0) puts(\"three\");
  if (x % 7 == 0) r += 11;
  return r;
}
__attribute__((noinline)) static long loops(int n) {
  long s = 0;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < i % 5; j++) { if ((i ^ j) & 2) s += classify(j); else s -= i; }
    if (i % 4 == 1) s ^= classify(i);
  }
  return s;
}
int main(void) { long s = 0; for (int i = 0; i < 60; i++) s += loops(i); printf(\"%ld\\n\", s); return 0; }
";

/// A program with loops that contain branches whose code clang places after the loop. Jumps lead back from there, and a single jump or a
/// jump through a table may follow a backward branch that is not taken.
const OUTLINED_BRANCHES_PROGRAM: &str = r#"#include <stdio.h>
volatile unsigned sink;
unsigned tab[64];
__attribute__((noinline)) unsigned help(unsigned a) { sink = a; return a ^ (a >> 3); }
__attribute__((noinline)) unsigned three(unsigned n) {
    unsigned s = 8, x = n * 2654435761u;
    for (unsigned i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        if ((x >> 7) % 5 < 1) continue;
        if ((int)(s - x) < 2) {
            sink = s + 4;
            s = help(s + 8);
        } else {
            tab[s & 63] += 1;
            if ((x & 1) == 0) continue;
        }
        sink = s + 8;
    }
    return s;
}
__attribute__((noinline)) unsigned table(unsigned n) {
    unsigned s = 8, x = n * 2654435761u;
    for (unsigned i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        if ((int)(s - x) < 2) {
            if (s > 3) s = help(s + 8);
            if ((int)(s - x) < 2) {
                switch ((x >> 5) & 7) {
                case 6: s = s * 5 + 2; s = help(s + 7); break;
                case 1: sink = s + 1; sink = s + 9; /* fall through */
                case 0: s = help(s + 9); s = s * 5 + 9; s = help(s + 7); break;
                case 4: sink = s + 3; s = help(s + 3); s ^= x >> 5; break;
                }
            }
        } else {
            tab[s & 63] += 1;
        }
        sink = s + 8;
    }
    return s;
}
__attribute__((noinline)) unsigned machine(const unsigned char *code, unsigned n) {
    unsigned s = 1, t = 0;
    for (const unsigned char *at = code;;) {
        switch (*at++) {
        case 0: s += 3; break;
        case 1: t ^= s; if (t & 4) s = help(s); break;
        case 2: s = help(t); break;
        case 3: sink = s; s *= 5; break;
        case 4: t += s >> 2; sink = t; break;
        case 5: if (--n) at = code; break;
        case 6: s -= t; if (s & 1) { sink = t; at++; } break;
        default: return s + t;
        }
    }
}
int main(void) {
    static const unsigned char code[] = { 0, 1, 2, 6, 0, 3, 4, 6, 1, 1, 5, 7 };
    printf("%u %u %u\n", three(3000), table(3000), machine(code, 500));
    return 0;
}
"#;

fn count_blocks(folder: &Path, profile: &str) -> std::collections::BTreeMap<String, Vec<u64>> {
    let report = run_report(folder, profile);
    let functions = report["functions"].as_array().unwrap().iter();
    let counts = |f: &Value| f["block_counts"].as_array().unwrap().iter().map(|c| c.as_u64().unwrap()).collect();
    functions.map(|f| (f["name"].as_str().unwrap().to_owned(), counts(f))).collect()
}

fn run_report(folder: &Path, profile: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
    let out = command.args(["report", profile, "--json", "--top", "1000"]).current_dir(folder).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn count_paths(folder: &Path, profile: &str) -> std::collections::BTreeMap<(String, u64), u64> {
    let report = run_report(folder, profile);
    let name = |path: &Value| report["functions"][path["function"].as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let paths = report["paths"].as_array().unwrap();
    paths.iter().map(|p| ((name(p), p["id"].as_u64().unwrap()), p["count"].as_u64().unwrap())).collect()
}

/// Runs `trodden` in a folder with a run store of its own. Returns what it writes to standard error.
fn run_trodden_in(folder: &Path, arguments: &[&str]) -> String {
    let program = if arguments.contains(&"--profile-of") { "trodden-lab" } else { "trodden" };
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_trodden")).with_file_name(program));
    let out = command.args(arguments).current_dir(folder).env("TRODDEN_CACHE", folder.join("store")).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn complete_profiles_lose_nothing() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("arms.c"), OUTLINED_BRANCHES_PROGRAM).unwrap();
    run_trodden_in(at, &["cc", "-O2", "-g", "arms.c", "-o", "counted"]);
    run_trodden_in(at, &["cc", "--trodden=addresses", "-O2", "-g", "arms.c", "-o", "arms"]);
    run_trodden_in(at, &["record", "--no-store", "-o", "counted.trodden", "--", "./counted"]);
    let said = run_trodden_in(at, &["simulate", "--profile", "hot.trodden", "--profile-of", "complete", "--", "./arms"]);
    assert!(said.contains("executions of paths") && !said.contains("not counted"), "{said}");
    assert_eq!(count_blocks(at, "hot.trodden"), count_blocks(at, "counted.trodden"));
    let total = |file: &str| count_paths(at, file).values().sum::<u64>();
    assert_eq!(total("hot.trodden"), total("counted.trodden"));
    // Such a profile has no run, so the report must not describe one.
    let head = Command::new(env!("CARGO_BIN_EXE_trodden")).args(["report", "hot.trodden"]).current_dir(at).output().unwrap();
    let head = String::from_utf8(head.stdout).unwrap();
    assert!(head.contains("  sampled ") && !head.contains("  run "), "{head}");
}

#[test]
fn detected_paths_become_function_paths() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("paths.c"), PATHS_PROGRAM).unwrap();
    let trodden = |arguments: &[&str]| run_trodden_in(at, arguments);
    trodden(&["cc", "-O1", "-g", "paths.c", "-o", "counted"]);
    trodden(&["cc", "--trodden=addresses", "-O1", "-g", "paths.c", "-o", "paths"]);
    trodden(&["record", "--no-store", "-o", "counted.trodden", "--", "./counted"]);
    let said = trodden(&["simulate", "--profile", "hot.trodden", "--profile-of", "complete", "--", "./paths"]);
    assert!(said.contains("executions of paths"), "{said}");
    let (counted, found) = (count_paths(at, "counted.trodden"), count_paths(at, "hot.trodden"));
    let of = |counts: &std::collections::BTreeMap<(String, u64), u64>, function: &str| -> Vec<(u64, u64)> {
        counts.iter().filter(|((name, _), _)| name == function).map(|((_, id), count)| (*id, *count)).collect()
    };
    // In a function without loops, each path lies within a single detected path, so all counts must be exact.
    assert_eq!(of(&found, "classify"), of(&counted, "classify"));
    // In a function with loops, paths are joined from pieces of detected paths, based on the counts of the pieces that follow. The sums
    // must agree.
    let sum = |counts: &[(u64, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>() as f64;
    let (one, other) = (sum(&of(&counted, "loops")), sum(&of(&found, "loops")));
    assert!((one - other).abs() <= 0.02 * one, "{one} {other}: {counted:?} {found:?}");
    let held = trodden(&["simulate", "--profile", "table.trodden", "--table", "512x4", "--", "./paths"]);
    assert!(held.contains("table.trodden"), "{held}");
    assert!(expect_error(at, &["--profile", "x", "--preset", "whole-program", "--", "./paths"]).contains("ball-larus"));
    assert!(expect_error(at, &["--profile", "x", "--", "true"]).contains("--addresses"));
}

#[test]
fn a_recording_of_all_instructions_can_replay_events() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    compile(at, "counted", COUNTED_PROGRAM, &["-nostdlib", "-static", "-g"]);
    let events = ["--event", "l1-misses", "--event", "mispredictions", "--event", "power-analytical", "--json"];
    let live = read_json(at, &[&events[..], &["--record", "whole.trodrec", "--", "./counted"]].concat());
    let again = read_json(at, &[&events[..], &["--from", "whole.trodrec"]].concat());
    for key in ["instructions", "events", "processor", "tables", "skew", "lengths"] {
        assert_eq!(live[key], again[key], "{key}");
    }
    let only = read_json(at, &["--json", "--record", "only.trodrec", "--event", "instructions", "--", "./counted"]);
    assert_eq!(
        (&only["instructions"], read_json(at, &["--json", "--from", "only.trodrec"])["overlap"].as_f64()),
        (&live["instructions"], Some(100.0))
    );
    let power = ["--model", "reference", "--event", "power-analytical", "--event", "power-cycle", "--json", "--from", "only.trodrec"];
    assert!(read_json(at, &power)["power_models"]["overlap"].as_f64().unwrap() > 50.0);
    fs::write(
        at.join("e.toml"),
        "sources = [\"whole.trodrec\"]\nmetrics = [\"frequency\", \"l1-misses\", \"power-analytical\"]\n[factors]\n\
        preset = [\"ball-larus\", \"extended-loops\"]\nbranch-queue = [1, 4]\n",
    )
    .unwrap();
    let out = run_sweep(at, &["e.toml", "--html", "e.html", "--json", "e.json", "--distributions", "d.csv"]);
    let csv = String::from_utf8_lossy(&out.stdout);
    assert_eq!(csv.lines().count(), 4 * 3 + 1, "{csv}{}", String::from_utf8_lossy(&out.stderr));
    let page = fs::read_to_string(at.join("e.html")).unwrap();
    for title in
        ["Slowdown against the size of the branch queue", "frozen predictions", "power-analytical", "hottest paths", "at most N branches"]
    {
        assert!(page.contains(title), "{title}");
    }
    let distributions = fs::read_to_string(at.join("d.csv")).unwrap();
    assert!(distributions.contains("whole,overlap-with-frequency,l1-misses,") && distributions.contains("whole,branches,32,100.0000"));
    let results: Value = serde_json::from_str(&fs::read_to_string(at.join("e.json")).unwrap()).unwrap();
    assert_eq!((results["schema_version"].as_u64(), results["outcomes"].as_array().unwrap().len()), (Some(1), 12));
}

#[test]
fn a_sweep_writes_results_effects_and_a_page() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    compile(at, "counted", COUNTED_PROGRAM, &["-nostdlib", "-static", "-g"]);
    read_json(at, &["--json", "--record", "one.trodrec", "--", "./counted"]);
    let experiment = |design: &str| {
        let factors =
            "[factors]\nentries = [2, 64]\nassociativity = [1, 2]\nindex = [\"start\", \"xor\"]\nreplacement = [\"lfu\", \"rap\"]\n";
        fs::write(at.join("e.toml"), format!("sources = [\"one.trodrec\"]\ndesign = \"{design}\"\n{factors}")).unwrap();
        run_sweep(at, &["e.toml", "--html", "e.html"])
    };
    for (design, rows) in [("full-factorial", 16), ("plackett-burman", 8), ("plackett-burman-foldover", 16)] {
        let out = experiment(design);
        let (csv, notes) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(csv.lines().count(), rows + 1, "{csv}{notes}");
        assert!(csv.starts_with("source,associativity,entries,index,replacement,metric,overlap"));
        assert!(notes.contains(" 1. entries"), "{notes}");
        let page = fs::read_to_string(at.join("e.html")).unwrap();
        assert!(page.contains("<svg") && page.contains("Which factors matter"));
    }
    let factors = "[factors]\nentries = [4, 64]\nindex = [\"start\"]\n";
    fs::copy(at.join("one.trodrec"), at.join("two.trodrec")).unwrap();
    fs::write(at.join("e.toml"), format!("sources = [\"one.trodrec\", \"two.trodrec\"]\n{factors}")).unwrap();
    assert!(run_sweep(at, &["e.toml", "--html", "e.html"]).status.success());
    let page = fs::read_to_string(at.join("e.html")).unwrap();
    assert!(page.contains("<h1>Hot path tables: 2 configurations of one, two</h1>"), "{page}");
    assert!(page.contains("In all configurations: index start.") && page.contains(">entries 64</text>"), "{page}");
    assert!(page.contains(">mean</text>"), "{page}");
    let browser = Browser::start(&at.join("browser"));
    browser.open(&at.join("e.html"));
    browser.check_widths_and_schemes();
    assert_eq!(browser.console(), Vec::<String>::new());
    assert!(String::from_utf8_lossy(&experiment("guess").stderr).contains("plackett-burman"));
}

/// A CBP-5 branch trace with two iterations of a loop, a call and a return, 14 instructions in total.
const BT9_TRACE: &str = "BT9_SPA_TRACE_FORMAT\ntotal_instruction_count: 14\nBT9_NODES\nNODE 0 0 - 0 0\n\
NODE 1 0x1008 - 0x54 4 class: JMP+DIR+CND behavior: DYN+DIR taken_cnt: 1 not_taken_cnt: 1 tgt_cnt: 1\n\
NODE 2 0x1010 - 0x55 4 class: CALL+DIR+UCD behavior: AT+DIR taken_cnt: 1 not_taken_cnt: 0 tgt_cnt: 1\n\
NODE 3 0x2004 - 0x56 4 class: RET+IND+UCD\nBT9_EDGES\nEDGE 0 0 1 T 0x1000 - 2 traverse_cnt: 1\n\
EDGE 1 1 1 T 0x1000 - 2 traverse_cnt: 1\nEDGE 2 1 2 N 0x100c - 1 traverse_cnt: 1\nEDGE 3 2 3 T 0x2000 - 1 traverse_cnt: 1\n\
EDGE 4 3 0 T 0x1014 - 0 traverse_cnt: 1\nBT9_EDGE_SEQUENCE\n0\n1\n2\n3\n4\nEOF\n";

#[test]
fn traces_of_other_simulators_are_converted() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("t.bt9"), BT9_TRACE).unwrap();
    assert!(expect_error(at, &["--from", "t.bt9"]).contains("trodden-lab convert t.bt9"));
    let converted = run_laboratory(at, &["convert", "t.bt9", "-o", "t.trodrec"]);
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    let found = read_json(at, &["--json", "--from", "t.trodrec"]);
    // Four branches, and the instructions between the first and the last of them.
    assert_eq!(found["instructions"], 10, "{found}");
    // A corrupt file must still be recognised as a trace of another simulator.
    fs::write(at.join("cut.bt9"), &BT9_TRACE[..BT9_TRACE.len() - 40]).unwrap();
    fs::write(at.join("bad.bt9"), BT9_TRACE.replace("EDGE 1 1", "EDGE 1 77")).unwrap();
    for name in ["cut.bt9", "bad.bt9"] {
        let said = expect_error(at, &["--from", name]);
        assert!(said.contains(&format!("trodden-lab convert {name}")) && !said.contains("--partial"), "{said}");
    }
    // The callee returns to the instruction after another call, as after a `longjmp`.
    let jump = BT9_TRACE.replace("BT9_EDGES", "NODE 4 0x2002 - 0x55 2 class: CALL+DIR+UCD\nBT9_EDGES").replace("EDGE 3 2 3", "EDGE 3 2 4");
    let jump =
        jump.replace("BT9_EDGE_SEQUENCE", "EDGE 5 4 3 T 0x2004 - 0 traverse_cnt: 1\nBT9_EDGE_SEQUENCE").replace("\n4\nEOF", "\n5\n4\nEOF");
    fs::write(at.join("jump.bt9"), jump).unwrap();
    let converted = run_laboratory(at, &["convert", "jump.bt9", "-o", "jump.trodrec"]);
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    assert_eq!(read_json(at, &["--json", "--from", "jump.trodrec"])["detector"]["guessed_repairs"], 1);
    let report = String::from_utf8(run_simulate(at, &["--from", "jump.trodrec"]).stdout).unwrap();
    assert!(report.contains("1 guessed repair of the path stack"), "{report}");
}

#[test]
fn programs_files_and_options_that_do_not_fit_are_named() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("noise"), [0u8, 1, 2, 3, 255]).unwrap();
    fs::write(at.join("m.toml"), "[mapping]\ncall = [\"push\", \"pop\"]\n").unwrap();
    for (arguments, word) in [
        (vec!["--", "./nothing"], "not an executable program"),
        (vec!["--from", "noise"], "--format"),
        (vec!["--from", "nothing"], "nothing"),
        (vec!["--table", "7x7", "--", "true"], "power of two"),
        (vec!["--mapping", "m.toml", "--", "true"], "order"),
        (vec!["--path-limit", "99", "--", "true"], "1 to 64"),
    ] {
        let said = expect_error(at, &arguments);
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}
