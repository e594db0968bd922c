//! `trodden trace record` when it fails, and targets that end or are stopped at any moment. The target process must continue as if it had
//! not been traced, and the recorder must end.

use crate::traced::{Folder, errors, must};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// A program with several threads that work, check the results of their calls, and add up what they do. On SIGUSR1, they end and the sum is
/// printed. With an argument, SIGUSR2 makes the program do something that ends every trace: with `gs`, it sets the `gs` register;
/// otherwise, it loads the library that the argument names while no memory near its code is free.
const WORKER_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile sig_atomic_t is_over, is_asked;
static void end(int signal) { is_over = 1; }
static void ask(int signal) { is_asked = 1; }
__attribute__((noinline)) static unsigned mix(unsigned n) { return n % 3 == 0 ? n * 7 + 1 : n % 3 == 1 ? n ^ 0x55 : n / 3; }
__attribute__((noinline)) static void round_of_work(void) {
    unsigned sum = 0, again = 0;
    for (unsigned i = 0; i < 50; i++) sum = sum * 31 + mix(i);
    for (unsigned i = 0; i < 50; i++) again = again * 31 + mix(i);
    struct timespec while_ = {0, 200000};
    if (sum != again || getppid() < 0 || nanosleep(&while_, 0) && errno != EINTR) abort();
}
static pthread_barrier_t begun;
static void *work(void *unused) { pthread_barrier_wait(&begun); while (!is_over) round_of_work(); return 0; }
int main(int count, char **arguments) {
    struct sigaction ends = { .sa_handler = end }, asks = { .sa_handler = ask };
    sigaction(SIGUSR1, &ends, 0);
    sigaction(SIGUSR2, &asks, 0);
    pthread_t threads[3];
    sigset_t all, none;
    sigemptyset(&none);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
    pthread_barrier_init(&begun, 0, 4);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    // The C library blocks further signals while a thread starts, so the program waits until all threads run.
    pthread_barrier_wait(&begun);
    sigprocmask(SIG_SETMASK, &none, 0);
    puts("ready");
    fflush(stdout);
    long known = 0;
    while (!is_over) {
        round_of_work();
        if (!is_asked) continue;
        is_asked = 0;
        if (strcmp(arguments[1], "gs") == 0) {
            if (syscall(SYS_arch_prctl, ARCH_SET_GS, &known)) abort();
        } else {
            // The loader maps a library into the highest gap that is large enough. All addresses below this gap are taken.
            size_t taken = 8ul << 30, gap = 64 << 20;
            char *room = mmap(0, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (room == MAP_FAILED || munmap(room + taken - gap, gap)) abort();
            if (!dlopen(arguments[1], RTLD_NOW)) { puts(dlerror()); abort(); }
        }
        puts("done");
        fflush(stdout);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    unsigned sum = 0;
    for (unsigned i = 0; i < 1000; i++) sum = sum * 31 + mix(i);
    printf("sum %u\n", sum);
    return 0;
}
"#;

/// A process that starts without being traced, and is attached to later.
struct Target {
    child: Child,
}

impl Drop for Target {
    fn drop(&mut self) {
        // Ends the target if an assertion failed. Otherwise, it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Target {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut child = Command::new(folder.path("app")).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(read_line(&mut child), "ready");
        Self { child }
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    fn signal(&self, signal: &str) {
        must(Command::new("kill").args([signal, &self.id()]).output().unwrap());
    }

    /// Returns what a trace might change: the code, the number of mappings, and the signals that each thread blocks. The process must not
    /// be traced at that time.
    fn read_state(&self) -> (Vec<u8>, usize, Vec<String>) {
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.id())).unwrap();
        let maps = file("maps");
        let code = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with("/app")).expect("the code is mapped");
        let (start, end) = code.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.id())).unwrap();
        let mut bytes = vec![0; (end - start) as usize];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, start).unwrap();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let mut masks: Vec<String> = tasks
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())
            .flat_map(|status| {
                status.lines().filter(|l| l.starts_with("SigBlk") || l.starts_with("TracerPid")).map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        masks.sort();
        (bytes, maps.lines().count(), masks)
    }

    fn end_and_read_output(mut self) -> String {
        self.signal("-USR1");
        let mut said = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

fn read_line(child: &mut Child) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    let output = child.stdout.as_mut().unwrap();
    while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn recorder_command(folder: &Folder, target: &Target, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
    command.current_dir(folder.path("")).args(["trace", "record", "--output", "t.trace", "--pid", &target.id()]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Waits up to a minute for a process to end.
fn wait_for_end(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn is_traced(target: &Target) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.id())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("TracerPid") && !line.ends_with("\t0"))
}

const SUM_PREFIX: &str = "sum ";

#[test]
fn processes_survive_a_recorder_without_room() {
    let folder = Folder::new();
    folder.compile("cc", "worker.c", WORKER_PROGRAM);
    let undisturbed = Target::start(&folder, &[]).end_and_read_output();
    assert!(undisturbed.starts_with(SUM_PREFIX));
    for collector in ["ptrace", "trampolines", "single-step"] {
        let target = Target::start(&folder, &[]);
        let before = target.read_state();
        let mut command = Command::new("sh");
        command.current_dir(folder.path("")).env("PID", target.id()).stdin(Stdio::null());
        let script = format!("ulimit -f 1; exec \"$0\" trace record --collector {collector} --for 60s --output t.trace --pid $PID");
        let output = command.args(["-c", &script, env!("CARGO_BIN_EXE_trodden")]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{collector}: {}", errors(&output));
        assert!(errors(&output).contains("File too large"), "{collector}: {}", errors(&output));
        assert!(target.read_state() == before, "{collector}: {}", errors(&output));
        assert_eq!(target.end_and_read_output(), undisturbed, "{collector}");
    }
}

#[test]
fn processes_survive_actions_that_end_the_trace() {
    let folder = Folder::new();
    folder.compile("cc", "worker.c", WORKER_PROGRAM);
    std::fs::write(folder.path("lib.c"), "int twice(int n) { return n > 3 ? 2 * n : n + n; }\n").unwrap();
    must(Command::new("cc").current_dir(folder.path("")).args(["-shared", "-fPIC", "lib.c", "-o", "libtwice.so"]).output().unwrap());
    let library = folder.path("libtwice.so").display().to_string();
    let ways: [(&str, &[&str], &str); 3] = [
        ("gs", &["--collector", "trampolines"], "gs register"),
        (&library, &["--collector", "ptrace", "--library", "./libtwice.so"], "no memory near"),
        (&library, &["--collector", "trampolines", "--library", "./libtwice.so"], "no memory near"),
    ];
    for (argument, options, why) in ways {
        let mut target = Target::start(&folder, &[argument]);
        let before = target.read_state();
        let recorder = recorder_command(&folder, &target, &[options, &["--for", "60s"]].concat()).spawn().unwrap();
        while !is_traced(&target) {
            std::thread::sleep(Duration::from_millis(5));
        }
        target.signal("-USR2");
        assert_eq!(read_line(&mut target.child), "done", "{options:?}");
        let output: Output = recorder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", errors(&output));
        assert!(errors(&output).contains(why), "{options:?}: {}", errors(&output));
        let after = target.read_state();
        assert!(after.0 == before.0 && after.2 == before.2, "{options:?}");
        assert!(target.end_and_read_output().starts_with(SUM_PREFIX));
    }
}

#[test]
fn started_programs_run_to_their_end_when_the_recorder_has_no_room() {
    let folder = Folder::new();
    let text = "#include <stdio.h>\n__attribute__((noinline)) static unsigned mix(unsigned n) { return n >> 16 & 1 ? n * 7 : n / 3; }\n\
                int main(void) { unsigned next = 1, sum = 0;\n\
                for (int i = 0; i < 10000; i++) { next = next * 1103515245 + 12345; sum = sum * 31 + mix(next); }\n\
                printf(\"%u\\n\", sum); return 0; }\n";
    folder.compile("cc", "sum.c", text);
    let undisturbed = must(Command::new(folder.path("app")).output().unwrap());
    for collector in ["ptrace", "trampolines", "single-step"] {
        let script = format!("ulimit -f 1; exec \"$0\" trace record --runs 1 --collector {collector} --output t.trace ./app");
        let mut command = Command::new("sh");
        command.current_dir(folder.path("")).stdin(Stdio::null()).args(["-c", &script, env!("CARGO_BIN_EXE_trodden")]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{collector}: {}", errors(&output));
        assert!(errors(&output).contains("File too large"), "{collector}: {}", errors(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), undisturbed, "{collector}");
    }
}

/// Checks that the recorder ends soon after its target is killed, and that no zombie of the target remains.
fn check_recorder_ends_with_target(folder: &Folder, options: &[&str], disturb: impl Fn(&Target, &Child)) {
    let mut target = Target::start(folder, &[]);
    let mut recorder = recorder_command(folder, &target, options).spawn().unwrap();
    disturb(&target, &recorder);
    target.signal("-KILL");
    let status = wait_for_end(&mut recorder);
    if status.is_none() {
        recorder.kill().unwrap();
        recorder.wait().unwrap();
    }
    let is_reaped = wait_for_end(&mut target.child).is_some();
    assert!(status.is_some() && is_reaped, "{options:?}: the recorder {status:?}, its target reaped: {is_reaped}");
}

#[test]
fn killing_a_target_during_attach_ends_the_recorder() {
    let folder = Folder::new();
    folder.compile("cc", "worker.c", WORKER_PROGRAM);
    for round in 0..20u64 {
        let collector = ["ptrace", "trampolines", "single-step"][round as usize % 3];
        check_recorder_ends_with_target(&folder, &["--collector", collector], |target, recorder| {
            // Each round waits longer between the attachment of the first thread and the kill.
            let id = recorder.id();
            while !is_traced(target) && Path::new(&format!("/proc/{id}/exe")).exists() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(round * round * 40));
        });
    }
}

#[test]
fn killing_a_target_during_detach_ends_the_recorder() {
    let folder = Folder::new();
    folder.compile("cc", "worker.c", WORKER_PROGRAM);
    for round in 0..12u64 {
        let collector = ["ptrace", "trampolines", "single-step"][round as usize % 3];
        check_recorder_ends_with_target(&folder, &["--collector", collector], |target, recorder| {
            while !is_traced(target) {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(20));
            must(Command::new("kill").args(["-INT", &recorder.id().to_string()]).output().unwrap());
            std::thread::sleep(Duration::from_millis(round * 2));
        });
    }
}

#[test]
fn stopped_targets_are_reported_while_they_are_traced() {
    let folder = Folder::new();
    folder.compile("cc", "worker.c", WORKER_PROGRAM);
    let target = Target::start(&folder, &[]);
    let before = target.read_state().0;
    let mut recorder = recorder_command(&folder, &target, &["--collector", "ptrace"]).spawn().unwrap();
    // Waits until the recorder has changed the code. Stopping the target while the recorder attaches would be an error instead.
    while target.read_state().0 == before {
        std::thread::sleep(Duration::from_millis(2));
    }
    target.signal("-STOP");
    let mut said = [0; 200];
    let read = recorder.stderr.as_mut().unwrap().read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..read]).into_owned();
    assert!(said.contains("is stopped by a signal") && said.contains("kill -CONT"), "{said}");
    // The target is no longer traced, but must still be stopped.
    must(Command::new("kill").args(["-INT", &recorder.id().to_string()]).output().unwrap());
    assert!(wait_for_end(&mut recorder).is_some_and(|status| status.success()));
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.id())).unwrap();
    assert!(status.contains("State:\tT (stopped)") && status.contains("TracerPid:\t0"), "{status}");
    target.signal("-CONT");
    assert!(target.end_and_read_output().starts_with(SUM_PREFIX));
}

#[test]
fn untraceable_processes_are_rejected_by_name_before_anything_is_planned() {
    let folder = Folder::new();
    let refused = |id: &str, why: &str| {
        let script = format!("exec \"$0\" trace record --pid {id} --output t.trace");
        let output = Command::new("sh").current_dir(folder.path("")).args(["-c", &script, env!("CARGO_BIN_EXE_trodden")]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{id}");
        assert!(errors(&output).contains(why), "{id}: {}", errors(&output));
    };
    // Because of `exec`, `$$` is the process ID of the recorder itself.
    refused("$$", "it is the recorder itself");
    refused("4194305", "it does not exist");
    let mut ended = Command::new("true").spawn().unwrap();
    while !std::fs::read_to_string(format!("/proc/{}/status", ended.id())).unwrap().contains("State:\tZ") {
        std::thread::sleep(Duration::from_millis(2));
    }
    refused(&ended.id().to_string(), "it has ended, or its first thread has");
    ended.wait().unwrap();
    let kernel = std::fs::read_to_string("/proc/2/status").unwrap_or_default();
    match kernel.contains("kthreadd") {
        true => refused("2", "kernel thread"),
        false => eprintln!("skipped: the kernel's threads are not seen here"),
    }
    folder.compile("cc", "worker.c", WORKER_PROGRAM);
    let target = Target::start(&folder, &[]);
    let mut first = recorder_command(&folder, &target, &["--collector", "ptrace"]).spawn().unwrap();
    while !is_traced(&target) {
        std::thread::sleep(Duration::from_millis(2));
    }
    refused(&target.id(), "(trodden) already traces it");
    must(Command::new("kill").args(["-INT", &first.id().to_string()]).output().unwrap());
    assert!(first.wait().unwrap().success());
    assert!(target.end_and_read_output().starts_with(SUM_PREFIX));
}
