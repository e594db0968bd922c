//! Programs that are restricted or restrict themselves: limits, system call filters, special permissions of their files. The programs must
//! behave as without the recorder, or be rejected before they start, with an error that names the reason.

use super::files::POSTS_PROGRAM;
use super::{Place, check_consistency, must};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use trodden_wire::waits::kind;

impl Place {
    /// Runs a shell script in which `$0` is `trodden`.
    fn run_script(&self, script: &str) -> Output {
        self.command("sh").args(["-c", script, env!("CARGO_BIN_EXE_trodden")]).output().unwrap()
    }
}

fn read_errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn file_size_limits_do_not_end_the_program() {
    let place = Place::new();
    place.build("gcc", "posts.c", POSTS_PROGRAM, &["-O1", "-pthread"]);
    for limit in [0, 8, 200] {
        let alone = must(place.run_script(&format!("ulimit -f {limit}; ./app 20000")));
        let recorded = must(place.record(&["sh", "-c", &format!("ulimit -f {limit}; ./app 20000")]));
        assert_eq!(alone.stdout, recorded.stdout, "{limit}: {}", read_errors(&recorded));
    }
    let report = place.report(&[]);
    check_consistency(&report);
    assert!(report["notes"].to_string().contains("no space was left for a process's recording"), "{:#}", report["notes"]);
    let (threads, posts) = place.count_threads_and_calls(kind::SEMAPHORE_POST);
    assert!((1..=2).contains(&threads) && posts > 800 && posts < 40_000, "{threads} threads, {posts} posts");
}

/// A program that prints the limit of its address space and how much it can map below this limit, lowers the limit, and creates threads
/// before and after that.
const LIMITED_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
static void *nothing(void *a) { return a; }
static void threads(int count) {
  pthread_t t[64];
  for (int i = 0; i < count; i++) if (pthread_create(t + i, 0, nothing, 0)) printf("no thread\n");
  for (int i = 0; i < count; i++) pthread_join(t[i], 0);
}
static void say(void) {
  struct rlimit limit, same;
  getrlimit(RLIMIT_AS, &limit);
  prlimit(0, RLIMIT_AS, 0, &same);
  int pieces = 0;
  static char *all[4096];
  while (pieces < 4096 && (all[pieces] = mmap(0, 4 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) != MAP_FAILED)
    pieces++;
  for (int i = 0; i < pieces; i++) munmap(all[i], 4 << 20);
  printf("%ld %ld %d %d\n", (long)limit.rlim_cur, (long)limit.rlim_max, limit.rlim_cur == same.rlim_cur, pieces);
}
int main(int count, char **words) {
  static const struct rlimit less = { 1002l << 20, 3000l << 20 }, more = { 1500l << 20, 3000l << 20 }, wrong = { 2, 1 };
  if (count > 1) threads(8);
  if (setrlimit(RLIMIT_AS, &less)) return 1;
  threads(8);
  say();
  printf("%d\n", setrlimit(RLIMIT_AS, &wrong));
  if (prlimit(0, RLIMIT_AS, &more, 0)) return 1;
  threads(8);
  say();
  return 0;
}
"#;

#[test]
fn programs_that_limit_their_address_space_have_the_same_room() {
    let place = Place::new();
    place.build("gcc", "limited.c", LIMITED_PROGRAM, &["-O1", "-pthread"]);
    for word in ["", "before"] {
        let script = format!("exec setarch -R ./app {word}");
        let alone = must(place.run_script(&script));
        let recorded = must(place.record(&["sh", "-c", &script]));
        assert_eq!(String::from_utf8_lossy(&recorded.stdout), String::from_utf8_lossy(&alone.stdout), "{word}");
        check_consistency(&place.report(&[]));
        assert_eq!(place.count_threads_and_calls(kind::JOIN), if word.is_empty() { (17, 16) } else { (25, 24) });
    }
}

#[test]
fn programs_with_a_limited_address_space_are_rejected_or_left_alone() {
    let place = Place::new();
    place.build("gcc", "posts.c", POSTS_PROGRAM, &["-O1", "-pthread"]);
    let output = place.run_script("ulimit -v 8000000; exec \"$0\" waits record -o app.waits -- sh -c 'echo begun >begun'");
    assert_eq!(output.status.code(), Some(2), "{}", read_errors(&output));
    assert!(read_errors(&output).contains("sh is limited to 8000000 KiB") && read_errors(&output).contains("ulimit -v unlimited"));
    assert!(!place.path("begun").exists());
    let script = "ulimit -v 8000000; exec ./app 5";
    let alone = must(place.run_script(script));
    let recorded = must(place.record(&["sh", "-c", script]));
    assert_eq!(recorded.stdout, alone.stdout);
    assert!(read_errors(&recorded).contains("its address space is limited"), "{}", read_errors(&recorded));
}

/// A program whose threads post a semaphore. Then a filter allows only the system calls that the program itself makes; any other call, such
/// as one by the recorder, ends the process.
const FILTERED_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define KILL(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
static sem_t posted, go, done;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile double sink;
static void compute(void) { double s = 0; for (int i = 0; i < 100000000; i++) s += i * 0.5; sink = s; }
static void post(void) { for (int i = 0; i < 100; i++) sem_post(&posted); }
static void hold(void) { for (int i = 0; i < 20; i++) { pthread_mutex_lock(&mutex); usleep(300); pthread_mutex_unlock(&mutex); } }
static void *lives(void *a) { post(); sem_post(&done); sem_wait(&go); compute(); hold(); return a; }
static void *begins(void *a) { post(); hold(); return a; }
int main(int count, char **words) {
  static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), KILL(timer_create), KILL(timer_settime), KILL(timer_delete), KILL(fallocate), KILL(pwrite64),
    KILL(prlimit64), KILL(openat), KILL(readlink), KILL(process_vm_readv), KILL(gettid), KILL(getpid), KILL(getrusage), KILL(ftruncate),
    KILL(rt_sigreturn), KILL(uname), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
  static const struct sock_fprog filter = { sizeof rules / sizeof *rules, rules };
  pthread_t before, after;
  sem_init(&posted, 0, 0); sem_init(&go, 0, 0); sem_init(&done, 0, 0);
  pthread_create(&before, 0, lives, 0);
  sem_wait(&done);
  int is_there = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0) == -1 && errno == EFAULT;
  post();
  compute();
  if (!strcmp(words[1], "strict")) { sem_post(&go); pthread_join(before, 0); }
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (!strcmp(words[1], "prctl") && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;
  if (!strcmp(words[1], "threads") && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)) return 1;
  if (!strcmp(words[1], "strict")) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 1;
    post();
    compute();
    if (write(1, "strict\n", 7) != 7) return 1;
    syscall(SYS_exit, 0);
  }
  sem_post(&go);
  pthread_create(&after, 0, begins, 0);
  hold();
  compute();
  pthread_join(before, 0);
  pthread_join(after, 0);
  int status = 1;
  pid_t child = fork();
  if (!child) { post(); _exit(3); }
  waitpid(child, &status, 0);
  printf("%d %d\n", is_there, WEXITSTATUS(status));
  fflush(stdout);
  _exit(0);
}
"#;

#[test]
fn programs_that_filter_their_system_calls_run_to_their_end() {
    let place = Place::new();
    place.build("gcc", "filtered.c", FILTERED_PROGRAM, &["-O1", "-pthread"]);
    for way in ["prctl", "threads", "strict"] {
        let script = format!("exec timeout 100 ./app {way}");
        let alone = place.run_script(&script);
        let recorded = place.record_any(&["sh", "-c", &script]);
        let results = [&alone, &recorded].map(|output| (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()));
        assert_eq!(results[0], results[1], "{way}: {}", read_errors(&recorded));
        assert!(!results[0].1.is_empty(), "{way}: {results:?}");
        let report = place.report(&[]);
        check_consistency(&report);
        let notes = report["notes"].to_string();
        assert!(notes.contains("system call filter (seccomp)"), "{way}: {notes}");
        // Posts before the filter by both threads, and the posts by which they wake each other.
        let posts = if way == "strict" { 202 } else { 201 };
        assert_eq!(place.count_threads_and_calls(kind::SEMAPHORE_POST), (2, posts), "{way}");
    }
}

const OTHER_USER_ID: &str = "65534";

#[test]
fn programs_that_gain_privileges_are_rejected_before_they_start() {
    let is_root = std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !is_root || !["/usr/bin/setpriv", "/usr/sbin/setcap"].iter().all(|program| Path::new(program).exists()) {
        eprintln!("skipped: only root can become another user, by setpriv and setcap");
        return;
    }
    let place = Place::new();
    place.build("gcc", "posts.c", POSTS_PROGRAM, &["-O1", "-pthread"]);
    let program = place.path("app");
    let mode = |path: &Path, mode: u32| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(&place.path(""), 0o777);
    let by_other = |command: &str| {
        let user = ["--reuid", OTHER_USER_ID, "--regid", OTHER_USER_ID, "--clear-groups", "--inh-caps=-all", "--", "sh", "-c", command];
        place.command("setpriv").args(user).arg(env!("CARGO_BIN_EXE_trodden")).output().unwrap()
    };
    let record = |path: &str| format!("PATH=$PWD:$PATH exec \"$0\" waits record -o other.waits -- {path} 1");
    let refused = |what: &str| {
        for path in ["./app", "app"] {
            let output = by_other(&record(path));
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{what}: {}", read_errors(&output));
            let name = if path == "app" { program.to_str().unwrap() } else { path };
            assert!(
                read_errors(&output).contains(&format!("cannot record {name}, because it has {what}")),
                "{what}: {}",
                read_errors(&output)
            );
        }
    };
    must(by_other(&record("./app")));
    mode(&program, 0o4755);
    refused("the setuid bit");
    // The set-user-ID bit gives root no further privileges, so the program can be recorded.
    place.record(&["./app", "1"]);
    assert_eq!(place.count_threads_and_calls(kind::SEMAPHORE_POST), (2, 2));
    mode(&program, 0o2755);
    refused("the setgid bit");
    mode(&program, 0o755);
    match Command::new("setcap").arg("cap_net_raw+ep").arg(&program).output().unwrap().status.success() {
        true => refused("capabilities (setcap)"),
        false => eprintln!("skipped: this file system has no capabilities"),
    }
    // A privileged program that is started through a shell runs as without the recorder.
    let alone = must(by_other("./app 3"));
    let recorded = must(by_other("exec \"$0\" waits record -o other.waits -- sh -c './app 3'"));
    assert_eq!(recorded.stdout, alone.stdout);
    assert!(read_errors(&recorded).contains("nothing was recorded"), "{}", read_errors(&recorded));
}
