//! Builds for sampling (`when=bursts`). If the switch is always on, counts must be exact. If it is flipped at random, no path may be
//! counted more often than it was executed, and the program's behaviour must not change.

use crate::plain;
use trodden_oracle::check::{CheckVariant, check};
use trodden_oracle::random::{RandomLanguage, RandomProgram};
use trodden_oracle::{OracleTools, random};

/// C code that turns the switch on in the first constructor or, if `FLIP` is set, flips it at random. It replaces the page that the runtime
/// has mapped by a writable page. Programs with only the oracles' probes have no switch.
const HELPER_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
extern volatile char __trodden_switch[4096] __attribute__((visibility("hidden"), weak));
static void *flip(void *seed) {
    unsigned random = (unsigned)(size_t)seed;
    for (;;) {
        random = random * 1664525u + 1013904223u;
        struct timespec pause = {0, (random >> 16) % 3000};
        nanosleep(&pause, 0);
        __trodden_switch[0] = random >> 30 & 1;
    }
    return 0;
}
__attribute__((constructor(101))) static void take_switch(void) {
    if (!&__trodden_switch) return;
    mmap((void *)__trodden_switch, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    const char *seed = getenv("FLIP");
    __trodden_switch[0] = 1;
    if (seed) {
        pthread_t thread;
        pthread_create(&thread, 0, flip, (void *)(size_t)atoi(seed));
    }
}
"#;

/// Seeds of C and C++ programs with exceptions, switches, indirect branches and threads, unless `TRODDEN_ORACLE_SEEDS=FIRST-LAST` is set.
const RANDOM_SEEDS: std::ops::RangeInclusive<u64> = 0..=2;

fn seeds() -> Vec<u64> {
    let Ok(text) = std::env::var("TRODDEN_ORACLE_SEEDS") else { return RANDOM_SEEDS.collect() };
    let (first, last) = text.split_once('-').expect("TRODDEN_ORACLE_SEEDS is FIRST-LAST");
    (first.parse().unwrap()..=last.parse().unwrap()).collect()
}

fn variant(level: &str, parameters: &str) -> CheckVariant {
    CheckVariant { options: vec![level.into()], parameters: format!("when=bursts {parameters}"), helper: Some(HELPER_SOURCE) }
}

#[test]
fn counts_are_exact_if_the_switch_is_on() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let (mut functions, mut differences) = (0, Vec::new());
    for seed in seeds() {
        let levels = [("-O2", ""), ("-O1", "max-paths=16"), ("-O3", "reach=all")];
        let (level, parameters) = levels[seed as usize % levels.len()];
        let place = folder.path().join(seed.to_string());
        std::fs::create_dir(&place).unwrap();
        let found = check(&random::program(seed), &variant(level, parameters), &tools, &place).unwrap();
        functions += found.functions;
        differences.extend(found.differences.into_iter().map(|d| format!("seed {seed} {level} {parameters}: {d}")));
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(functions > 5 * seeds().len());
}

#[test]
fn loops_with_two_entries_are_counted_exactly() {
    let text = "#include <stdio.h>\n\
        __attribute__((noinline)) double h(double t) { return t * 3 - 700; }\n\
        __attribute__((noinline)) double k(double t) { return t / 16; }\n\
        __attribute__((noinline)) double f(int a, double t) { if (a) goto one; four: if (k(t) > 3) return t; one: t = h(t); if (t < 0) \
        return 2*t; goto four; }\n\
        int main(void) { double s = 0; for (int i = 0; i < 400; i++) s += f(i & 1, i); printf(\"%f\\n\", s); return 0; }\n";
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    for level in ["-O1", "-O2", "-O3", "-Os"] {
        let place = folder.path().join(&level[1..]);
        std::fs::create_dir(&place).unwrap();
        let program = RandomProgram { language: RandomLanguage::C, text: text.to_owned() };
        let found = check(&program, &variant(level, ""), &tools, &place).unwrap();
        assert!(found.differences.is_empty() && found.functions >= 2, "{level}: {:#?}", found.differences);
    }
}

#[test]
fn bursts_count_at_most_the_executions_and_keep_the_behaviour() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let mut partly = 0;
    std::fs::write(folder.path().join("helper.c"), HELPER_SOURCE).unwrap();
    let helper = folder.path().join("helper.o");
    plain::run(tools.command("clang").args(["-O2", "-c"]).arg(folder.path().join("helper.c")).arg("-o").arg(&helper));
    for seed in seeds() {
        let program = random::program(seed);
        let full = plain::build(&program, "-O2", "", &[], &tools, &folder.path().join(format!("{seed}/full")));
        let helper = std::slice::from_ref(&helper);
        let sample = plain::build(&program, "-O2", "when=bursts", helper, &tools, &folder.path().join(format!("{seed}/sample")));
        let done = plain::execute(&full, &[]);
        let (expected, all) = (&done.outcome, done.counts());
        for flip in 1..=3 {
            let done = plain::execute(&sample, &[("FLIP", flip.to_string())]);
            let part = done.counts();
            assert_eq!(&done.outcome, expected, "seed {seed}");
            for (path, count) in &part {
                assert!(
                    *count <= all.get(path).copied().unwrap_or(0),
                    "seed {seed}: {path:?} was counted {count} times: {:?}",
                    all.get(path)
                );
            }
            let (seen, executed) = (part.values().sum::<u64>(), all.values().sum::<u64>());
            partly += usize::from(seen > 0 && seen < executed);
        }
    }
    // How many runs are counted partly depends on scheduling.
    assert!(partly > 0, "no run was counted partly");
}

/// C code that the interpreter calls to set the switch.
const TURN_SOURCE: &str = r#"
extern volatile char __trodden_switch[4096] __attribute__((visibility("hidden")));
void turn(int on) { __trodden_switch[0] = on; }
"#;

/// An interpreter, which is one `switch` in a loop, and its program. Instruction 0 sets the switch, 1 jumps, 2 ends the program, and all
/// others do nothing. The switch is off at the start.
fn interpreter() -> RandomProgram {
    let no_operations: String = (3..70).map(|i| format!("case {i}: __asm__ volatile(\"# {i}\" : \"+r\"(a)); break;\n")).collect();
    let text = format!(
        "#include <stdio.h>\nvoid turn(int);\nstruct step {{ unsigned char code; int to; }};\n\
        static const struct step program[] = {{{{0, 1}}, {{3}}, {{4}}, {{5}}, {{6}}, {{7}}, {{1, 1}}, {{9}}, {{10}}, {{11}}, {{12}}, \
        {{13}}, {{14}}, {{15}}, {{0, 0}},\n\
        {{20}}, {{21}}, {{22}}, {{23}}, {{1, 1}}, {{99}}, {{30}}, {{31}}, {{32}}, {{33}}, {{34}}, {{35}}, {{2}}}};\n\
        __attribute__((noinline)) long run(const struct step *p, long a) {{\nfor (;; p++) switch (p->code) {{\ncase 0: turn(p->to); \
        break;\n\
        case 1: p += p->to; break;\ncase 2: return a;\n{no_operations}}}\n}}\n\
        int main(int argc, char **argv) {{ turn(0); printf(\"%ld\\n\", run(program, argc)); return 0; }}\n"
    );
    RandomProgram { language: RandomLanguage::C, text }
}

#[test]
fn interpreter_enters_counting_code_where_its_program_jumps() {
    let folder = tempfile::tempdir().unwrap();
    let tools = OracleTools::prepare(folder.path()).unwrap();
    let mut objects = Vec::new();
    for (name, text) in [("helper", HELPER_SOURCE), ("turn", TURN_SOURCE)] {
        let (source, object) = (folder.path().join(name).with_extension("c"), folder.path().join(name).with_extension("o"));
        std::fs::write(&source, text).unwrap();
        plain::run(tools.command("clang").args(["-O2", "-c"]).arg(source).arg("-o").arg(&object));
        objects.push(object);
    }
    let sample = plain::build(&interpreter(), "-O2", "when=bursts", &objects, &tools, folder.path());
    let done = plain::execute(&sample, &[]);
    assert_eq!(done.outcome, (b"1\n".to_vec(), Some(0)));
    let counted: u64 = done.counts().into_iter().filter(|((function, _), _)| function == "run").map(|(_, count)| count).sum();
    // From the first jump to the second, 13 paths are counted: 6 iterations without effect, the path that ends at the call to `turn`, the
    // iteration with this call, 4 more iterations, and the jump.
    assert_eq!(counted, 13);
}
