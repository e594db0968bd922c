//! `trodden record --copies`: together, the copies must count what a single instrumented program counts, and nondeterministic programs must
//! be detected.

#[path = "../copies/executions.rs"]
mod executions;

use crate::place::{Place, laboratory, must, trodden, with_choices};
use std::collections::BTreeMap;
use std::process::Output;
use trodden_oracle::random;
use trodden_profile::{FunctionPaths, Profile, UnitProfile};
use trodden_unit::FunctionMap;

/// A program with branches, loops, `setjmp`, an indirect branch, recursion, a child process that continues after `fork`, and an exit from
/// within a function.
const PROGRAM: &str = r#"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static jmp_buf back;
__attribute__((noinline)) int step(int n) { if (n % 3 == 0) return n / 3; if (n & 1) return 3 * n + 1; return n >> 1; }
__attribute__((noinline)) int run(int n) { int s = 0; for (int i = 0; i < n; i++) { int k = step(i); if (k & 4) s += k;
  else if (k > 9) s -= i; if (s < -50) s = 0; } return s; }
__attribute__((noinline)) int depth(int n) { return n < 2 ? n : depth(n - 1) + (n & 1 ? 1 : depth(n / 2)); }
__attribute__((noinline)) void jump(int n) { if (n > 2) longjmp(back, n); puts("no jump"); }
__attribute__((noinline)) int twice(int n) { int k = setjmp(back); if (k > 5) return k; if (k > 3) jump(k + 4); jump(n); return 0; }
__attribute__((noinline)) int dispatch(const char *s) {
  static void *to[] = {&&a, &&b, &&end}; int n = 0;
#define NEXT goto *to[*s++ - '0']
  NEXT; a: n += 2; NEXT; b: n *= 3; NEXT; end: return n; }
__attribute__((noinline)) int child(int n) { int s = 0; pid_t pid = fork(); for (int i = 0; i < n; i++) s += step(i);
  if (pid == 0) { run(7); exit(0); } waitpid(pid, 0, 0); return s; }
__attribute__((noinline)) void leave(int n) { if (n > 10) { puts("leaving"); exit(3); } }
int main(int argc, char **argv) {
  char line[100]; int lines = 0;
  if (getenv("SHORT")) { printf("%d %d\n", run(3), depth(2)); return 0; }
  while (fgets(line, sizeof line, stdin)) lines++;
  printf("%d %d %d %d %d %d\n", lines, run(2000), depth(15), twice(1) + twice(4) + twice(9), dispatch("0011012"), child(20));
  fflush(stdout);
  leave(argc);
  leave(argc + 10);
  return 0;
}
"#;

fn record(place: &Place, program: &str, arguments: &str) -> Output {
    let mut command = place.command(trodden());
    with_choices(command.args(["record", "--no-store", "-o", "run.trodden"]), arguments.split_whitespace()).arg("--").arg(program);
    command.stdin(std::fs::File::open(place.path("input")).unwrap());
    command.output().unwrap()
}

fn count_paths(place: &Place) -> BTreeMap<(String, String, u64), u64> {
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    let functions = profile.functions();
    functions
        .flat_map(|(image, unit, f)| unit.counts_of(f).map(move |(path, n)| ((image.identity.to_string(), f.name.clone(), path), n)))
        .collect()
}

#[test]
fn merged_counts_of_copies_equal_counts_of_one_program() {
    let place = Place::with(&[("prog.c", PROGRAM), ("input", "one\ntwo\n")]);
    place.cc("-O2 prog.c -o prog");
    let one = record(&place, "./prog", "");
    assert_eq!(one.status.code(), Some(3), "{}", String::from_utf8_lossy(&one.stderr));
    let truth = count_paths(&place);
    assert!(truth.len() > 20, "{} {truth:?}", truth.len());
    std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    for arguments in [
        // Without --weights, the recording starts with a sampled run.
        "--copies 2",
        "--copies 3 --weights one.trodden --costs costs.json --baseline",
        "--copies 3 --strategy p3 --all-procedures --own-folders",
        // Strategy sbl lets one copy count everything.
        "--copies 2 --strategy sbl",
    ] {
        let copies = record(&place, "./prog", arguments);
        let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
        assert_eq!((copies.status.code(), &copies.stdout), (Some(3), &one.stdout), "{arguments}: {reported}");
        assert_eq!(count_paths(&place), truth, "{arguments}");
    }
    let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap();
    let hits = |name: &str| costs[name].as_u64().unwrap();
    assert!(hits("lower_bound_hits") <= hits("hits_of_slowest") && hits("hits_of_slowest") < hits("sequential_hits"), "{costs}");
    let base = costs["baseline"]["sequential_ns"].as_u64().unwrap();
    assert!(base > 0 && costs["diverged"].as_array().unwrap().is_empty(), "{costs}");
    let slowest = costs["copies"][hits("slowest_copy") as usize]["wall_ns"].as_u64().unwrap();
    let is = |name: &str, value: f64| assert!((costs[name].as_f64().unwrap() - value).abs() < 1e-9, "{name} {value} {costs}");
    is("saving", 1.0 - slowest as f64 / base as f64);
    is("distance_from_ideal", hits("hits_of_slowest") as f64 / hits("ideal_hits") as f64 - 1.0);
}

#[test]
fn hits_are_compared_with_a_program_instrumented_with_the_same_knowledge() {
    let text = include_str!("../copies/words.c");
    let place = Place::with(&[("words.c", text), ("input", &text.repeat(20))]);
    place.cc("-O1 -g -fno-inline words.c -o words");
    let costs = |arguments: &str| -> serde_json::Value {
        let output = record(&place, "./words", &format!("--copies 2 --costs costs.json --count-hits {arguments}"));
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments}: {reported}");
        serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap()
    };
    // Without measured frequencies, labels (increments on edges) are placed by estimates.
    let blind = ["--strategy sbl", "--strategy pbl", "--strategy p3 --all-procedures", "--strategy weighted --no-first-run"].map(costs);
    assert!(record(&place, "./words", "").status.success());
    std::fs::rename(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    let measured = ["--strategy sbl", "--strategy pbl", "--strategy weighted"].map(|s| costs(&format!("{s} --weights one.trodden")));
    for known in [&blind[..], &measured[..]] {
        let of_one = &known[0]["sequential_hits"];
        for costs in known {
            let hits = |name: &str| costs[name].as_u64().unwrap();
            assert!(&costs["sequential_hits"] == of_one, "{of_one} {costs:#}");
            assert!(hits("lower_bound_hits") <= hits("hits_of_slowest") && hits("hits_of_slowest") <= hits("sequential_hits"), "{costs:#}");
            for copy in costs["copies"].as_array().unwrap() {
                assert_eq!(copy["counted"], serde_json::json!([copy["hits"], copy["label_hits"]]), "{costs:#}");
            }
        }
        // With strategy sbl, copy 0 counts all paths. Copy 1 counts only the functions that all copies count to detect different behaviour.
        assert_eq!(known[0]["hits_of_slowest"], *of_one);
        assert!(known[0]["copies"][1]["hits"].as_u64() < of_one.as_u64());
    }
    assert!(measured[0]["sequential_hits"].as_u64() <= blind[0]["sequential_hits"].as_u64());
}

fn count_edges(place: &Place) -> BTreeMap<String, Vec<u64>> {
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    let of = |unit: &UnitProfile, f: &FunctionMap| FunctionPaths::decode(f, unit.counts_of(f)).unwrap().edges;
    profile.functions().map(|(_, unit, f)| (f.name.clone(), of(unit, f))).collect()
}

#[test]
fn edge_counts_of_copies_equal_edge_counts_from_paths() {
    let place = Place::with(&[("prog.c", PROGRAM), ("input", "one\ntwo\n")]);
    place.cc("-O2 prog.c -o prog");
    let one = record(&place, "./prog", "");
    let (truth, paths) = (count_edges(&place), count_paths(&place));
    assert!(truth.values().flatten().filter(|n| **n > 0).count() > 30, "{truth:?}");
    std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    for arguments in
        ["--copies 3 --divide edges --weights one.trodden --costs costs.json --baseline", "--copies 1 --divide edges --no-first-run"]
    {
        let copies = record(&place, "./prog", arguments);
        let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
        assert_eq!((copies.status.code(), &copies.stdout), (Some(3), &one.stdout), "{arguments}: {reported}");
        assert_eq!(count_edges(&place), truth, "{arguments}");
        // Edge counts are stored under an image identity of their own, so that no reader takes them for path counts.
        assert!(count_paths(&place).keys().all(|(image, ..)| paths.keys().all(|(own, ..)| own != image)));
    }
    let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap();
    let hits = |name: &str| costs[name].as_u64().unwrap();
    let all: u64 = truth.values().flatten().sum();
    assert!(hits("sequential_hits") < all * 3 / 4 && hits("hits_of_slowest") < hits("sequential_hits") / 2, "{all} {costs}");
    let report = String::from_utf8(place.trodden("report run.trodden").stdout).unwrap();
    assert!(report.contains("edges of the control-flow graph instead of paths (--divide edges)"), "{report}");
}

/// Returns the counters with a time of first execution.
fn find_timed_counters(place: &Place) -> Vec<u64> {
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    profile.images.iter().flat_map(|i| &i.units).flat_map(|u| u.counts.first_seen.iter().map(|seen| seen.0)).collect()
}

#[test]
fn copies_of_a_residual_build_find_the_same_untested_paths() {
    let place = Place::with(&[("prog.c", PROGRAM), ("input", "one\ntwo\n")]);
    place.cc("-O2 prog.c -o prog");
    // The tests execute few paths of only two functions, so nearly all paths are untested.
    let mut tests = place.command(trodden());
    must(tests.args(["record", "--no-store", "-o", "tests.trodden", "--", "./prog"]).env("SHORT", "1"));
    place.trodden("instrument ./prog --residual tests.trodden -o prog.field");
    let one = record(&place, "./prog.field", "");
    let (truth, times) = (count_paths(&place), find_timed_counters(&place));
    assert!(truth.len() > 15 && times.len() > 10, "{truth:?} {times:?}");
    for arguments in ["--copies 3 --baseline", "--copies 2 --strategy pbl --weights tests.trodden"] {
        let copies = record(&place, "./prog.field", arguments);
        let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
        assert_eq!((copies.status.code(), &copies.stdout), (Some(3), &one.stdout), "{arguments}: {reported}");
        assert_eq!(count_paths(&place), truth, "{arguments}");
        assert_eq!(find_timed_counters(&place), times, "{arguments}: it is not known when paths were taken first");
    }
    let refused = record(&place, "./prog.field", "--copies 2 --strategy p3");
    let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && reported.contains("each function must be counted by one copy"), "{reported}");
}

#[test]
fn merged_counts_of_random_programs_are_exact() {
    for seed in 0..4 {
        let program = random::program(seed);
        let (source, driver) = if program.language == random::RandomLanguage::C { ("s.c", "cc") } else { ("s.cpp", "c++") };
        let place = Place::with(&[(source, &program.text), ("input", "")]);
        must(place.command(trodden()).arg(driver).args(["-O1", "-w", "-pthread", source, "-o", "prog"]));
        let one = record(&place, "./prog", "");
        let truth = count_paths(&place);
        std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
        let arguments = ["--copies 2 --weights one.trodden", "--copies 3 --strategy p3 --all-procedures", "--copies 3 --no-first-run"]
            [seed as usize % 3];
        let copies = record(&place, "./prog", arguments);
        let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
        assert_eq!((copies.status.code(), &copies.stdout), (one.status.code(), &one.stdout), "seed {seed} {arguments}: {reported}");
        assert_eq!(count_paths(&place), truth, "seed {seed} {arguments}");
        if seed % 2 == 0 {
            let copies = record(&place, "./prog", "--copies 2 --divide edges --baseline --weights one.trodden");
            assert_eq!(copies.status.code(), one.status.code(), "seed {seed}: {}", String::from_utf8_lossy(&copies.stderr));
        }
    }
}

/// A program with loops, branches and calls that return, and with tight loops that have one path, in one block or in two blocks.
const COUNTED_PROGRAM: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) unsigned hash(const char *s) { unsigned h = 0; while (*s) h = (h ^ (unsigned char)*s++) * 16777619u; \
    return h; }\n\
    __attribute__((noinline)) int find(const char *s, const char *end) { const char *from = s; while (s < end && *s != ' ') s++; return \
    s - from; }\n\
    __attribute__((noinline)) int step(int n) { if (n % 3 == 0) return n / 3; if (n & 1) return 3 * n + 1; return n >> 1; }\n\
    __attribute__((noinline)) int run(int n) { int s = 0; for (int i = 0; i < n; i++) { int k = step(i); if (k & 4) s += k; else if (k > \
    9) s -= i; if (s < -50) s = 0; } return s; }\n\
    int main(void) { int s = 0; for (int i = 0; i < 50; i++) { char word[] = \"a word of some letters\"; word[i % 20] = i % 3 ? ' ' : 0; \
    s += run(i * 10) + hash(word) % 7 + find(word, word + 20); } printf(\"%d\\n\", s); return 0; }\n";

#[test]
fn counted_hits_equal_computed_hits() {
    let place = Place::with(&[("prog.c", COUNTED_PROGRAM), ("input", "")]);
    place.cc("-O2 prog.c -o prog");
    record(&place, "./prog", "");
    std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    for strategy in ["p3 --all-procedures", "weighted"] {
        let arguments = format!("--copies 2 --weights one.trodden --count-hits --baseline --costs costs.json --strategy {strategy}");
        let copies = record(&place, "./prog", &arguments);
        assert_eq!(copies.status.code(), Some(0), "{}", String::from_utf8_lossy(&copies.stderr));
        let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap();
        let mut all = 0;
        for copy in costs["copies"].as_array().unwrap() {
            let hits = |name: &str| copy[name].as_u64().unwrap();
            all += hits("hits");
            assert_eq!(copy["counted"], serde_json::json!([hits("hits"), hits("label_hits")]), "{strategy}");
        }
        assert!(all > 1_000, "{strategy}: {all} hits");
    }
}

fn find_compiled_units(reported: &str) -> &str {
    reported.lines().find_map(|line| line.strip_prefix("trodden: compiling ")).and_then(|rest| rest.split_once(';')).expect(reported).0
}

#[test]
fn shared_units_are_compiled_once_and_the_newest_run_provides_weights() {
    let work = "int work(int n) { int s = 0; for (int i = 0; i < n; i++) { if (i % 3) s += i; else if (i & 4) s -= n; } return s; }\n";
    let rest = "int rest(int n) { return n > 3 ? n : -n; }\n";
    let main = "#include <stdio.h>\nint work(int), rest(int); int main(int c, char **v) { printf(\"%d\\n\", work(100 * c) + rest(c)); \
        return 0; }\n";
    let place = Place::with(&[("work.c", work), ("rest.c", rest), ("main.c", main), ("input", "")]);
    place.cc("-O1 work.c rest.c main.c -o prog");
    let run = |arguments: &[&str]| {
        let made = with_choices(place.command(trodden()).arg("record"), arguments.iter().copied()).args(["--", "./prog"]).output().unwrap();
        let reported = String::from_utf8_lossy(&made.stderr).into_owned();
        assert_eq!(made.status.code(), Some(0), "{reported}");
        reported
    };
    run(&[]);
    let reported = run(&["--copies", "3"]);
    assert!(reported.contains("according to run 1, the latest of this build (./prog)"), "{reported}");
    // All three units are linked into each of the three copies. `rest` and `main` are each counted by one copy at most, so fewer than nine
    // units must be compiled.
    let first: Vec<usize> = find_compiled_units(&reported).split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(first[0] < first[1] && first[1] == 9, "{reported}");
    assert_eq!(find_compiled_units(&run(&["--copies", "3", "--weights", "1"])), "0 of 9 units");
    let reported = run(&["--copies", "3", "--no-store", "-o", "x", "--strategy", "pbl"]);
    assert!(!reported.contains("according to run"), "{reported}");
    let stored = String::from_utf8(must(place.command(trodden()).arg("cache")).stdout).unwrap();
    assert!(stored.contains("(objects of copies)"), "{stored}");
}

#[test]
fn without_a_stored_run_the_program_is_sampled_first() {
    // The program runs long enough for some samples. Its hot function is not the one that estimates predict.
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        __attribute__((noinline)) unsigned hot(unsigned n, unsigned s) { while (n--) { s = s * 1103515245u + 12345u; if (s & 256) s ^= \
        n; } return s; }\n\
        __attribute__((noinline)) unsigned cold(unsigned n) { unsigned s = 0; for (unsigned i = 0; i < n; i++) for (unsigned j = 0; j < \
        n; j++) for (unsigned k = 0; k < n; k++) if (i * j < k) s += k; return s; }\n\
        int main(void) { unsigned s = cold(3); for (int i = 0; i < 60000; i++) s += hot(1000, s ^ i); printf(\"%u\\n\", s); return 0; }\n";
    let place = Place::with(&[("prog.c", source), ("input", "")]);
    place.cc("-O1 prog.c -o prog");
    record(&place, "./prog", "");
    let truth = count_paths(&place);
    for (arguments, said) in
        [("", "the program first runs once, with sampling"), ("--no-first-run", "divided among the copies by estimated frequencies")]
    {
        let copies = record(&place, "./prog", &format!("--copies 2 --costs costs.json {arguments}"));
        let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
        assert_eq!(copies.status.code(), Some(0), "{reported}");
        assert!(reported.contains(said), "{reported}");
        assert_eq!(count_paths(&place), truth, "{arguments}");
        assert!(!arguments.is_empty() || !reported.contains("before a sample was taken"), "{reported}");
    }
    // The program is too short for a sample, so it runs a second time, with full counting.
    let short = Place::with(&[("prog.c", COUNTED_PROGRAM), ("input", "")]);
    short.cc("-O1 prog.c -o prog");
    let copies = record(&short, "./prog", "--copies 2 --costs costs.html");
    let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
    assert!(copies.status.code() == Some(0) && !reported.contains("estimated frequencies"), "{reported}");
    let page = std::fs::read_to_string(short.path("costs.html")).unwrap();
    assert!(
        page.contains("the slowest is copy") && page.contains("--baseline` measures it") && page.contains("the ideal of equal shares"),
        "{page}"
    );
}

/// Returns the source of a function with four tasks.
fn generate_task_function(name: &str) -> String {
    format!(
        "__attribute__((noinline)) {name}(int n) {{ switch (n & 3) {{ case 0: return 5; case 1: return n / 3; case 2: return n * n; }} \
            return -n; }}\n"
    )
}

#[test]
fn strategy_p3_divides_functions_with_one_call_site() {
    let own = generate_task_function("static int own");
    let one = format!(
        "{own}{}int more(int);\nint twice(int);\nint by_alias(int);\nint main(int c, char **v) {{ return own(c) + once(c) + twice(c) + \
            by_alias(c) + more(c); }}\n",
        generate_task_function("int once")
    );
    let alias = "int by_alias(int n) __attribute__((alias(\"renamed\")));\n";
    let more = "int more(int n) { return own(n + 1) + twice(n) + renamed(n); }\n";
    let other = format!("{own}{}{}{alias}{more}", generate_task_function("int twice"), generate_task_function("int renamed"));
    let place = Place::with(&[("one.c", &one), ("other.c", &other)]);
    place.cc("-O1 -g one.c other.c -o prog");
    // `once` and both functions named `own` have one call site; `twice` and `renamed` have two. The other functions contain only diamonds,
    // for which strategy p3 does nothing.
    for (arguments, divided) in [("", 3), ("--all-procedures", 5), ("--max-callers 0", 0), ("--max-callers 2", 5)] {
        let answer = place.laboratory(&format!("plan ./prog -k 2 --strategy p3 --json {arguments}")).stdout;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["plans"][0]["profitable_procedures"], divided, "{arguments}: {answer}");
    }
}

fn generate_worker_program(calls: &str) -> String {
    format!(
        "static volatile int v;\n__attribute__((noinline)) static int work(int n) {{ if (n & v) return v; return n * v; }}\n\
            __attribute__((noinline)) static int down(int n) {{ if (n < v) return v; return down(n - v) + down(n / 2 - v); }}\n\
            int main(int c, char **a) {{ int s = 0; {calls} return s; }}\n"
    )
}

/// Without a profile, a function's executions are estimated from its calls: a call in a loop is multiplied by the loop's estimated
/// iterations, and recursion is limited.
#[test]
fn estimated_executions_follow_calls() {
    let hits = |calls: &str| {
        let place = Place::with(&[("prog.c", &generate_worker_program(calls))]);
        place.cc("-O1 prog.c -o prog");
        let answer = place.laboratory("plan ./prog -k 2 --strategy pbl --json").stdout;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        answer["plans"][0]["bound"]["sequential"].as_u64().unwrap()
    };
    let (once, looped) = (hits("s = work(c);"), hits("for (int i = 0; i < c; i++) s += work(i);"));
    let nested = hits("for (int i = 0; i < c; i++) for (int j = v; j < c; j++) s += work(i);");
    assert!(looped > 10 * once && nested > 10 * looped, "{once}, {looped}, {nested}");
    let recursive = hits("s = down(c);");
    assert!(recursive > 64 * once && recursive < 100_000 * once, "{once}, {recursive}");
}

#[test]
fn number_of_probes_per_copy_can_be_limited() {
    let place = Place::with(&[("prog.c", PROGRAM), ("input", "x\n")]);
    place.cc("-O1 -g prog.c -o prog");
    let plan = |most: &str| {
        let answer = place.laboratory(&format!("plan ./prog --max-probes {most} --json")).stdout;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        let copies = answer["plans"][0]["copies"].as_array().unwrap().clone();
        (answer["plans"][0]["strategy"].clone(), copies.iter().map(|copy| copy["probes"].as_u64().unwrap()).collect::<Vec<_>>())
    };
    let (name, one) = plan("100000");
    assert!(name == "bounded" && one.len() == 1, "{name} {one:?}");
    let most = (one[0] / 3).to_string();
    let (_, copies) = plan(&most);
    assert!(copies.len() >= 3 && copies.iter().all(|probes| *probes <= one[0] / 3), "{copies:?}");
    assert_eq!(record(&place, "./prog", "").status.code(), Some(3));
    let expected = count_paths(&place);
    let needed = copies.len();
    let shared = record(&place, "./prog", &format!("--copies {needed} --max-probes {most} --no-first-run"));
    assert_eq!(shared.status.code(), Some(3), "{shared:?}");
    assert_eq!(count_paths(&place), expected);
    let refused = record(&place, "./prog", &format!("--copies {} --max-probes {most} --no-first-run", needed - 1));
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("or more"), "{refused:?}");
}

/// A program that executes itself by its own name. In a copy, this must execute the same copy.
const SELF_EXECUTING_PROGRAM: &str = "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
    __attribute__((noinline)) int walk(int n) { int s = 0; for (int i = 0; i < n; i++) { if (i % 3) s += i; else s -= 2; } return s; }\n\
    int main(int c, char **v) { int s = walk(c > 1 ? 5 : 40); if (c == 1) { if (!fork()) { execl(v[0], v[0], \"x\", (char *)0); \
    _exit(9); } wait(0); } return s == 1; }\n";

#[test]
fn program_that_executes_itself_is_one_image() {
    let place = Place::with(&[("prog.c", SELF_EXECUTING_PROGRAM), ("input", "")]);
    place.cc("-O1 prog.c -o prog");
    record(&place, "./prog", "");
    let truth = count_paths(&place);
    std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    let copies = record(&place, "./prog", "--copies 2 --weights one.trodden --baseline");
    assert_eq!(copies.status.code(), Some(0), "{}", String::from_utf8_lossy(&copies.stderr));
    assert_eq!(count_paths(&place), truth);
    assert_eq!(Profile::read(&place.path("run.trodden")).unwrap().images.len(), 1);
}

const OPTIONAL_LOOP_PROGRAM: &str = "#include <stdlib.h>\nstatic int a[1000]; volatile long g;\n\
    __attribute__((noinline)) long hot(long n) { long s = 0; for (long i = 0; i < n; i++) { if (a[i % 1000] & 1) s += i; else s ^= i; if \
    (a[(i + 3) % 1000] & 2) s += 3; else s -= g; if (a[(i + 5) % 1000] & 4) g++; else g--; } return s; }\n\
    __attribute__((noinline)) long known(long x) { if (x & 1) g++; else g--; if (x & 2) g += 2; return g; }\n\
    int main(int c, char **v) { for (int i = 0; i < 1000; i++) a[i] = i * 7; long s = 0; for (long r = 0; r < 1000; r++) s += known(r); \
    return (c > 1 ? hot(30000) : 0) + s == 1; }\n";

#[test]
fn code_that_no_run_executed_is_divided_by_estimates() {
    let place = Place::with(&[("prog.c", OPTIONAL_LOOP_PROGRAM), ("input", "")]);
    place.cc("-O2 prog.c -o prog");
    place.trodden("record --no-store -o few.trodden -- ./prog");
    place.trodden("record --no-store -o copies.trodden --copies 2 --weights few.trodden --costs costs.json -- ./prog x");
    let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap();
    let hits = |name: &str| costs[name].as_u64().unwrap();
    assert!(hits("hits_of_slowest") <= hits("sequential_hits"), "{costs}");
}

const LARGE_MEMORY_PROGRAM: &str =
    "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(200 << 20); if (!p) return 3; p[0] = 1; return p[0] - 1; }\n";

#[test]
fn baseline_runs_under_the_conditions_of_copies() {
    let place = Place::with(&[
        ("greedy.c", LARGE_MEMORY_PROGRAM),
        ("echo.c", "#include <stdio.h>\nint main(void) { int c, n = 0; while ((c = getchar()) != EOF) n++; return n; }\n"),
        ("input", ""),
    ]);
    place.cc("-O1 greedy.c -o greedy");
    let copies = record(&place, "./greedy", "--copies 2 --no-first-run --memory 64 --baseline");
    let reported = String::from_utf8_lossy(&copies.stderr).into_owned();
    assert_eq!(copies.status.code(), Some(3), "{reported}");
    // Standard input from a pipe is given to each copy in full.
    place.cc("-O1 echo.c -o echo");
    nix::unistd::mkfifo(&place.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pipe = place.path("pipe");
    let writer = std::thread::spawn(move || std::fs::write(pipe, "seven b").unwrap());
    let mut command = place.command(trodden());
    let arguments = "record --no-store -o run.trodden --copies 3 --no-first-run -- ./echo";
    let copies = with_choices(&mut command, arguments.split(' ')).stdin(std::fs::File::open(place.path("pipe")).unwrap()).output().unwrap();
    writer.join().unwrap();
    assert_eq!(copies.status.code(), Some(7), "{}", String::from_utf8_lossy(&copies.stderr));
    // Each copy gets the unread rest of a file that was read in part, and the content of a deleted file.
    std::fs::write(place.path("nine"), "123456789").unwrap();
    let mut file = std::fs::File::open(place.path("nine")).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(4)).unwrap();
    let given =
        |file: std::fs::File| with_choices(&mut place.command(trodden()), arguments.split(' ')).stdin(file).status().unwrap().code();
    assert_eq!(given(file), Some(5));
    let file = std::fs::File::open(place.path("nine")).unwrap();
    std::fs::remove_file(place.path("nine")).unwrap();
    assert_eq!(given(file), Some(9));
}

#[test]
fn plan_rejects_programs_that_cannot_be_divided() {
    let place = Place::with(&[("prog.c", COUNTED_PROGRAM)]);
    place.cc("--trodden=sample -O1 prog.c -o prog");
    let output = place.command(laboratory()).args(["plan", "./prog"]).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && reported.contains("cannot divide the paths of"), "{reported}");
}
