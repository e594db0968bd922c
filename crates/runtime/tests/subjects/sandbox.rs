//! Tests that programs in a sandbox, which can no longer open files, still record their counts.

use crate::laboratory::{Laboratory, Mount, assert_one_message, assert_silent_success, is_root, object};
use std::process::{Output, Stdio};

/// A program that enters the sandbox named by its first argument, and then counts in threads, in children, and in the threads and children
/// of these.
const SANDBOXED: &str = r#"
    #define _GNU_SOURCE
    #include "subject.h"
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/filter.h>
    #include <linux/landlock.h>
    #include <linux/seccomp.h>
    #include <grp.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *work(void *unused) { for (int i = 0; i < 100000; i++) { ENTER; COUNT(0); } return unused; }
    static void threads(void) {
        pthread_t t[8];
        for (int i = 0; i < 8; i++) if (pthread_create(&t[i], 0, work, 0)) abort();
        for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    }
    static void filter(unsigned action) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, action),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { sizeof code / sizeof *code, code };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) perror("seccomp"), exit(9);
    }
    static void landlock(void) {
        int abi = syscall(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
        if (abi < 0) puts("no Landlock"), exit(0);
        /* Truncation came with version 3, ioctl with version 5; the first 13 rights with version 1. */
        struct landlock_ruleset_attr rights = { .handled_access_fs = abi >= 5 ? 0xffff : abi >= 3 ? 0x7fff : abi == 2 ? 0x3fff : 0x1fff };
        int rules = syscall(SYS_landlock_create_ruleset, &rights, sizeof rights.handled_access_fs, 0);
        if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, rules, 0)) perror("landlock"),
            exit(9);
        close(rules);
    }
    int main(int argc, char **argv) {
        const char *how = argv[1];
        if (!strcmp(how, "landlock")) landlock();
        if (!strcmp(how, "chroot") && (chroot("jail") || chdir("/") || setgroups(0, 0) || setgid(65534) || setuid(65534))) perror(how),
            exit(9);
        if (!strcmp(how, "jail") && (chroot("jail") || chdir("/"))) perror(how), exit(9);
        if (!strcmp(how, "seccomp")) filter(SECCOMP_RET_ERRNO | EPERM);
        if (!strcmp(how, "kill")) filter(SECCOMP_RET_KILL_PROCESS), threads(), exit(0);
        if (strcmp(how, "free") && open("/dev/null", O_RDONLY) >= 0) fputs("not shut in\n", stderr), exit(9);
        int closes = argc > 2;
        if (closes) closefrom(3);
        threads();
        for (int i = 0; i < 6; i++) {
            pid_t child = fork();
            if (child < 0) abort();
            if (child) continue;
            if (closes) closefrom(3);
            work(0);
            threads();
            if (i & 2) { child = fork(); work(0); if (!child) _exit(0); waitpid(child, 0, 0); }
            _exit(0);
        }
        threads();
        while (wait(0) > 0);
        return 0;
    }
"#;

/// The number of increments that one run of [`SANDBOXED`] makes.
const TOTAL_COUNTS: u64 = (8 + 8 + 6 * 9 + 2 * 2) * 100_000;

/// Runs `concurrent` instances of [`SANDBOXED`] at the same time, and then as many one after the other.
fn run_concurrently(lab: &Laboratory, arguments: &[&str], folder: &str, concurrent: usize) -> Vec<Output> {
    let mut command = lab.command(&lab.path("program"), &format!("{folder}/%m.raw"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let children: Vec<_> = (0..concurrent).map(|_| command.spawn().unwrap()).collect();
    let mut outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    outputs.extend((0..concurrent).map(|_| command.output().unwrap()));
    outputs
}

/// Returns true if the program could enter the sandbox.
fn is_sandboxed(output: &Output) -> bool {
    let note = String::from_utf8_lossy(&output.stdout);
    if !note.is_empty() {
        eprintln!("skipped: {note}");
    }
    note.is_empty()
}

fn available_sandboxes() -> &'static [&'static str] {
    if is_root("chroot") { &["landlock", "seccomp", "chroot", "jail"] } else { &["landlock", "seccomp"] }
}

#[test]
fn threads_and_children_count_in_a_sandbox() {
    let lab = Laboratory::new("shut-in");
    lab.program("program", SANDBOXED, &[]);
    std::fs::create_dir(lab.path("jail")).unwrap();
    for way in available_sandboxes() {
        let folder = format!("{way}.d");
        let outputs = run_concurrently(&lab, &[way], &folder, 4);
        outputs.iter().for_each(assert_silent_success);
        if is_sandboxed(&outputs[0]) {
            let raw = lab.raw_file(&folder);
            assert_eq!(raw.count(0), 8 * TOTAL_COUNTS, "{way}");
            // A process has its main thread, up to sixteen other threads, and six children, each with nine threads; two of these have a
            // child themselves.
            assert!(raw.regions.len() <= 4 * (17 + 6 * 9 + 2), "{way}: {} regions", raw.regions.len());
        }
    }
    assert_eq!(std::fs::read_dir(lab.path("jail")).unwrap().count(), 0, "nothing is created in the new root");
}

#[test]
fn threads_in_a_sandbox_open_no_file() {
    let lab = Laboratory::new("open-nothing");
    lab.program("program", SANDBOXED, &[]);
    run_concurrently(&lab, &["kill"], "out", 4).iter().for_each(assert_silent_success);
    assert_eq!(lab.raw_file("out").count(0), 8 * 8 * 100_000);
}

#[test]
fn closed_descriptors_are_reopened_if_possible() {
    let lab = Laboratory::new("closed");
    lab.program("program", SANDBOXED, &[]);
    run_concurrently(&lab, &["free", "close"], "free", 4).iter().for_each(assert_silent_success);
    assert_eq!(lab.raw_file("free").count(0), 8 * TOTAL_COUNTS);
    let outputs = run_concurrently(&lab, &["seccomp", "close"], "shut", 1);
    outputs.iter().for_each(|output| assert_one_message(output, &["shut/", "cannot be opened (operation not permitted)", "not counted"]));
    assert_eq!(lab.raw_file("shut").count(0), 0);
}

#[test]
fn sandboxed_programs_count_on_overlay_file_systems() {
    let lab = Laboratory::new("shut-in-overlay");
    lab.program("program", SANDBOXED, &[]);
    let Some(_base) = Mount::new(lab.path("base"), &["-t", "tmpfs", "none"]) else { return };
    for folder in ["lower", "upper", "work"] {
        std::fs::create_dir(lab.path("base").join(folder)).unwrap();
    }
    let base = lab.path("base");
    let options = format!("lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work", base.display());
    let Some(_overlay) = Mount::new(lab.path("overlay"), &["-t", "overlay", "-o", &options, "overlay"]) else { return };
    for arguments in [&["landlock"][..], &["seccomp"], &["free", "close"]] {
        let folder = format!("overlay/{}", arguments[0]);
        let outputs = run_concurrently(&lab, arguments, &folder, 4);
        outputs.iter().for_each(assert_silent_success);
        if is_sandboxed(&outputs[0]) {
            assert_eq!(lab.raw_file(&folder).count(0), 8 * TOTAL_COUNTS, "{arguments:?}");
        }
    }
}

/// A program that loads one library from two files, and calls both copies from many threads and processes. Without an argument, its
/// children change their root folder or user; with one, the program closes the runtime's descriptors and reuses their numbers.
const TWO_COPIES: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *call(void *f) { ((void (*)(void))f)(); return 0; }
    static void *counted[2];
    static void threads(void) {
        pthread_t t[16];
        for (int i = 0; i < 16; i++) if (pthread_create(&t[i], 0, call, counted[i % 2])) abort();
        for (int i = 0; i < 16; i++) pthread_join(t[i], 0);
    }
    int main(int argc, char **argv) {
        for (int i = 0; i < 2; i++) {
            void *library = dlopen(i ? "./two.so" : "./one.so", RTLD_NOW);
            if (!library || !(counted[i] = dlsym(library, "counted"))) return 1;
        }
        for (int round = 0; round < 20; round++) {
            if (argc > 1) {
                closefrom(3);
                /* On one number in three, a file of the program's own. */
                int mine = open("precious", O_RDWR | O_CREAT, 0600);
                for (int n = 200; n < 210; n += 3) if (round % 2) dup2(mine, n);
            }
            threads();
            pid_t child = fork();
            if (!child) { if (argc == 1 && (chroot("jail") || setuid(65534))) _exit(1); threads(); child = fork(); threads();
                if (child) wait(0); _exit(0); }
            int status;
            if (waitpid(child, &status, 0) != child || status) return 2;
        }
        return 0;
    }
"#;

/// The image is loaded twice, and both instances use one raw file.
#[test]
fn two_copies_of_an_image_use_separate_regions() {
    let lab = Laboratory::new("copies");
    lab.source(
        "library.c",
        "#define UNIT 5\n#include \"subject.h\"\nvoid counted(void) { for (int i = 0; i < 20000; i++) { ENTER; COUNT(0); } }\n",
    );
    lab.compile("gcc", &["-O1", "-fPIC", "-shared", "-o", "one.so", "library.c", object().to_str().unwrap()]);
    std::fs::copy(lab.path("one.so"), lab.path("two.so")).unwrap();
    lab.source("program.c", TWO_COPIES);
    lab.compile("gcc", &["-O1", "-pthread", "-o", "program", "program.c"]);
    std::fs::create_dir(lab.path("jail")).unwrap();
    let each = 20 * 4 * 16 * 20_000;
    let mut command = lab.command(&lab.path("program"), "closed/%m.raw");
    assert_silent_success(&command.arg("close").output().unwrap());
    assert_eq!(lab.raw_file("closed").count(0), each);
    assert_eq!(std::fs::metadata(lab.path("precious")).unwrap().len(), 0);
    if is_root("chroot") {
        lab.run(&lab.path("program"), "out/%m.raw");
        assert_eq!(lab.raw_file("out").count(0), each);
    }
}
