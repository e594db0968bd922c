//! `trodden trace record` in one run. The program runs once, and finds everything as it would without trodden.

use crate::traced::{Folder, errors, is_installed, must};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// A program that appends a line to the file `ran`. It writes facts that must be the same in every run to `NAME.same`, and facts that
/// should differ to `NAME.random`.
const SELF_REPORT_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>
static FILE *opened(const char *name, const char *kind) {
    char path[100];
    snprintf(path, sizeof path, "%s%s", name, kind);
    return fopen(path, "w");
}
static long long now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
int main(int count, char **arguments) {
    FILE *ran = fopen("ran", "a");
    fprintf(ran, "ran\n");
    fclose(ran);
    FILE *same = opened(arguments[1], ".same"), *random = opened(arguments[1], ".random");
    for (int d = 0; d < 3; d++) {
        struct stat s;
        fstat(d, &s);
        fprintf(same, "descriptor %d: terminal %d, %o, %lx:%lx, %lx\n", d, isatty(d), s.st_mode, s.st_dev, s.st_ino, s.st_rdev);
    }
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    fprintf(same, "processors: %d of %ld, scheduled by %d\n", CPU_COUNT(&set), sysconf(_SC_NPROCESSORS_ONLN), sched_getscheduler(0));
    fprintf(same, "personality: %x, vDSO %d, started as %s\n", personality(0xffffffff), getauxval(AT_SYSINFO_EHDR) != 0,
            (char *)getauxval(AT_EXECFN));
    int stamps = 0;
    prctl(PR_GET_TSC, &stamps);
    long long begun = now(CLOCK_MONOTONIC), date = now(CLOCK_REALTIME), cycles = __rdtsc();
    usleep(30000);
    long long passed = now(CLOCK_MONOTONIC) - begun;
    fprintf(same, "time stamps %d, %d; clock %d; date %d\n", stamps, __rdtsc() - cycles > 1000000, passed > 30000000,
            now(CLOCK_REALTIME) - date >= 30000000);
    char own[20] = "", self[20];
    readlink("/proc/self", own, sizeof own - 1);
    snprintf(self, sizeof self, "%d", getpid());
    fprintf(same, "process %d; session %d, group %d\n", strcmp(own, self), getsid(0), getpgrp());
    unsigned long drawn = 0, *given = (unsigned long *)getauxval(AT_RANDOM);
    getrandom(&drawn, sizeof drawn, 0);
    fprintf(random, "%lx\n%lx\n%p\n%p\n%p\n%p\n", drawn, given[0], (void *)main, (void *)&drawn, malloc(1), (void *)printf);
    return 7;
}
"#;

/// Returns the number of distinct values of each line in the reports of three runs.
fn count_distinct_values(folder: &Folder, name: &str) -> Vec<usize> {
    let texts: Vec<String> = (0..3).map(|n| fs::read_to_string(folder.path(&format!("{name}{n}.random"))).unwrap()).collect();
    let lines: Vec<Vec<&str>> = texts.iter().map(|text| text.lines().collect()).collect();
    (0..lines[0].len()).map(|line| lines.iter().map(|of_run| of_run[line]).collect::<BTreeSet<_>>().len()).collect()
}

#[test]
fn programs_run_once_and_find_everything_as_without_trodden() {
    let folder = Folder::new();
    folder.compile("cc", "asks.c", SELF_REPORT_PROGRAM);
    let trodden = env!("CARGO_BIN_EXE_trodden");
    for collector in ["", "--collector ptrace", "--collector single-step"] {
        let plain = "for n in 0 1 2; do ./app plain$n; done";
        let traced = format!("for n in 0 1 2; do {trodden} trace record {collector} -o t.trace -- ./app traced$n; echo $? >>status; done");
        let both = format!("{plain}; {traced}");
        let mut ways = vec![
            vec!["sh".to_owned(), "-c".into(), format!("{{ {both}; }} <input >out 2>errors")],
            vec!["sh".to_owned(), "-c".into(), format!("echo | {{ {both}; }} 2>/dev/null | cat >out")],
        ];
        if is_installed("/usr/bin/script") {
            ways.push(vec!["script".to_owned(), "-qec".into(), format!("sh -c '{both}'"), "/dev/null".into()]);
        }
        for way in ways {
            must(Command::new(&way[0]).current_dir(folder.path("")).args(&way[1..]).output().unwrap());
            for run in 0..3 {
                let same = |name: &str| fs::read_to_string(folder.path(&format!("{name}{run}.same"))).unwrap();
                assert_eq!(same("traced"), same("plain"), "{way:?}");
            }
            assert!(folder.path("plain0.same").exists() && count_distinct_values(&folder, "plain")[..2] == [3, 3]);
            let is_random = |name: &str| count_distinct_values(&folder, name).into_iter().map(|count| count > 1).collect::<Vec<_>>();
            assert_eq!(is_random("traced"), is_random("plain"), "{way:?}");
            assert_eq!(fs::read_to_string(folder.path("ran")).unwrap().lines().count(), 6, "{way:?}");
            assert_eq!(fs::read_to_string(folder.path("status")).unwrap(), "7\n7\n7\n", "{way:?}");
            assert!(folder.addresses("t.trace").len() > 20, "{way:?}");
            ["ran", "status", "t.trace"].iter().for_each(|name| fs::remove_file(folder.path(name)).unwrap());
        }
    }
}

#[test]
fn options_for_several_runs_are_rejected_with_one() {
    let folder = Folder::new();
    folder.compile("cc", "asks.c", SELF_REPORT_PROGRAM);
    for options in [&["--no-repeat", "time"][..], &["--no-repeat", "core"], &["--no-repeat", "time", "--pid", "1"], &["--fresh-folder"]] {
        let program: &[&str] = if options.contains(&"--pid") { &[] } else { &["./app", "plain"] };
        let refused = folder.record(options, "t.trace", program);
        let needed = format!("{} needs several runs", options[0]);
        assert!(refused.status.code() == Some(2) && errors(&refused).contains(&needed), "{options:?}: {}", errors(&refused));
    }
    assert!(!folder.path("ran").exists());
}
