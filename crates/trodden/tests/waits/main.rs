//! `trodden waits` on real programs: MPI in C and Fortran with both libraries, POSIX threads, Rust's `std::sync`, forks, killed programs.
//!
//! Each program has a function that makes others wait, and the report must name it first. The machine may be busy, so times are not
//! compared with a clock; instead, that function does many times more work than the rest.

mod beyond_messages;
mod files;
mod paths;
#[path = "../place/mod.rs"]
mod place;
mod reports;
mod restricted;
mod slow_functions;
mod threads;
mod undisturbed;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../../report/tests/support/webdriver.rs"]
mod webdriver;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        build_recorder();
        Place(tempfile::Builder::new().prefix("trodden-waits-").tempdir().unwrap())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env_remove("LD_PRELOAD");
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn build(&self, compiler: &str, source: &str, text: &str, options: &[&str]) {
        std::fs::write(self.path(source), text).unwrap();
        must(self.command(compiler).args(["-g", source, "-o", "app"]).args(options).output().unwrap());
    }

    fn record(&self, command: &[&str]) -> Output {
        let output =
            self.command(env!("CARGO_BIN_EXE_trodden")).args(["waits", "record", "-o", "app.waits", "--"]).args(command).output().unwrap();
        must(output)
    }

    fn report(&self, options: &[&str]) -> Value {
        let output = self.command(env!("CARGO_BIN_EXE_trodden")).args(["report", "app.waits", "--json"]).args(options).output().unwrap();
        serde_json::from_slice(&must(output).stdout).unwrap()
    }
}

/// Builds the recorder library in the folder of `trodden`, which looks for it there.
fn build_recorder() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_trodden")).parent().unwrap();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "trodden-waits-recorder", "--target-dir"]).arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            command.arg("--release");
        }
        must(command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap());
    });
}

fn must(output: Output) -> Output {
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output
}

fn sum_steps(path: &Value) -> i64 {
    path.as_array().unwrap().iter().map(|step| step["ns"].as_i64().unwrap()).sum()
}

/// Checks that a report is consistent: each wait has a site, the two paths of a class of waits differ by the waiting time (before common
/// steps are left out), and the causes add up to the waits.
fn check_consistency(report: &Value) {
    assert_eq!(report["schema_version"], 1);
    let mut total = 0;
    for wait in report["waits"].as_array().unwrap() {
        assert!(wait["site"]["function"].is_string() && wait["site"]["line"].is_u64(), "{}", wait["site"]);
        let classes = wait["classes"].as_array().unwrap();
        assert_eq!(classes.iter().map(|c| c["wait_ns"].as_u64().unwrap()).sum::<u64>(), wait["total_ns"].as_u64().unwrap());
        for class in classes {
            total += class["wait_ns"].as_i64().unwrap();
            let out = &class["left_out_ns"];
            let plus = sum_steps(&class["plus"]) + out["plus"].as_i64().unwrap();
            let minus = sum_steps(&class["minus"]) + out["minus"].as_i64().unwrap();
            assert_eq!(plus - minus, class["wait_ns"].as_i64().unwrap());
            assert!(class["occurrences"].as_u64().unwrap() > 0);
        }
    }
    assert_eq!(total, report["wait_ns"].as_i64().unwrap());
    let causes = [&report["causes"], &report["communication"]].map(sum_steps).iter().sum::<i64>();
    assert_eq!(causes, total, "causes do not add up to the waits");
    let list: Vec<u64> = report["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).collect();
    assert!(list.is_sorted_by(|a, b| a >= b), "{list:?}");
}

fn first_cause(report: &Value) -> (String, u64) {
    let cause = &report["causes"][0];
    (cause["function"].as_str().unwrap().to_owned(), cause["process"].as_u64().unwrap())
}

const RING_PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
static volatile double sink;
__attribute__((noinline)) static void work(long n) { double s = 0; for (long i = 0; i < n; i++) s += i * 0.5; sink = s; }
__attribute__((noinline)) static void slow_filter(long n) { double s = 0; for (long i = 0; i < n; i++) s += i * 0.25; sink = s; }
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double x = rank, y, t;
  for (int i = 0; i < 40; i++) {
    work(200000);
    if (rank == 1) slow_filter(8000000);
    MPI_Sendrecv(&x, 1, MPI_DOUBLE, (rank + 1) % size, 7, &y, 1, MPI_DOUBLE, (rank + size - 1) % size, 7, MPI_COMM_WORLD,
        MPI_STATUS_IGNORE);
    MPI_Allreduce(&x, &t, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  if (rank == 0) printf("%f\n", t);
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn the_slow_mpi_function_is_named_first_with_both_libraries() {
    for library in ["openmpi", "mpich"] {
        let place = Place::new();
        place.build(&format!("mpicc.{library}"), "ring.c", RING_PROGRAM, &["-O2"]);
        let output = place.record(&[&format!("mpirun.{library}"), "-n", "2", "./app"]);
        assert_eq!(output.stdout, b"1.000000\n");
        let report = place.report(&["--what-if", "slow_filter=100"]);
        check_consistency(&report);
        assert_eq!(first_cause(&report), ("slow_filter".into(), 1), "{library}: {:#}", report["causes"]);
        assert!(report["causes"][0]["file"].as_str().unwrap().ends_with("ring.c"));
        assert_eq!(report["causes"][0]["line"], 6);
        let sites: Vec<&str> = report["waits"].as_array().unwrap().iter().filter_map(|w| w["site"]["call"].as_str()).collect();
        assert!(sites.contains(&"MPI_Sendrecv"), "{sites:?}");
        assert!(report["what_if"][0]["run_ns"].as_u64().unwrap() < report["run_ns"].as_u64().unwrap());
        assert_eq!(report["diagnostics"].as_array().unwrap().len(), 0, "{:#}", report["diagnostics"]);
    }
}

/// The clock of one rank is moved in a copy of the recording, as if the ranks had run on two hosts with different clocks.
#[test]
fn clocks_of_two_hosts_are_corrected_by_their_messages() {
    let place = Place::new();
    place.build("mpicc.openmpi", "ring.c", RING_PROGRAM, &["-O2"]);
    place.record(&["mpirun.openmpi", "-n", "2", "./app"]);
    let before = place.report(&[]);
    let files = std::fs::read_dir(place.path("app.waits")).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<(PathBuf, String)> = files
        .filter(|path| path.extension().is_some_and(|e| e == "process"))
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .filter(|(_, text)| text.contains("\nmpi openmpi 1 2\n"))
        .collect();
    assert_eq!(texts.len(), 1);
    for by_ns in [5_000_000, 1_234, -40_000_007, 3_600_000_000_000] {
        texts.iter().for_each(|(path, text)| std::fs::write(path, shift_clock_of_rank(text, by_ns)).unwrap());
        let after = place.report(&[]);
        check_consistency(&after);
        assert_eq!(after["diagnostics"].as_array().unwrap().len(), 0, "{by_ns}: {:#}", after["diagnostics"]);
        let notes = after["notes"].to_string();
        assert!(notes.contains("the clock of elsewhere is corrected by"), "{notes}");
        let [wait, again] = [&before, &after].map(|report| report["wait_ns"].as_f64().unwrap());
        assert!((wait - again).abs() < 0.05 * wait, "{by_ns}: {wait} {again}");
        assert_eq!(first_cause(&after), first_cause(&before));
    }
}

fn shift_clock_of_rank(text: &str, by_ns: i64) -> String {
    let mut moved = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["host", _] => moved += "host elsewhere",
            ["boot", _] => moved += "boot other",
            ["anchor", ticks, monotonic, real] => moved += &format!("anchor {ticks} {monotonic} {}", real.parse::<i64>().unwrap() + by_ns),
            _ => moved += line,
        }
        moved.push('\n');
    }
    moved
}

/// A loop that polls for a message, as in programs that overlap communication and computation, must count as a wait.
const POLLING_PROGRAM: &str = r#"
#include <mpi.h>
#include <unistd.h>
__attribute__((noinline)) static void late(void) { usleep(50000); }
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, flag = 0;
  double x = 1;
  MPI_Request request;
  MPI_Status status;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 10; i++) {
    if (rank == 0) { late(); MPI_Send(&x, 1, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD); }
    if (rank == 1) { MPI_Irecv(&x, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, &request); do MPI_Test(&request, &flag, &status); while (!flag); }
    if (rank == 0) { late(); MPI_Ssend(&x, 1, MPI_DOUBLE, 1, 2, MPI_COMM_WORLD); }
    if (rank == 1) { do MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status); while (!flag);
      MPI_Recv(&x, 1, MPI_DOUBLE, status.MPI_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
  }
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn polling_loops_are_reported_as_waits() {
    let place = Place::new();
    place.build("mpicc.openmpi", "polling.c", POLLING_PROGRAM, &["-O1"]);
    place.record(&["mpirun.openmpi", "-n", "2", "./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    assert_eq!(first_cause(&report), ("late".into(), 0), "{:#}", report["causes"]);
    let calls: Vec<&str> = report["waits"].as_array().unwrap().iter().filter_map(|w| w["site"]["call"].as_str()).collect();
    assert!(calls.contains(&"MPI_Test") && calls.contains(&"MPI_Iprobe"), "{calls:?}");
}

const KILLED_CHILD_PROGRAM: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) static void hold(void) { pthread_mutex_lock(&lock); usleep(10000); pthread_mutex_unlock(&lock); usleep(100); }
static void *other(void *a) { for (;;) hold(); return a; }
static void child(void) {
  pthread_t t;
  pthread_create(&t, 0, other, 0);
  for (int i = 0; i < 20; i++) hold();
  kill(getpid(), SIGKILL);
}
int main(void) {
  pthread_t t;
  pthread_create(&t, 0, (void *(*)(void *))usleep, (void *)1000);
  pthread_join(t, 0);
  if (fork() == 0) child();
  wait(0);
  return 0;
}
"#;

#[test]
fn waits_of_a_killed_child_are_reported() {
    let place = Place::new();
    place.build("gcc", "killed.c", KILLED_CHILD_PROGRAM, &["-O1", "-pthread", "-w"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    let locks: Vec<&Value> = report["waits"].as_array().unwrap().iter().filter(|w| w["kind"] == "lock contention").collect();
    assert!(locks.iter().map(|w| w["occurrences"].as_u64().unwrap()).sum::<u64>() >= 5, "{:#}", report["waits"]);
    assert!(report["diagnostics"].as_array().unwrap().iter().any(|d| d["text"].as_str().unwrap().contains("ends inside a call")));
}

const KILLED_ALONE_PROGRAM: &str = r#"
#include <mpi.h>
#include <signal.h>
#include <unistd.h>
int main(int count, char **words) {
  MPI_Init(&count, &words);
  usleep(300000);
  MPI_Barrier(MPI_COMM_SELF);
  kill(getpid(), SIGKILL);
}
"#;

#[test]
fn times_of_a_process_killed_after_few_calls_are_in_nanoseconds() {
    let place = Place::new();
    place.build("mpicc.mpich", "alone.c", KILLED_ALONE_PROGRAM, &["-O1", "-w"]);
    let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["waits", "record", "-o", "app.waits", "--", "./app"]).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    let report = place.report(&[]);
    assert!(!report["notes"].to_string().contains("time-stamp counter"), "{:#}", report["notes"]);
}

#[test]
fn corrupt_recordings_never_make_the_command_panic() {
    let place = Place::new();
    place.build("gcc", "threads.c", threads::THREAD_WAITS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app"]);
    let files: Vec<PathBuf> = std::fs::read_dir(place.path("app.waits")).unwrap().map(|e| e.unwrap().path()).collect();
    let mut state = 12345u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below.max(1)
    };
    for turn in 0..60 {
        let file = &files[random(files.len())];
        let kept = std::fs::read(file).unwrap();
        let mut bytes = kept.clone();
        // Only the beginning of a file has records, and the rest is zero, so only bytes of the beginning are changed.
        let Some(used) = bytes.iter().rposition(|b| *b != 0).map(|at| at + 1) else { continue };
        match turn % 3 {
            0 => bytes.truncate(random(used)),
            _ => (0..1 + random(8)).for_each(|_| bytes[random(used)] = [0, 255, 1, 48][random(4)]),
        }
        std::fs::write(file, &bytes).unwrap();
        let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["report", "app.waits"]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            [Some(0), Some(2)].contains(&output.status.code()) && !message.contains("panicked"),
            "{turn}: {}: {message}",
            file.display()
        );
        if output.status.code() == Some(2) {
            assert!(message.contains("app.waits"), "no place: {message}");
        }
        std::fs::write(file, &kept).unwrap();
    }
}
