//! Sampling: `record` with bursts for programs that count nothing by themselves, `record --attach` for a running program, and inputs that
//! are rejected. The crate `trodden-oracle` compares the counts of bursts with full counts.

use crate::place::{Place, must, trodden};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trodden_profile::{FunctionPaths, Profile};

/// A program that runs for as many milliseconds as its argument says. Three of four calls to `step` take the same path.
const PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\n\
    __attribute__((noinline)) long step(long n) { if (n & 3) { __asm__ volatile(\"nop\"); return n; } return 2 * n; }\n\
    static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }\n\
    int main(int argc, char **argv) { long end = now() + atol(argv[1]), s = 0, i = 0;\n\
    while (now() < end) for (int k = 0; k < 1000; k++) s += step(i++); printf(\"%s\\n\", s ? \"done\" : \"\"); return 3; }\n";

fn create_place() -> Place {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=sample -O2 prog.c -o prog");
    place
}

fn record_command(place: &Place, more: &[&str]) -> Command {
    let mut command = place.command(trodden());
    command.args(["record", "--no-store", "-o", "run.trodden"]).args(more).args(["--", "./prog", "1500"]);
    command
}

/// Returns the number of counted executions of `step`, and the share of its more frequent path.
fn observe_step(profile: &Profile) -> (u64, f64) {
    let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == "step").unwrap();
    let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
    (paths.total(), paths.complete.first().map_or(0.0, |p| p.count as f64 / paths.total() as f64))
}

#[test]
fn sampled_run_is_marked_as_sampled() {
    let place = create_place();
    let info = place.command(trodden()).args(["info", "--json", "prog"]).output().unwrap();
    let text = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(text.contains("when=bursts") && !text.contains(".counted"), "{text}");
    let output = record_command(&place, &["--burst", "1ms", "--every", "10ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains(" % of the run time, in "), "{output:?}");
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    let sampling = profile.sampling.as_ref().and_then(|s| s.bursts()).unwrap();
    assert!(sampling.bursts > 3 && sampling.on_ns > 0 && sampling.scale() > 1.5, "{sampling:?}");
    let (seen, share) = observe_step(&profile);
    assert!(seen > 1000 && (share - 0.75).abs() < 0.01, "{seen} {share}");
    let report = place.command(trodden()).args(["report", "run.trodden"]).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(text.contains("estimated ") && text.contains("sampled"), "{text}");
    assert!(!text.contains("unfinished"), "{text}");
    let json = place.command(trodden()).args(["report", "--json", "run.trodden"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json["sampling"]["scale"].as_f64().unwrap() > 1.5);
    assert!(json["paths"][0]["estimate"]["executions"].as_f64().unwrap() > json["paths"][0]["count"].as_f64().unwrap());
}

#[test]
fn without_a_recorder_nothing_is_counted() {
    let place = create_place();
    let status =
        place.command(place.path("prog").to_str().unwrap()).arg("20").env("TRODDEN_OUTPUT", place.path("raw/%m.raw")).status().unwrap();
    assert_eq!(status.code(), Some(3));
    let output = place.command(trodden()).args(["import", "--no-store", "-o", "c.trodden", "raw"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(observe_step(&Profile::read(&place.path("c.trodden")).unwrap()).0, 0);
}

#[test]
fn running_program_is_sampled_by_process_id() {
    let place = create_place();
    let mut program = place.command(place.path("prog").to_str().unwrap());
    let mut child = program.arg("8000").env("TRODDEN_OUTPUT", place.path("raw/%m.raw")).stdout(Stdio::null()).spawn().unwrap();
    let waited = Instant::now();
    while !place.path("raw").exists() && waited.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    let mut seen = Vec::new();
    for name in ["one.trodden", "two.trodden"] {
        let mut sample = place.command(trodden());
        sample.args(["record", "--attach"]).arg(child.id().to_string()).args([
            "--for",
            "800ms",
            "--every",
            "20ms",
            "--no-store",
            "-o",
            name,
        ]);
        let output = sample.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        seen.push(observe_step(&Profile::read(&place.path(name)).unwrap()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for (count, share) in seen {
        assert!(count > 100 && (share - 0.75).abs() < 0.02, "{count} {share}");
    }
    // A raw file does not say which part of the run it covers, so it cannot be imported.
    let output = place.command(trodden()).args(["import", "--no-store", "-o", "c.trodden", "raw"]).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("`trodden record --attach`"), "{output:?}");
    let merged = place.command(trodden()).args(["merge", "-o", "both.trodden", "one.trodden", "one.trodden"]).status().unwrap();
    assert!(merged.success());
}

#[test]
fn files_that_cannot_be_sampled_are_rejected() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O2 prog.c -o prog");
    let output = record_command(&place, &["--burst", "500us"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was sampled"), "{output:?}");
    std::fs::rename(place.path("run.trodden"), place.path("full.trodden")).unwrap();
    place.cc("--trodden=sample -O2 prog.c -o prog");
    assert_eq!(record_command(&place, &[]).output().unwrap().status.code(), Some(3));
    let merge =
        place.command(trodden()).args(["merge", "-o", "m.trodden", "--separate-builds", "full.trodden", "run.trodden"]).output().unwrap();
    assert!(String::from_utf8_lossy(&merge.stderr).contains("counted in bursts"), "{merge:?}");
    let diff = place.command(trodden()).args(["diff", "--across-builds", "--json", "full.trodden", "run.trodden"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
    assert!(json["overlap"]["executions"].as_f64().unwrap() > 0.95, "{}", json["overlap"]);
    for (arguments, message) in [
        (["record", "--attach", "/nonexistent"], "expected a file, a folder or the ID of a running process"),
        (["record", "--attach", "full.trodden"], "cannot sample"),
    ] {
        let output = place.command(trodden()).args(arguments).args(["--no-store", "-o", "x.trodden"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(message) || text.contains("raw"), "{text}");
    }
}

#[test]
fn variants_switch_between_full_counting_and_sampling_without_sources() {
    let place = create_place();
    place.remove("prog.c");
    for (from, to, parameters, sampled) in [("prog", "full", "", false), ("full", "again", "--sample", true)] {
        let output = place.trodden(&format!("instrument {from} -o {to} {parameters}"));
        assert!(!String::from_utf8_lossy(&output.stderr).contains("remains unchanged"), "{output:?}");
        let found: Vec<bool> = place.image(to).frames.iter().map(|f| f.map().unwrap().experiment.is_sampled()).collect();
        assert_eq!(found, [sampled]);
    }
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./full", "50"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    assert!(profile.sampling.is_none() && observe_step(&profile).0 >= 1000);
}

/// A program with a loop of four instructions whose trip count is an argument. Another loop contains an inner loop of two instructions and
/// a few hundred iterations.
const LOOPS_PROGRAM: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
    __attribute__((noinline)) unsigned spin(unsigned long n) { unsigned x = 1; do x = x * 1664525u + 1013904223u; while (--n); return x; \
    }\n\
    __attribute__((noinline)) long places(const char *s, long n) { long sum = 0; while (n--) { const char *p = s; while (*p < 'z') p++; \
    sum += p - s; __asm__ volatile(\"\" ::: \"memory\"); } return sum; }\n\
    int main(int argc, char **argv) { char *s = calloc(1, 400); for (int i = 0; i < 300; i++) s[i] = 'a' + i % 7; s[300] = 'z';\n\
    printf(\"%u %ld\\n\", spin(atol(argv[1])), places(s, 1000)); return 0; }\n";

#[test]
fn burst_begins_and_ends_within_a_short_loop() {
    let place = Place::with(&[("prog.c", LOOPS_PROGRAM)]);
    place.cc("--trodden=sample -O2 prog.c -o prog");
    let iterations = 500_000_000;
    let mut command = place.command(trodden());
    command.args([
        "record",
        "--no-store",
        "--burst",
        "1ms",
        "--every",
        "20ms",
        "-o",
        "run.trodden",
        "--",
        "./prog",
        &iterations.to_string(),
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == "spin").unwrap();
    let seen = FunctionPaths::decode(function, unit.counts_of(function)).unwrap().total();
    // The loop must check in each iteration whether a burst has begun or ended. Otherwise, it would count all iterations or none.
    assert!(seen > 1000 && seen < iterations / 2, "{seen}");
    let (_, _, places) = profile.functions().find(|(_, _, f)| f.name == "places").unwrap();
    assert_eq!(places.by_trip_count.len(), 1, "the inner loop is counted when it is left");
}

/// A program that calls a function a thousand times immediately after its start, long before a recorder can find it.
const EARLY_CALLS_PROGRAM: &str = "__attribute__((noinline)) void step(int n) { if (n & 3) __asm__ volatile(\"nop\"); }\n\
    int main(void) { for (int i = 0; i < 1000; i++) step(i); return 0; }\n";

#[test]
fn burst_as_long_as_the_period_counts_from_the_first_path_on() {
    let place = Place::with(&[("prog.c", EARLY_CALLS_PROGRAM)]);
    place.cc("--trodden=sample -O2 prog.c -o prog");
    let mut command = place.command(trodden());
    command.args(["record", "--no-store", "--burst", "100s", "--every", "100s", "-o", "run.trodden", "--", "./prog"]);
    assert!(command.output().unwrap().status.success());
    assert_eq!(observe_step(&Profile::read(&place.path("run.trodden")).unwrap()), (1000, 0.75));
}

/// A list traversal with a call in each iteration, and an interpreter with indirect branches. Sampling programs have a counting and an
/// uncounted version of each function. Because the interpreter's instruction `loop` jumps back, it checks which version to continue in.
const CODE_SOURCE: &str = r#"
#include <string.h>
struct item { struct item *next; int hash; const char *text; };
struct item *find(struct item *i, int hash, const char *text) {
    for (; i; i = i->next) if (i->hash == hash && strcmp(i->text, text) == 0) return i;
    return 0;
}
void use(unsigned char), print(long);
void run(const unsigned char *pc, long n, long a) {
    static const void *const table[] = {&&add, &&twice, &&loop, &&end};
    unsigned char code;
#define NEXT code = *pc; pc += 2; a ^= code; goto *table[code & 3]
    NEXT;
add: a += n; print(a); NEXT;
twice: a *= 2; print(a); NEXT;
loop: if (--n > 0) pc -= pc[-1]; use(code); NEXT;
end: print(a);
}
"#;

#[test]
fn uncounted_version_avoids_the_costs_of_having_two_versions() {
    let place = Place::with(&[("prog.c", CODE_SOURCE)]);
    place.cc("--trodden=sample -O2 -S prog.c -o prog.s");
    let assembly = std::fs::read_to_string(place.path("prog.s")).unwrap();
    let part = |from: &str| assembly.split_once(&format!("\n{from}:")).unwrap().1.split(".cfi_endproc").next().unwrap().to_owned();
    let times = |text: &str, what: &str| text.matches(what).count();
    assert!(times(&part("find"), "strcmp") > 2, "several iterations of the checking code come before a check");
    let run = part("run");
    assert!(times(&run, "*") >= 4, "jumps of each version: {run}");
    assert_eq!(times(&run, "run.table("), 1, "the checking code has its table's address from the entry on: {run}");
    place.cc("--trodden=sample -O2 -S -mllvm -stop-after=finalize-isel prog.c -o prog.mir");
    let code = std::fs::read_to_string(place.path("prog.mir")).unwrap();
    assert_eq!(times(&code, "function_entry_count"), 1, "one node, that of both functions");
    assert_eq!(times(&code, "phi i8"), 0, "what is extended is not merged");
}

#[test]
fn entry_counts_of_a_profile_are_preserved() {
    let main = r#"
#include <stdio.h>
struct item { struct item *next; int hash; const char *text; } last = {0, 1, "no"}, first = {&last, 2, "yes"};
struct item *find(struct item *, int, const char *);
void use(unsigned char code) { (void)code; }
void print(long a) { printf("%ld\n", a); }
int main(void) {
  int found = 0;
  for (int i = 0; i < 77; i++) found += find(&first, 1, "no") == &last;
  return found != 77;
}
"#;
    let place = Place::with(&[("main.c", main), ("prog.c", CODE_SOURCE)]);
    place.tool("clang-22", "-O2 -fprofile-generate=counts main.c prog.c -o plain");
    place.tool("./plain", "");
    place.shell("llvm-profdata-22 merge counts/*.profraw -o prog.profdata");
    // The profile for `-fprofile-use` does not contain this function.
    place.write(
        "prog.c",
        &format!(
            "{CODE_SOURCE}\n{}",
            CODE_SOURCE[CODE_SOURCE.find("struct item *find").unwrap()..CODE_SOURCE.find("void use").unwrap()].replace("find", "later")
        ),
    );
    let counts = |arguments: &str| {
        place.cc(&format!("--trodden=sample -O2 -w {arguments} -S -mllvm -stop-after=finalize-isel prog.c -o prog.mir"));
        let code = std::fs::read_to_string(place.path("prog.mir")).unwrap();
        let counts = code.lines().filter_map(|line| line.split_once("\"function_entry_count\", i64 "));
        counts.map(|(_, rest)| rest.trim_end_matches('}').to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(counts(""), ["1048576"], "of all three");
    assert_eq!(counts("-fprofile-use=prog.profdata"), ["77", "0"], "of `find` and `run`");
}

#[test]
fn functions_that_are_never_sampled_are_reported_first() {
    let source = "#include <setjmp.h>\n#include <stdio.h>\nstatic jmp_buf back;\nvolatile int sink;\n\
        __attribute__((noinline)) int tried(int n) { if (setjmp(back)) return 1; if (n & 1) sink++; return 0; }\n\
        __attribute__((noinline)) int step(int n) { return n % 3 ? n / 3 : n + 1; }\n\
        int main(void) { for (int i = 0; i < 20000000; i++) sink += step(i) + tried(i); return 0; }\n";
    let place = Place::with(&[("prog.c", source)]);
    place.cc("--trodden=sample -O1 prog.c -o prog");
    must(place.command(trodden()).args("record --no-store -o run.trodden --burst 1ms --every 10ms -- ./prog".split(' ')));
    let text = String::from_utf8(place.trodden("report run.trodden").stdout).unwrap();
    let line = text.lines().take(12).find(|line| line.contains("cannot be sampled")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("and therefore cannot be sampled: tried") && !line.contains("step"), "{line}");
    let json: serde_json::Value = serde_json::from_slice(&place.trodden("report run.trodden --json").stdout).unwrap();
    assert!(json["totals"]["not_exact"][0].as_str().unwrap().contains("cannot be sampled"), "{json}");
}

/// Returns nested loops, each with a call; the inner one has many short blocks. Either of them could be unrolled, so that several
/// iterations share one check for bursts.
fn generate_nested_loops() -> String {
    const CASES: u64 = 66;
    let cases: String = (0..CASES).map(|k| format!("i8 {k}, label %case.{k}\n")).collect();
    let blocks: String = (0..CASES).map(|k| format!("case.{k}:\n%sum.{k} = add i32 %old, {}\nbr label %inner.end\n", k * k + 3)).collect();
    let sums: String = (0..CASES).map(|k| format!(", [ %sum.{k}, %case.{k} ]")).collect();
    format!(
        "declare i32 @callee(i32)\n\
        define i32 @nested(ptr %bytes, i32 %count) {{\nentry:\nbr label %outer\nouter:\n\
        %left = phi i32 [ %count, %entry ], [ %fewer, %outer.end ]\n%at = phi ptr [ %bytes, %entry ], [ %next, %outer.end ]\n\
        %sum = phi i32 [ 0, %entry ], [ %more, %outer.end ]\nbr label %inner\ninner:\n\
        %here = phi ptr [ %at, %outer ], [ %next, %inner.end ]\n%old = phi i32 [ %sum, %outer ], [ %now, %inner.end ]\n\
        %byte = load i8, ptr %here\nswitch i8 %byte, label %other [\n{cases}]\n{blocks}\
        other:\n%called = call i32 @callee(i32 %old)\nbr label %inner.end\n\
        inner.end:\n%now = phi i32 [ %called, %other ]{sums}\n%next = getelementptr i8, ptr %here, i64 1\n\
        %ends = icmp eq i8 %byte, -1\nbr i1 %ends, label %outer.end, label %inner\n\
        outer.end:\n%more = call i32 @callee(i32 %now)\n%fewer = add i32 %left, -1\n%done = icmp eq i32 %fewer, 0\n\
        br i1 %done, label %exit, label %outer\nexit:\nret i32 %more\n}}\n"
    )
}

#[test]
fn only_one_of_two_nested_loops_is_copied() {
    let main = "#include <stdio.h>\nint nested(const unsigned char *, int);\nint callee(int n) { return n * 3 + 1; }\n\
        int main(void) { static unsigned char b[3000]; for (int i = 0; i < 3000; i++) b[i] = i % 100 == 99 ? 255 : i * 7 % 90;\n\
        printf(\"%d\\n\", nested(b, 30)); }\n";
    let place = Place::with(&[("nested.ll", &generate_nested_loops()), ("main.c", main)]);
    place.tool("clang-22", "-O0 -Wno-override-module nested.ll main.c -o plain");
    place.cc("--trodden=sample -O0 -Wno-override-module nested.ll main.c -o sampled");
    assert_eq!(place.output("sampled"), place.output("plain"));
}
