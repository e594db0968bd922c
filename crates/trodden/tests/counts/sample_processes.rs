//! Samples a program with several threads, a child of `fork`, and a library loaded at run time. Bursts must start in each of them.

use crate::place::{Place, trodden};
use trodden_profile::{FunctionPaths, Profile};

/// In each function, three of four calls take the same path.
const STEP_SOURCE: &str =
    "__attribute__((noinline)) long NAME(long n) { if (n & 3) { __asm__ volatile(\"nop\"); return n; } return 2 * n; }\n";
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define NAME thread_step
#include "step.h"
#undef NAME
#define NAME child_step
#include "step.h"
static long end;
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static void work(long (*step)(long)) { long i = 0; while (now() < end) for (int k = 0; k < 1000; k++) step(i++); }
static void *thread(void *step) { work(step); return 0; }
int main(int argc, char **argv) {
    end = now() + atol(argv[1]);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, thread, (void *)thread_step);
    pid_t child = fork();
    if (child == 0) { work(child_step); _exit(0); }
    void *library = dlopen("./library.so", RTLD_NOW);
    if (!library) return 1;
    work((long (*)(long))dlsym(library, "library_step"));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
"#;

/// Returns the number of counted executions of a function, and the share of its more frequent path.
fn observe_function(profile: &Profile, name: &str) -> (u64, f64) {
    let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == name).unwrap();
    let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
    let most = paths.complete.iter().map(|p| p.count).max().unwrap_or(0);
    (paths.total(), most as f64 / paths.total() as f64)
}

#[test]
fn threads_children_and_loaded_libraries_are_sampled() {
    let library = STEP_SOURCE.replace("NAME", "library_step");
    let place = Place::with(&[("step.h", STEP_SOURCE), ("prog.c", PROGRAM), ("library.c", &library)]);
    place.cc("--trodden=sample -O2 -fPIC -shared library.c -o library.so");
    place.cc("--trodden=sample -O2 prog.c -o prog -pthread -ldl");
    let record = ["record", "--no-store", "-o", "run.trodden", "--burst", "5ms", "--every", "20ms", "--", "./prog", "2000"];
    let output = place.command(trodden()).args(record).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    assert_eq!(profile.images.len(), 2);
    for name in ["thread_step", "child_step", "library_step"] {
        let (count, share) = observe_function(&profile, name);
        assert!(count > 1000 && (share - 0.75).abs() < 0.02, "{name}: {count} {share}");
    }
    let sampling = profile.sampling.as_ref().and_then(|s| s.bursts()).unwrap();
    let (image, unit, function) = profile.functions().find(|(_, _, f)| f.name == "library_step").unwrap();
    for (path, count) in unit.counts_of(function).filter(|(_, count)| *count > 0) {
        // The paths have so few instructions that counting takes a large part of each burst. The weighted count corrects this.
        let weighted = sampling.weighted_count(image.identity, unit.unit, function.first_counter + path, count);
        assert!(weighted > count as f64, "{weighted} {count}");
    }
}
