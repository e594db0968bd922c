//! Tests every way to start and to end a process, alone and concurrently.

use crate::laboratory::{Laboratory, Mount, assert_silent_success};
use std::process::{Command, Stdio};

/// Builds a program that increments counter 0 five times and then executes the statement `end`.
fn program_with_exit(lab: &Laboratory, name: &str, end: &str) -> std::path::PathBuf {
    let source = format!(
        "#include \"subject.h\"\n#include <stdlib.h>\n#include <unistd.h>\n#include <signal.h>\n#include <pthread.h>\n\
         int main(void) {{ for (int i = 0; i < 5; i++) {{ ENTER; COUNT(0); }} {end}; }}\n"
    );
    lab.program(name, &source, &[])
}

#[test]
fn counts_survive_every_kind_of_exit() {
    let lab = Laboratory::new("ends");
    let ends =
        ["return 0", "exit(3)", "_exit(4)", "abort()", "kill(getpid(), SIGKILL); pause()", "*(volatile int *)0 = 0", "pthread_exit(0)"];
    for (index, end) in ends.iter().enumerate() {
        let name = format!("end{index}");
        let program = program_with_exit(&lab, &name, end);
        for _ in 0..20 {
            lab.command(&program, &format!("{name}.d/%m.raw")).stderr(Stdio::null()).status().unwrap();
        }
        let raw = lab.raw_file(&format!("{name}.d"));
        assert_eq!(raw.count(0), 100, "{end}");
        assert_eq!(raw.regions.len(), 1, "{end}: the region of an ended process is reused");
    }
}

#[test]
fn a_hundred_processes_merge_exactly() {
    let lab = Laboratory::new("parallel");
    let source = r#"
        #include "subject.h"
        #include <pthread.h>
        static void *work(void *unused) { for (int i = 0; i < 20000; i++) { ENTER; COUNT(5); } return unused; }
        int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); work(0); pthread_join(t, 0); return 0; }
    "#;
    let program = lab.program("program", source, &[]);
    let children: Vec<_> = (0..100).map(|_| lab.command(&program, "out/%m.raw").stderr(Stdio::piped()).spawn().unwrap()).collect();
    for child in children {
        assert_silent_success(&child.wait_with_output().unwrap());
    }
    let raw = lab.raw_file("out");
    assert_eq!(raw.count(5), 100 * 2 * 20_000);
    assert!(raw.regions.len() <= 200, "{} regions", raw.regions.len());
}

const FORKS: &str = r#"
    #include "subject.h"
    #include <pthread.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile int stop;
    static void *busy(void *unused) { while (!stop) { ENTER; COUNT(7); } return unused; }
    int main(void) {
        ENTER; /* as a function that stays active: its bias is in a register */
        pthread_t t[3];
        for (int i = 0; i < THREADS; i++) pthread_create(&t[i], 0, busy, 0);
        for (int i = 0; i < 200; i++) {
            COUNT(0);
            pid_t child = fork();
            if (child < 0) return 1;
            if (!child) {
                for (int k = 0; k < 1000; k++) COUNT(1);
                { ENTER; COUNT(2); }
                if (i % 10 == 0 && !fork()) { COUNT(4); _exit(0); }
                _exit(0);
            }
            for (int k = 0; k < 1000; k++) COUNT(3);
            if (i % 4 == 3) while (waitpid(-1, 0, WNOHANG) > 0);
        }
        stop = 1;
        for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
        while (wait(0) > 0);
        return 0;
    }
"#;

#[test]
fn children_of_fork_count_separately() {
    let lab = Laboratory::new("forks");
    for (name, flags) in [("single", &["-DTHREADS=0"][..]), ("threaded", &["-DTHREADS=3"]), ("static", &["-DTHREADS=0", "-static"])] {
        let program = lab.program(name, FORKS, flags);
        lab.run(&program, &format!("{name}.d/%m.raw"));
        lab.run(&program, "");
        let started = std::time::Instant::now();
        // The program does not wait for its grandchildren, so wait for their counts here.
        while lab.raw_file(&format!("{name}.d")).count(4) < 20 && started.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        let raw = lab.raw_file(&format!("{name}.d"));
        assert_eq!([0, 1, 2, 3, 4].map(|index| raw.count(index)), [200, 200_000, 200, 200_000, 20], "{name}");
    }
}

#[test]
fn child_of_raw_fork_neither_hangs_nor_miscounts() {
    let lab = Laboratory::new("raw-fork");
    // Threads that are not copied into the child keep acquiring the lock.
    let source = r#"
        #define _GNU_SOURCE
        #include "subject.h"
        #include <pthread.h>
        #include <stdio.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile int stop;
        static int briefs;
        static void *brief(void *unused) { for (int i = 0; i < 10000; i++) { ENTER; COUNT(0); } __atomic_add_fetch(&briefs, 1,
            __ATOMIC_SEQ_CST); return unused; }
        static void *churn(void *unused) { while (!stop) { pthread_t t; if (!pthread_create(&t, 0, brief, 0)) pthread_join(t, 0);
            } return unused; }
        static void *forks(void *unused) {
            pid_t child = syscall(SYS_fork);
            if (!child) { for (int i = 0; i < 10000; i++) { ENTER; COUNT(0); } syscall(SYS_exit_group, 0); }
            waitpid(child, 0, 0);
            return unused;
        }
        int main(void) {
            pthread_t c[3], t;
            for (int i = 0; i < 3; i++) pthread_create(&c[i], 0, churn, 0);
            for (int i = 0; i < 300; i++) { pthread_create(&t, 0, forks, 0); pthread_join(t, 0); }
            stop = 1;
            for (int i = 0; i < 3; i++) pthread_join(c[i], 0);
            printf("%d", briefs);
            return 0;
        }
    "#;
    let program = lab.program("program", source, &[]);
    let output = lab.command(&program, "out/%m.raw").output().unwrap();
    assert_silent_success(&output);
    let briefs: u64 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
    assert_eq!(lab.raw_file("out").count(0), 10_000 * (300 + briefs));
}

#[test]
fn each_process_has_its_own_file() {
    let lab = Laboratory::new("process-ids");
    let program = lab.program("program", FORKS, &["-DTHREADS=0"]);
    lab.run(&program, "out/%p.raw");
    let started = std::time::Instant::now();
    while lab.raw_files("out").len() < 221 && started.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    let all = lab.raw_files("out");
    assert_eq!(all.len(), 1 + 200 + 20);
    assert_eq!(all.iter().filter(|raw| raw.count(0) == 200 && raw.count(3) == 200_000).count(), 1);
    assert_eq!(all.iter().filter(|raw| raw.count(1) == 1000 && raw.count(2) == 1).count(), 200);
}

#[test]
fn counts_are_exact_with_vfork_spawn_and_exec() {
    let lab = Laboratory::new("vfork");
    let source = r#"
        #define _GNU_SOURCE
        #include "subject.h"
        #include <pthread.h>
        #include <spawn.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ;
        __attribute__((noinline)) static void count0(void) { ENTER; COUNT(0); }
        __attribute__((noinline)) static void count1(void) { ENTER; COUNT(1); }
        static void *work(void *name) {
            for (int i = 0; i < 50; i++) {
                /* In some threads the first to count is a child of vfork. */
                pid_t child = vfork();
                if (!child) { count0(); execl(name, name, "leaf", (char *)0); _exit(9); }
                waitpid(child, 0, 0);
                count0();
                char *arguments[] = { name, "leaf", 0 };
                if (posix_spawn(&child, name, 0, 0, arguments, environ)) abort();
                waitpid(child, 0, 0);
            }
            return 0;
        }
        int main(int argc, char **argv) {
            if (argc > 1) { count1(); return 0; }
            pthread_t t[4];
            for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, work, argv[0]);
            for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
            execl(argv[0], argv[0], "leaf", (char *)0);
            return 9;
        }
    "#;
    let program = lab.program("program", source, &[]);
    lab.run(&program, "out/%m.raw");
    let raw = lab.raw_file("out");
    assert_eq!((raw.count(0), raw.count(1)), (400, 401));
    assert!(raw.regions.len() <= 16, "{} regions", raw.regions.len());
}

#[test]
fn a_thread_entered_by_its_vfork_child_keeps_its_region() {
    let lab = Laboratory::new("vfork-first");
    let source = r#"
        #define _GNU_SOURCE
        #include "subject.h"
        #include <pthread.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) static void count(void) { ENTER; COUNT(0); }
        static void *work(void *unused) {
            pid_t child = vfork();
            if (!child) { count(); _exit(0); }
            waitpid(child, 0, 0);
            for (int i = 0; i < 100000; i++) count();
            return unused;
        }
        int main(void) {
            pthread_t t[24];
            for (int i = 0; i < 24; i++) if (pthread_create(&t[i], 0, work, 0)) return 1;
            for (int i = 0; i < 24; i++) pthread_join(t[i], 0);
            return 0;
        }
    "#;
    let program = lab.program("program", source, &[]);
    for run in 1..=5 {
        lab.run(&program, "out/%m.raw");
        assert_eq!(lab.raw_file("out").count(0), run * 24 * 100_001);
    }
}

/// A program that closes every descriptor, and then goes on counting for a while.
const CLOSES_DESCRIPTORS: &str = r#"
    #define _GNU_SOURCE
    #include "subject.h"
    #include <unistd.h>
    int main(int argc, char **argv) {
        for (int fd = 0; fd < 1024; fd++) close(fd);
        for (int i = 0; i < 3000000; i++) { ENTER; COUNT(0); }
        return 0;
    }
"#;

#[test]
fn counts_survive_closing_all_descriptors() {
    let lab = Laboratory::new("closers");
    let program = lab.program("program", CLOSES_DESCRIPTORS, &[]);
    let children: Vec<_> = (0..8).map(|_| lab.command(&program, "out/%m.raw").spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(lab.raw_file("out").count(0), 8 * 3_000_000);
}

#[test]
fn regions_are_not_shared_on_overlay_file_systems() {
    let lab = Laboratory::new("overlay");
    let Some(_base) = Mount::new(lab.path("base"), &["-t", "tmpfs", "none"]) else { return };
    for folder in ["lower", "upper", "work"] {
        std::fs::create_dir(lab.path("base").join(folder)).unwrap();
    }
    let base = lab.path("base");
    let options = format!("lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work", base.display());
    let Some(_overlay) = Mount::new(lab.path("overlay"), &["-t", "overlay", "-o", &options, "overlay"]) else { return };
    let patient = program_with_exit(&lab, "patient", "usleep(300000); return 0");
    for program in [patient, lab.program("closer", CLOSES_DESCRIPTORS, &[]), lab.program("forks", FORKS, &["-DTHREADS=2"])] {
        let name = program.file_name().unwrap().to_str().unwrap();
        let pattern = format!("overlay/{name}/%m.raw");
        let children: Vec<_> = (0..6).map(|_| lab.command(&program, &pattern).spawn().unwrap()).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        lab.command(&program, &pattern).status().unwrap();
        let raw = lab.raw_file(&format!("overlay/{name}"));
        let expected = match name {
            "patient" => 35,
            "closer" => 21_000_000,
            _ => 1400,
        };
        assert_eq!(raw.count(0), expected, "{name}");
        if name == "patient" {
            assert_eq!(raw.regions.len(), 6, "one region for each concurrent process");
        }
    }
}

/// A program that loads a library a thousand times, calls it from threads and processes, and unloads it. Sometimes it calls it from 23
/// threads at the same time. With that of the main thread, these have 24 regions, so that another thread then looks for threads that have
/// ended.
const LOADS_AND_UNLOADS: &str = r#"
    #include <dlfcn.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static int mappings(void) { int n = 0, c; FILE *f = fopen("/proc/self/maps", "r"); while ((c = getc(f)) != EOF) n += c == '\n';
        fclose(f); return n; }
    static void *call(void *f) { ((void (*)(void))f)(); return 0; }
    static pthread_barrier_t together;
    static void *meet(void *f) { call(f); pthread_barrier_wait(&together); return 0; }
    int main(int argc, char **argv) {
        int before = 0;
        for (int i = 0; i < 1000; i++) {
            void *library = dlopen(argv[1], RTLD_NOW);
            if (!library) return puts(dlerror()), 1;
            void *f = dlsym(library, "counted");
            call(f);
            if (i % 10 == 0) {
                pthread_t t; pthread_create(&t, 0, call, f); pthread_join(t, 0);
                if (!fork()) { call(f); _exit(0); }
                wait(0);
            }
            if (i % 100 == 99) {
                pthread_t t[23]; pthread_barrier_init(&together, 0, 23);
                for (int k = 0; k < 23; k++) pthread_create(&t[k], 0, meet, f);
                for (int k = 0; k < 23; k++) pthread_join(t[k], 0);
                pthread_create(t, 0, call, f); pthread_join(t[0], 0);
            }
            dlclose(library);
            if (i % 10 == 5) { int status; if (!fork()) _exit(0); wait(&status);
                if (status) return puts("fork without the library failed"), 1; }
            if (i == 150) before = mappings();
        }
        if (mappings() > before + 3) return printf("%d mappings, then %d\n", before, mappings()), 1;
        return argc - 2;
    }
"#;

#[test]
fn libraries_can_be_reloaded_a_thousand_times() {
    let lab = Laboratory::new("dlopen");
    lab.source("library.c", "#define UNIT 7\n#include \"subject.h\"\nvoid counted(void) { ENTER; COUNT(0); }\n");
    let object = crate::laboratory::object().to_str().unwrap();
    lab.compile("gcc", &["-O1", "-fPIC", "-shared", "-o", "library.so", "library.c", object]);
    lab.compile("gcc", &["-O1", "-fPIC", "-shared", "-nostartfiles", "-o", "bare.so", "library.c", object]);
    lab.source("program.c", LOADS_AND_UNLOADS);
    lab.compile("gcc", &["-O1", "-pthread", "-o", "program", "program.c"]);
    for library in ["library", "bare"] {
        let pattern = format!("{}/{library}.d/%m.raw", lab.folder.display());
        let output =
            Command::new(lab.path("program")).arg(lab.path(&format!("{library}.so"))).env("TRODDEN_OUTPUT", pattern).output().unwrap();
        assert!(
            output.status.success(),
            "{library}: {:?} {} {}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let raw = lab.raw_file(&format!("{library}.d"));
        assert_eq!(raw.count(0), 1440, "{library}");
        assert!(raw.regions.len() <= 25, "{} regions", raw.regions.len());
    }
}

#[test]
fn destructors_and_running_threads_count_at_the_end() {
    let lab = Laboratory::new("last");
    let source = r#"
        #include "subject.h"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        static volatile int ready;
        static void *busy(void *unused) { for (;;) { ENTER; COUNT(1); ready = 1; } return unused; }
        static void at_exit(void) { ENTER; COUNT(0); }
        __attribute__((destructor)) static void destructor(void) { ENTER; COUNT(2); usleep(20000); COUNT(2); }
        __attribute__((constructor(101))) static void constructor(void) { ENTER; COUNT(3); }
        int main(void) {
            pthread_t t;
            atexit(at_exit);
            for (int i = 0; i < 4; i++) pthread_create(&t, 0, busy, 0);
            while (!ready);
            return 0;
        }
    "#;
    let program = lab.program("program", source, &[]);
    for run in 1..=20 {
        lab.run(&program, "out/%m.raw");
        let raw = lab.raw_file("out");
        assert_eq!([0, 2, 3].map(|index| raw.count(index)), [run, 2 * run, run]);
        assert!(raw.count(1) > 0);
    }
    lab.run(&program, "");
}
