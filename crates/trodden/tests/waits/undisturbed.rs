//! Recorded programs must behave like unrecorded ones, concerning their signals, their coroutines, and the libraries that they load
//! themselves.

use super::{Place, must};
use std::process::Output;

impl Place {
    /// Runs a program without and with the recorder. Returns both outputs.
    fn run_alone_and_recorded(&self, command: &[&str]) -> (Output, Output) {
        let alone = must(self.command(command[0]).args(&command[1..]).output().unwrap());
        (alone, self.record(command))
    }
}

const MODULE_SOURCE: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void slow_part(void) { usleep(100000); }
int go(void) {
  int rank, size;
  MPI_Init(0, 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 1) slow_part();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks\n", size);
  MPI_Finalize();
  return 0;
}
"#;

/// A program that loads a module at run time, as interpreters do.
const HOST_PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *module = dlopen("./module.so", RTLD_NOW | VISIBILITY);
  if (!module) { puts(dlerror()); return 1; }
  return ((int (*)(void))dlsym(module, "go"))();
}
"#;

#[test]
fn mpi_in_a_loaded_module_is_recorded() {
    for library in ["openmpi", "mpich"] {
        for visibility in ["RTLD_LOCAL", "RTLD_GLOBAL"] {
            let place = Place::new();
            std::fs::write(place.path("module.c"), MODULE_SOURCE).unwrap();
            let compiler = format!("mpicc.{library}");
            let module = ["-g", "-O1", "-shared", "-fPIC", "module.c", "-o", "module.so"];
            must(place.command(&compiler).args(module).output().unwrap());
            place.build("gcc", "host.c", HOST_PROGRAM, &[&format!("-DVISIBILITY={visibility}")]);
            let output = place.record(&[&format!("mpirun.{library}"), "-n", "2", "./app"]);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "2 ranks\n", "{library} {visibility}");
            let report = place.report(&[]);
            super::check_consistency(&report);
            assert_eq!(super::first_cause(&report), ("slow_part".into(), 1), "{library} {visibility}: {:#}", report["causes"]);
        }
    }
}

/// A program with two coroutines whose stacks start at the same address, although the second one is shorter. Both make calls with equal
/// stack pointers.
const COROUTINES_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#define BASE ((char *)0x700000000000ul)
static ucontext_t home, coroutine;
static uintptr_t frame;
static size_t room;
__attribute__((noinline)) void inner(void) { frame = (uintptr_t)__builtin_frame_address(0); usleep(100); __asm__ volatile(""); }
__attribute__((noinline)) void outer(size_t n) { volatile char *p = alloca(n); p[0] = 1; inner(); p[1] = 1; }
static void start(void) { outer(room); swapcontext(&coroutine, &home); }
static void run(size_t size, size_t n) {
  char *stack = mmap(BASE, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = stack; coroutine.uc_stack.ss_size = size; coroutine.uc_link = &home; room = n;
  makecontext(&coroutine, start, 0);
  swapcontext(&home, &coroutine);
  printf("frame %#lx of a stack of %zu\n", frame, size); fflush(stdout);
  munmap(stack, size);
}
static void *nothing(void *p) { return p; }
static void *both(void *p) { run(256 * 1024, 200 * 1024); run(128 * 1024, 72 * 1024); run(256 * 1024, 200 * 1024); return p; }
int main(void) {
  pthread_t t;
  pthread_create(&t, 0, nothing, 0); pthread_join(t, 0);
  both(0);
  pthread_create(&t, 0, both, 0); pthread_join(t, 0);
  return 0;
}
"#;

#[test]
fn coroutine_stacks_may_be_unmapped() {
    let place = Place::new();
    place.build("gcc", "coroutines.c", COROUTINES_PROGRAM, &["-O1", "-pthread"]);
    let (alone, recorded) = place.run_alone_and_recorded(&["./app"]);
    assert_eq!(alone.stdout, recorded.stdout);
    let text = String::from_utf8_lossy(&alone.stdout).into_owned();
    let frames: Vec<&str> = text.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert!(frames.len() == 6 && frames.iter().all(|frame| *frame == frames[0]), "the program does not do what is tested: {text}");
}

/// A program that, depending on its argument, profiles itself, handles all signals, or has one thread that waits for all signals while the
/// others block them.
const SIGNALS_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <unistd.h>
static atomic_int profiled, others;
static volatile double sink;
static void on_profile(int s) { (void)s; atomic_fetch_add(&profiled, 1); }
static void on_other(int s) { (void)s; atomic_fetch_add(&others, 1); }
__attribute__((noinline)) static void compute(void) { double s = 0; for (int i = 0; i < 3000000; i++) s += i * 0.5; sink = s; }
static void *until_profiled(void *a) { while (atomic_load(&profiled) < 20) compute(); return a; }
static void *blocked(void *a) { for (int i = 0; i < 40; i++) compute(); return a; }
static void *taker(void *a) {
  sigset_t all; int signal = 0;
  sigfillset(&all);
  for (int i = 0; i < 10; i++) compute();
  sigwait(&all, &signal);
  printf("taken %d\n", signal);
  return a;
}
int main(int count, char **words) {
  pthread_t t[2];
  if (count > 1 && !strcmp(words[1], "profile")) {
    signal(SIGPROF, on_profile);
    struct itimerval often = {{0, 10000}, {0, 10000}};
    setitimer(ITIMER_PROF, &often, 0);
    pthread_create(t, 0, until_profiled, 0);
    pthread_join(t[0], 0);
    struct sigaction now;
    sigaction(SIGPROF, 0, &now);
    printf("%d %d\n", now.sa_handler == on_profile, atomic_load(&profiled) >= 20);
  } else if (count > 1 && !strcmp(words[1], "handlers")) {
    pthread_create(t, 0, blocked, 0);
    int kept = 0;
    for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
      struct sigaction action = {.sa_handler = on_other, .sa_flags = SA_RESTART}, now;
      sigaction(s, 0, &now);
      kept += now.sa_handler == SIG_DFL;
      sigaction(s, &action, 0);
      sigaction(s, 0, &now);
      kept += now.sa_handler == on_other;
      kept += signal(s, on_other) == on_other;
    }
    pthread_join(t[0], 0);
    for (int i = 0; i < 40; i++) compute();
    printf("%d %d", kept == 3 * (SIGRTMAX - SIGRTMIN + 1), atomic_load(&others));
    for (int s = SIGRTMIN; s <= SIGRTMAX; s++) raise(s);
    printf(" %d", atomic_load(&others) == SIGRTMAX - SIGRTMIN + 1);
    for (int s = SIGRTMIN; s <= SIGRTMAX; s++) signal(s, SIG_IGN), raise(s);
    printf(" %d\n", atomic_load(&others) == SIGRTMAX - SIGRTMIN + 1);
  } else if (count > 1 && !strcmp(words[1], "default")) {
    pthread_create(t, 0, blocked, 0);
    pthread_join(t[0], 0);
    raise(SIGRTMAX);
  } else {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, 0);
    int file = signalfd(-1, &all, SFD_NONBLOCK);
    pthread_create(t, 0, taker, 0);
    pthread_create(t + 1, 0, blocked, 0);
    pthread_join(t[1], 0);
    for (int i = 0; i < 40; i++) compute();
    struct signalfd_siginfo got;
    printf("read %zd\n", read(file, &got, sizeof got)); fflush(stdout);
    pthread_kill(t[0], SIGUSR2);
    pthread_join(t[0], 0);
    printf("end %d\n", SIGUSR2);
  }
  return 0;
}
"#;

#[test]
fn programs_keep_their_own_signals() {
    let place = Place::new();
    place.build("gcc", "signals.c", SIGNALS_PROGRAM, &["-O1", "-pthread"]);
    for (mode, expected) in [("profile", "1 1\n"), ("handlers", "1 0 1 1\n"), ("block", "read -1\ntaken 12\nend 12\n")] {
        let (alone, recorded) = place.run_alone_and_recorded(&["./app", mode]);
        assert_eq!(String::from_utf8_lossy(&alone.stdout), expected, "{mode} alone");
        assert_eq!(String::from_utf8_lossy(&recorded.stdout), expected, "{mode} recorded");
        let samples = super::files::count_samples(&place);
        assert!(samples > 20, "{mode}: {samples} samples");
    }
    let ended =
        place.command(env!("CARGO_BIN_EXE_trodden")).args(["waits", "record", "-o", "app.waits", "--", "./app", "default"]).output();
    assert_eq!(ended.unwrap().status.code(), Some(128 + 64));
}

#[test]
fn only_recordings_are_replaced() {
    let place = Place::new();
    place.build("gcc", "signals.c", SIGNALS_PROGRAM, &["-O1", "-pthread"]);
    let record = || {
        let mut command = place.command(env!("CARGO_BIN_EXE_trodden"));
        command.args(["waits", "record", "-o", "app.waits", "--", "./app", "block"]).output().unwrap()
    };
    must(record());
    must(record());
    let threads = place.list_files("threads").remove(0);
    // The user has put files with names like those of a recording's files into the recording's folder.
    for name in ["song.threads", "1-2.threads", "list.process", "top.stacks", threads.file_name().unwrap().to_str().unwrap()] {
        let file = place.path("app.waits").join(name);
        let kept = std::fs::read(&file).ok();
        std::fs::write(&file, "precious").unwrap();
        let refused = record();
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && message.contains("--output") && message.contains(name), "{name}: {message}");
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        kept.map_or_else(|| std::fs::remove_file(&file), |bytes| std::fs::write(&file, bytes)).unwrap();
    }
    must(record());
}

#[test]
fn reports_are_written_through_links_and_into_pipes() {
    let place = Place::new();
    place.build("gcc", "signals.c", SIGNALS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app", "block"]);
    must(place.command("mkfifo").arg("pipe").output().unwrap());
    for option in ["report app.waits --html", "export chrome app.waits --output"] {
        std::fs::create_dir_all(place.path("far")).unwrap();
        std::os::unix::fs::symlink("far/file", place.path("link")).unwrap();
        must(place.command(env!("CARGO_BIN_EXE_trodden")).args(option.split(' ')).arg("link").output().unwrap());
        assert!(place.path("link").is_symlink() && place.path("far/file").is_file(), "{option}");
        let pipe = place.path("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        must(place.command(env!("CARGO_BIN_EXE_trodden")).args(option.split(' ')).arg("pipe").output().unwrap());
        assert_eq!(reader.join().unwrap(), std::fs::read(place.path("far/file")).unwrap(), "{option}");
        std::fs::remove_dir_all(place.path("far")).unwrap();
        std::fs::remove_file(place.path("link")).unwrap();
    }
}
