//! `trodden trace record --follow`: child processes, and the programs that processes execute, have traces of their own, which are compared
//! with single-stepping, block by block.

use crate::traced::{Folder, errors, must};
use std::process::Command;

/// A program with a thread, children, grandchildren, a program started without fork(2), and exec(2) at its end.
const FAMILY_PROGRAM: &str = r#"
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
__attribute__((noinline)) static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static void *count(void *number) { return (void *)(long)fib((int)(long)number); }
static int status_of(pid_t child) { int status; waitpid(child, &status, 0); return WEXITSTATUS(status); }
int main(int argc, char **argv) {
    if (argc > 1) { printf("executed %d\n", fib(10)); return 7; }
    pthread_t thread;
    pthread_create(&thread, 0, count, (void *)12L);
    pthread_join(thread, 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) {
            pid_t grandchild = fork();
            if (!grandchild) _exit(fib(i + 3));
            _exit(fib(i) + status_of(grandchild));
        }
        printf("%d\n", status_of(child));
        fflush(stdout);
    }
    char *arguments[] = { argv[0], "x", 0 };
    pid_t spawned;
    posix_spawn(&spawned, argv[0], 0, 0, arguments, environ);
    printf("spawned %d\n", status_of(spawned));
    fflush(stdout);
    execv(argv[0], arguments);
}
"#;

/// Returns the names of all traces of a recording.
fn list_traces(folder: &Folder, first: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name == first || name.starts_with(&format!("{first}."))).collect()
}

/// Returns the executed blocks of all processes. Process IDs differ between recordings, so the processes are sorted by their blocks.
fn sorted_blocks(folder: &Folder, first: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = list_traces(folder, first).iter().map(|name| folder.addresses(name)).collect();
    all.sort();
    all
}

#[test]
fn traces_of_children_agree_with_stepping() {
    let folder = Folder::new();
    folder.compile("cc", "family.c", FAMILY_PROGRAM);
    let plain = Command::new(folder.path("app")).current_dir(folder.path("")).output().unwrap();
    let mut stepped = None;
    for collector in ["single-step", "ptrace", "trampolines"] {
        let recorded = folder.record(&["--follow", "--collector", collector], collector, &["./app"]);
        assert_eq!((recorded.status.code(), &recorded.stdout), (Some(7), &plain.stdout), "{collector}: {}", errors(&recorded));
        let blocks = sorted_blocks(&folder, collector);
        // The program, three children, three grandchildren, and two executed programs.
        assert_eq!(blocks.len(), 9, "{collector}: {}", errors(&recorded));
        let sizes = |all: &[Vec<String>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        let expected = stepped.get_or_insert_with(|| blocks.clone());
        assert!(*expected == blocks, "{collector}: {:?} and {:?} blocks", sizes(expected), sizes(&blocks));
    }
}

/// Traps reset the action for an ignored SIGTRAP, so none may occur in a child that ignores it.
const IGNORING_PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static int ignores(void) { struct sigaction now; sigaction(SIGTRAP, 0, &now); return now.sa_handler == SIG_IGN; }
int main(int argc, char **argv) {
    if (argc > 1) return 10 + ignores();
    signal(SIGTRAP, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) { raise(SIGTRAP); _exit(ignores()); }
        int status;
        waitpid(child, &status, 0);
        printf("%d %d\n", WIFEXITED(status), WEXITSTATUS(status));
        fflush(stdout);
    }
    execl(argv[0], argv[0], "x", (char *)0);
}
"#;

#[test]
fn children_ignore_the_signals_that_they_inherit_as_ignored() {
    let folder = Folder::new();
    folder.compile("cc", "ignoring.c", IGNORING_PROGRAM);
    for collector in ["trampolines", "ptrace"] {
        let recorded = folder.record(&["--follow", "--collector", collector], collector, &["./app"]);
        assert_eq!(String::from_utf8_lossy(&recorded.stdout), "1 1\n1 1\n1 1\n", "{collector}: {}", errors(&recorded));
        assert_eq!(recorded.status.code(), Some(11), "{collector}: {}", errors(&recorded));
        assert_eq!(list_traces(&folder, collector).len(), 5);
    }
}

#[test]
fn commands_of_a_script_have_traces() {
    let folder = Folder::new();
    std::fs::write(folder.path("script"), "echo words | tr a-z A-Z\nexec sort input\n").unwrap();
    let recorded = folder.record(&["--follow"], "script.trace", &["sh", "script"]);
    let notes = errors(&recorded);
    assert_eq!(must(recorded), "WORDS\na small text, a small text\nof two lines\n");
    for command in ["`tr a-z A-Z`", "`sort input`"] {
        let line = notes.lines().find(|line| line.contains(command)).unwrap_or_else(|| panic!("{command} is missing: {notes}"));
        let trace = line.rsplit_once(" in ").unwrap().1;
        assert!(trace.starts_with("script.trace.") && !folder.addresses(trace).is_empty(), "{line}");
    }
    // The shell's own process is replaced by `sort`, and its trace says where the others are.
    assert!(notes.contains("`script.trace.PID`"), "{notes}");
}

#[test]
fn untraceable_children_run_untraced_and_are_named() {
    let folder = Folder::new();
    // The code of this program is writable, so only stepping could trace it.
    let text = r#"__asm__(".globl _start\n_start: mov $60, %eax\nmov $5, %edi\nsyscall");"#;
    std::fs::write(folder.path("writable.c"), text).unwrap();
    let options = ["-nostdlib", "-static", "-Wl,-N", "writable.c", "-o", "writable"];
    must(Command::new("cc").current_dir(folder.path("")).args(options).output().unwrap());
    std::fs::write(folder.path("script"), "./writable\necho $?\n").unwrap();
    let recorded = folder.record(&["--follow"], "t.trace", &["sh", "script"]);
    let notes = errors(&recorded);
    assert_eq!(must(recorded), "5\n");
    assert!(notes.contains("(`./writable`) is not traced") && notes.contains("writable code"), "{notes}");
    let executed = folder.record(&["--follow"], "x.trace", &["sh", "-c", "exec ./writable"]);
    assert_eq!(executed.status.code(), Some(5), "{}", errors(&executed));
}

/// No 64-bit system call may be injected into them.
#[test]
fn programs_of_32_bits_run_untraced() {
    let folder = Folder::new();
    if folder.assemble_32_bit_program().is_none() {
        return;
    }
    for options in [&[][..], &["--follow"], &["--follow", "--collector", "ptrace"], &["--runs", "2"], &["--collector", "single-step"]] {
        let scripts = [("exec ./program32", "32\n", 5), ("./program32; echo $?", "32\n5\n", 0)];
        // Merged runs cannot follow the `vfork` of a shell.
        let count = if options.contains(&"--runs") { 1 } else { 2 };
        for (script, said, status) in &scripts[..count] {
            let recorded = folder.record(options, "t.trace", &["sh", "-c", script]);
            let result = (String::from_utf8_lossy(&recorded.stdout), recorded.status.code());
            assert_eq!(result, ((*said).into(), Some(*status)), "{options:?}: {}", errors(&recorded));
            let is_named = errors(&recorded).contains("is not traced: cannot control the traced program: it is a 32-bit program");
            assert_eq!(is_named, options.contains(&"--follow"), "{options:?}: {}", errors(&recorded));
        }
    }
}

#[test]
fn children_are_traced_in_single_runs_only() {
    let folder = Folder::new();
    let rejected = folder.record(&["--follow", "--runs", "2"], "t.trace", &["/bin/true"]);
    assert!(errors(&rejected).contains("--follow works only with a single run"), "{}", errors(&rejected));
    assert!(list_traces(&folder, "t.trace").is_empty());
}
