//! Programs that `trodden pgo` transforms based on their paths: they must behave as before and contain the planned transformations.

use crate::place::{Place, must, trodden};
use object::{Object, ObjectSection};
use std::collections::BTreeSet;
use std::process::Output;
use trodden_flow::Edge;
use trodden_oracle::random::{self, RandomLanguage};
use trodden_unit::transformations::{BranchWeights, LastIterations, PathCopy};
use trodden_unit::{EdgeKind, FunctionMap, Transformation, TransformationPlan};

/// A program with a loop whose last iteration skips some code, as is common in dynamic programming.
const LOOPS_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static void row(int *m, int *d, int *i, const int *b, const int *a, const int *t, int n) {
    for (int k = 1; k <= n; k++) {
        m[k] = b[k - 1] + t[k - 1];
        if (a[k - 1] + t[k] > m[k]) m[k] = a[k - 1] + t[k];
        d[k] = d[k - 1] + t[k];
        if (m[k - 1] + t[k - 1] > d[k]) d[k] = m[k - 1] + t[k - 1];
        if (k < n) {
            i[k] = b[k] + t[k];
            if (a[k] + t[k - 1] > i[k]) i[k] = a[k] + t[k - 1];
        }
    }
}
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 30;
    int *all[6];
    for (int j = 0; j < 6; j++) {
        all[j] = calloc(n + 2, sizeof(int));
        for (int k = 0; k <= n + 1; k++) all[j][k] = (k * 37 + j * 11) % 101 - 50;
    }
    for (int r = 0; r < 5000; r++) row(all[r % 2], all[2], all[3], all[1 - r % 2], all[4], all[5], n);
    unsigned sum = 0;
    for (int j = 0; j < 6; j++) for (int k = 0; k <= n + 1; k++) sum = sum * 31 + all[j][k];
    printf("%u\n", sum);
}
"#;

/// A program in which one branch determines a later one, with other work in between.
const DECIDED_PROGRAM: &str = r#"
#include <stdio.h>
static int table[64];
static volatile int odds, evens;
__attribute__((noinline)) static void up(void) { odds++; }
__attribute__((noinline)) static void down(void) { evens += 3; odds--; }
__attribute__((noinline)) static unsigned step(unsigned x, unsigned *other) {
    int odd = x >> 16 & 1;
    if (odd) up(); else down();
    table[x & 63]++;
    *other += table[(x >> 6) & 63];
    if (odd) down(); else up();
    return x ^ (unsigned)(odds - evens);
}
int main(void) {
    unsigned x = 12345, other = 0;
    for (int i = 0; i < 300000; i++) x = step(x * 1664525u + 1013904223u, &other);
    printf("%u %u\n", x, other);
}
"#;

fn run_pgo(place: &Place, choices: &str, flags: &str) -> Output {
    let mut command = place.command(trodden());
    command.arg("pgo").env("TRODDEN_LABORATORY", choices).args(["--train", "./prog > trained || true", "-o", "fast", "--"]);
    command.args(["sh", "-c", &format!("$CC {flags} -w prog.c -o prog")]);
    must(&mut command)
}

#[test]
fn last_iteration_of_a_loop_is_split_off() {
    let place = Place::with(&[("prog.c", LOOPS_PROGRAM)]);
    place.tool("clang-22", "-O2 -w prog.c -o plain");
    let reported = String::from_utf8(run_pgo(&place, "", "-O2 -g").stderr).unwrap();
    assert!(reported.contains("row") && reported.contains("loops with separate code for the last iteration: 1"), "{reported}");
    for n in ["0", "1", "2", "3", "9", "1000"] {
        let run = |program: &str| place.command(place.path(program)).arg(n).output().unwrap().stdout;
        assert_eq!(run("plain"), run("fast"), "{n}");
    }
    // The optimised program must not contain symbols of trodden.
    let symbols = String::from_utf8(place.tool("nm", "fast").stdout).unwrap();
    assert!(!symbols.contains("trodden"), "{symbols}");
}

#[test]
fn paths_after_a_decided_branch_are_copied() {
    let place = Place::with(&[("prog.c", DECIDED_PROGRAM)]);
    place.tool("clang-22", "-O2 -w prog.c -o plain");
    let reported = String::from_utf8(run_pgo(&place, "", "-O1 -g").stderr).unwrap();
    assert_eq!(place.output("plain"), place.output("fast"), "{reported}");
    let reported = String::from_utf8(run_pgo(&place, "--edges", "-O1 -g").stderr).unwrap();
    assert!(reported.contains("the optimised program is fast") && !reported.contains("warning"), "{reported}");
    assert_eq!(place.output("plain"), place.output("fast"), "{reported}");
    let reported = String::from_utf8(run_pgo(&place, "--min-share 100", "-O1 -g").stderr).unwrap();
    assert!(reported.contains("come from path counts") && reported.contains("no path was copied"), "{reported}");
    assert_eq!(place.output("plain"), place.output("fast"), "{reported}");
}

/// A program with a branch that takes one side in 999 of 1,000 executions, and a switch in which two cases share a block.
const BIASED_PROGRAM: &str = r#"
#include <stdio.h>
static volatile int sum;
__attribute__((noinline)) static void step(int i) {
    if (i % 1000 == 7) sum += 5; else sum -= 3;
    switch (i & 7) {
    case 0: case 1: sum ^= 9; break;
    case 2: sum *= 3; break;
    default: printf(i < 0 ? "?" : ""); break;
    }
}
int main(void) {
    for (int i = 0; i < 8000; i++) step(i);
    printf("%d\n", sum);
}
"#;

#[test]
fn code_generation_gets_measured_branch_weights() {
    let place = Place::with(&[("prog.c", BIASED_PROGRAM)]);
    must(place.command(trodden()).args(["cc", "-O1", "-w", "prog.c", "-o", "prog"]));
    must(place.command(trodden()).args(["record", "-o", "run.trodden", "./prog"]));
    let profile = trodden_profile::Profile::read(&place.path("run.trodden")).unwrap();
    let directed = trodden_analysis::transformations::find_transformations(&profile, &Default::default()).unwrap();
    std::fs::write(place.path("plan"), trodden_analysis::transformations::build_plan(&directed).to_bytes()).unwrap();
    let mut applying = place.command(trodden());
    applying.env("TRODDEN_INSTRUMENT", format!("apply={}", place.path("plan").display()));
    must(applying.args(["cc", "-O1", "-w", "-S", "-mllvm", "-stop-after=finalize-isel", "prog.c", "-o", "prog.mir"]));
    let text = std::fs::read_to_string(place.path("prog.mir")).unwrap();
    let weights = |line: &&str| line.contains("branch_weights");
    let numbers =
        |line: &str| line.split("i32 ").skip(1).map(|n| n.split([',', '}']).next().unwrap().parse().unwrap()).collect::<Vec<f64>>();
    let found: Vec<Vec<f64>> = text.lines().filter(weights).map(numbers).collect();
    let has = |shares: &[f64]| {
        let is = |w: &Vec<f64>| {
            let sum: f64 = w.iter().sum();
            w.len() == shares.len() && w.iter().zip(shares).all(|(w, s)| (w / sum - s).abs() < 0.001)
        };
        found.iter().any(is)
    };
    assert!(has(&[0.001, 0.999]) || has(&[0.999, 0.001]), "the branch: {found:?}");
    assert!(has(&[0.625, 0.125, 0.125, 0.125]), "the switch; of its cases that share a block none is known to be likelier: {found:?}");
    assert!(text.contains("\"function_entry_count\", i64 8000"), "entries of `step`");
}

/// A program with two branches that take the same sides in every run.
const TOGETHER_PROGRAM: &str = r#"
#include <stdio.h>
#define NOP __asm__ volatile("nop")
static volatile int sum, limit = 4000;
__attribute__((noinline)) static void classify(int i) {
    if (i < limit) { NOP; sum += 5; } else { NOP; NOP; sum -= 3; }
    NOP;
    if (i < limit) { NOP; NOP; sum ^= 9; } else { NOP; sum *= 3; }
}
int main(void) {
    for (int i = 0; i < 8000; i++) classify(i);
    printf("%d\n", sum);
}
"#;

/// Code generation moves cold blocks out of loops only if branch weights count as measured, that is, if the function has an entry count.
#[test]
fn code_generation_gets_entry_counts_of_known_paths() {
    let place = Place::with(&[("prog.c", TOGETHER_PROGRAM)]);
    must(place.command(trodden()).args(["cc", "-O1", "-w", "prog.c", "-o", "prog"]));
    must(place.command(trodden()).args(["record", "-o", "run.trodden", "./prog"]));
    must(place.command(trodden()).args(["export", "known", "run.trodden", "-o", "known"]));
    let mut residual = place.command(trodden());
    residual.env("TRODDEN_INSTRUMENT", format!("known={}", place.path("known").display()));
    must(residual.args(["cc", "-O1", "-w", "-S", "-mllvm", "-stop-after=finalize-isel", "prog.c", "-o", "prog.mir"]));
    let text = std::fs::read_to_string(place.path("prog.mir")).unwrap();
    let counts = text.lines().filter_map(|line| line.split_once("\"function_entry_count\", i64 "));
    let counts: BTreeSet<u64> = counts.map(|(_, count)| count.trim_end_matches('}').parse().unwrap()).collect();
    assert_eq!(counts, BTreeSet::from([1, 8000]), "of `main` and `classify`");
}

/// Whatever a transformation plan contains, programs must behave as before. Paths and loops are picked at random, far more of them than a
/// profile would suggest.
#[test]
fn random_transformations_preserve_behaviour_of_random_programs() {
    let mut larger = 0;
    for seed in 0..5 {
        let program = random::program(seed);
        let (name, language, clang) = match program.language {
            RandomLanguage::C => ("prog.c", "cc", "clang-22"),
            RandomLanguage::Cxx => ("prog.cc", "c++", "clang++-22"),
        };
        let level = ["-O1", "-O2"][seed as usize % 2];
        let place = Place::with(&[(name, &program.text)]);
        place.tool(clang, &format!("{level} -w -pthread {name} -o plain"));
        must(place.command(trodden()).args([language, level, "-w", "-pthread", name, "-o", "prog"]));
        let mut plan = TransformationPlan::default();
        let mut dice = random::RandomNumbers::new(seed);
        for frame in &place.image("prog").frames {
            let map = frame.map().unwrap();
            map.functions.iter().for_each(|f| plan.add(&map.source, &f.name, f.shape, create_random_transformations(f, &mut dice)));
        }
        for (output, plan) in [("same", &TransformationPlan::default()), ("fast", &plan)] {
            std::fs::write(place.path("plan"), plan.to_bytes()).unwrap();
            let mut changing = place.command(trodden());
            changing.env("TRODDEN_INSTRUMENT", format!("apply={}", place.path("plan").display()));
            must(changing.args([language, level, "-w", "-pthread", name, "-o", output]));
        }
        let run = |program: &str| place.command(place.path(program)).output().unwrap();
        let (plain, fast) = (run("plain"), run("fast"));
        assert_eq!((plain.status, plain.stdout), (fast.status, fast.stdout), "seed {seed} {level}");
        larger += usize::from(measure_code(&place, "fast") > measure_code(&place, "same"));
    }
    assert!(larger >= 3, "only {larger} programs grew");
}

fn measure_code(place: &Place, program: &str) -> u64 {
    let bytes = std::fs::read(place.path(program)).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.section_by_name(".text").unwrap().size()
}

/// Returns random transformations: copies of some edges, and splits of some loops.
fn create_random_transformations(function: &FunctionMap, dice: &mut random::RandomNumbers) -> Vec<Transformation> {
    let (graph, cut) = (&function.graph, |edge: Edge| function.cuts.iter().any(|(e, _)| *e == edge));
    let paths: Vec<Edge> = graph.edges().filter(|e| matches!(graph.kind(*e), EdgeKind::True | EdgeKind::False) && !cut(*e)).collect();
    let mut count = || {
        let most = [2, 1000, u64::MAX][dice.below(3) as usize];
        dice.below(most)
    };
    let edges = graph.edges().map(|_| count()).collect();
    let mut out = vec![Transformation::Weights(BranchWeights { entries: count(), edges })];
    for _ in 0..paths.len().min(4) {
        let entry = paths[dice.below(paths.len() as u64) as usize];
        let mut blocks = vec![graph.to(entry)];
        for _ in 0..dice.below(5) {
            let last = blocks[blocks.len() - 1];
            let goes_on = |e: &&Edge| graph.kind(**e) != EdgeKind::Reach && !cut(**e) && graph.to(**e) != graph.exit();
            let next: Vec<&Edge> = graph.out(last).iter().filter(goes_on).collect();
            let Some(edge) = next.get(dice.below(next.len().max(1) as u64) as usize) else { break };
            blocks.push(graph.to(**edge));
        }
        out.push(Transformation::Copy(PathCopy { entry, blocks, weights: Vec::new() }));
    }
    for (edge, _) in &function.cuts {
        let edge = graph.edge(*edge);
        if dice.below(2) == 0 {
            out.push(Transformation::LastIterations(LastIterations { head: edge.to, latches: vec![edge.from] }));
        }
    }
    out
}
