//! The files of a recording: their number, their completeness, and messages about corrupt files.

use super::{Place, check_consistency, must};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use trodden_wire::file_header::{FILE_HEADER_BYTES, FileHeader, FileKind};
use trodden_wire::layout::Layout;
use trodden_wire::waits::{
    CALL_RECORD_SIZE, CHUNK_HEADER_SIZE, CallRecord, EXTENT_HEADER_SIZE, ExtentHeader, SAMPLE_RECORD_SIZE, VERSION, WaitsChunkHeader,
    chunk_kind, kind,
};

/// A chunk of a threads file: its offset and its header.
pub struct FoundChunk {
    pub at: usize,
    pub header: WaitsChunkHeader,
}

/// Returns all chunks of an intact file, based only on the file's layout.
pub fn list_chunks(bytes: &[u8]) -> Vec<FoundChunk> {
    let mut found = Vec::new();
    let mut extent = 0;
    while extent < bytes.len() {
        let header = ExtentHeader::read(&bytes[extent..]).unwrap();
        assert!(header.is_intact(), "no extent at {extent}");
        let end = extent + header.size as usize;
        let mut at = extent + EXTENT_HEADER_SIZE;
        while at + CHUNK_HEADER_SIZE <= end && bytes[at] != 0 {
            let header = WaitsChunkHeader::read(&bytes[at..]).unwrap();
            assert!(header.is_intact(), "the header at {at}");
            found.push(FoundChunk { at, header });
            at += header.size as usize;
        }
        extent = end;
    }
    found
}

/// Returns the records at the start of a chunk. The records end at the first one whose bytes in the range `is_there` are all zero.
fn list_records(bytes: &[u8], chunk: &FoundChunk, size: usize, is_there: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let records = bytes[chunk.at + CHUNK_HEADER_SIZE..chunk.at + chunk.header.size as usize].chunks_exact(size);
    records.take_while(|record| record[is_there.clone()].iter().any(|byte| *byte != 0)).map(<[u8]>::to_vec).collect()
}

impl Place {
    /// Returns the recording's files with the extension `ending`.
    pub fn list_files(&self, ending: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.path("app.waits")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|e| e == ending)).collect()
    }

    /// Returns the number of threads in the recording, and the number of calls of a kind.
    pub fn count_threads_and_calls(&self, kind: u16) -> (usize, usize) {
        let (mut threads, mut calls) = (0, 0);
        for path in self.list_files("threads") {
            let bytes = std::fs::read(path).unwrap();
            for chunk in list_chunks(&bytes) {
                match chunk.header.kind {
                    chunk_kind::THREAD => threads += 1,
                    chunk_kind::CALLS => {
                        let at = std::mem::offset_of!(CallRecord, kind);
                        let all = list_records(&bytes, &chunk, CALL_RECORD_SIZE, at..at + 2);
                        calls += all.iter().filter(|record| record[at..at + 2] == kind.to_le_bytes()).count();
                    }
                    _ => {}
                }
            }
        }
        (threads, calls)
    }

    /// Records a program, whatever its exit status.
    pub fn record_any(&self, command: &[&str]) -> Output {
        let mut record = self.command(env!("CARGO_BIN_EXE_trodden"));
        record.args(["waits", "record", "-o", "app.waits", "--"]).args(command).output().unwrap()
    }
}

/// Returns the number of samples in all threads of the recording.
pub fn count_samples(place: &Place) -> usize {
    let of_file = |path: PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        let samples = list_chunks(&bytes).into_iter().filter(|chunk| chunk.header.kind == chunk_kind::SAMPLES);
        samples.map(|chunk| list_records(&bytes, &chunk, SAMPLE_RECORD_SIZE, 0..8).len()).sum::<usize>()
    };
    place.list_files("threads").into_iter().map(of_file).sum()
}

/// A program that runs THREADS threads at a time, and then CHILDREN child processes with one more thread each. Each thread posts a
/// semaphore POSTS times.
const MANY_THREADS_PROGRAM: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int posts;
static sem_t posted;
static atomic_int done;
static void post(void) { for (int i = 0; i < posts; i++) sem_post(&posted); atomic_fetch_add(&done, 1); }
static void *thread(void *a) { post(); return a; }
static void *stays(void *a) { post(); for (;;) pause(); return a; }
int main(int count, char **words) {
  int threads = atoi(words[1]), children = atoi(words[2]), is_killed = count > 4;
  posts = atoi(words[3]);
  pthread_t *t = malloc(sizeof *t * (threads + 1));
  sem_init(&posted, 0, 0);
  for (int i = 0; i < threads; i++) if (pthread_create(t + i, 0, is_killed ? stays : thread, 0)) return 1;
  while (is_killed && done < threads) usleep(100);
  for (int i = 0; i < children; i++) if (fork() == 0) {
    post();
    if (pthread_create(t, 0, thread, 0) || pthread_join(*t, 0)) _exit(1);
    if (is_killed) kill(getpid(), SIGKILL);
    exit(0);
  }
  for (int i = 0; i < children; i++) wait(0);
  if (is_killed) kill(getpid(), SIGKILL);
  for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
  return 0;
}
"#;

/// A program in which the main thread and another thread post a semaphore as often as the argument says.
pub const POSTS_PROGRAM: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
static sem_t posted;
static int posts;
static void *post(void *a) { for (int i = 0; i < posts; i++) sem_post(&posted); return a; }
int main(int count, char **words) {
  pthread_t t;
  posts = count > 1 ? atoi(words[1]) : 1;
  sem_init(&posted, 0, 0);
  if (pthread_create(&t, 0, post, 0)) return 1;
  post(0);
  if (pthread_join(t, 0)) return 1;
  int value = 0;
  sem_getvalue(&posted, &value);
  printf("%d\n", value);
  return 0;
}
"#;

#[test]
fn recordings_of_many_threads_and_children_are_complete_in_two_files() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    for (threads, children, posts) in [(2, 1, 3), (400, 60, 5), (9, 3, 40_000)] {
        let words = [threads, children, posts].map(|number: usize| number.to_string());
        place.record(&["./app", &words[0], &words[1], &words[2]]);
        assert_eq!((place.list_files("process").len(), place.list_files("threads").len()), (1, 1), "{words:?}");
        let writers = threads + 2 * children;
        assert_eq!(place.count_threads_and_calls(kind::SEMAPHORE_POST), (1 + writers, writers * posts), "{words:?}");
        assert_eq!(place.count_threads_and_calls(kind::THREAD_EXIT).1, 1 + writers, "{words:?}");
        let report = place.report(&[]);
        check_consistency(&report);
        assert_eq!(report["diagnostics"].as_array().unwrap().len(), 0, "{words:?}: {:#}", report["diagnostics"]);
        assert!(!report["notes"].to_string().contains("missing"), "{:#}", report["notes"]);
    }
}

#[test]
fn records_of_killed_threads_and_children_are_kept() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    let (threads, children, posts) = (150, 20, 300);
    let output = place.record_any(&["./app", "150", "20", "300", "killed"]);
    assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    let writers = threads + 2 * children;
    assert_eq!(place.count_threads_and_calls(kind::SEMAPHORE_POST), (1 + writers, writers * posts));
    let report = place.report(&[]);
    check_consistency(&report);
    assert!(!report["notes"].to_string().contains("corrupt"), "{:#}", report["notes"]);
}

/// A program that creates child processes by functions and system calls that do not call fork handlers.
const CHILDREN_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern pid_t _Fork(void);
static sem_t posted;
static void *post(void *a) { for (int i = 0; i < 3000; i++) sem_post(&posted); return a; }
int main(void) {
  pthread_t t;
  sem_init(&posted, 0, 0);
  pthread_create(&t, 0, post, 0);
  pthread_join(t, 0);
  for (int i = 0; i < 12; i++) {
    pid_t child = i % 2 ? _Fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child) {
      for (int j = 0; j < 100; j++) usleep(0);
      pthread_create(&t, 0, post, 0);
      pthread_join(t, 0);
      _exit(0);
    }
    post(0);
    waitpid(child, 0, 0);
  }
  return 0;
}
"#;

#[test]
fn children_made_by_system_calls_are_separate_processes() {
    let place = Place::new();
    place.build("gcc", "copies.c", CHILDREN_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app"]);
    assert_eq!(place.count_threads_and_calls(kind::SEMAPHORE_POST), (2 + 12 * 2, 25 * 3000));
    let report = place.report(&[]);
    check_consistency(&report);
    assert!(!report["notes"].to_string().contains("left out"), "{:#}", report["notes"]);
}

#[test]
fn recordings_may_have_more_threads_than_a_process_may_open_files() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    let limited = "ulimit -n 40 && exec ./app 100 30 2";
    place.record(&["sh", "-c", limited]);
    let (threads, _) = place.count_threads_and_calls(kind::SEMAPHORE_POST);
    assert_eq!(threads, 161);
    let report = "ulimit -n 40 && exec \"$0\" report app.waits --json";
    must(place.command("sh").args(["-c", report, env!("CARGO_BIN_EXE_trodden")]).output().unwrap());
}

/// A program that closes all its descriptors, including the recorder's, and opens files of its own under the same numbers.
const CLOSES_DESCRIPTORS_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static sem_t posted;
static void *post(void *a) { for (int i = 0; i < 10000; i++) sem_post(&posted); return a; }
static void both(void) { pthread_t t; pthread_create(&t, 0, post, 0); post(0); pthread_join(t, 0); usleep(20000); }
static void own(int f) {
  char name[20];
  sprintf(name, "own.%d", f);
  int n = open(name, O_RDWR | O_CREAT, 0600);
  if (n != f) { dup2(n, f); close(n); }
}
int main(void) {
  struct stat s;
  sem_init(&posted, 0, 0);
  both();
  for (int f = 3; f < 512; f++) close(f);
  both();
  for (int f = 511; f > 2; f--) own(f);
  both();
  for (int f = 3; f < 512; f++) if (fstat(f, &s) || s.st_size) printf("%d: %ld bytes\n", f, (long)s.st_size);
  return 0;
}
"#;

#[test]
fn the_program_may_use_every_descriptor() {
    let place = Place::new();
    place.build("gcc", "closes.c", CLOSES_DESCRIPTORS_PROGRAM, &["-O1", "-pthread"]);
    let output = place.record(&["./app"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(place.count_threads_and_calls(kind::SEMAPHORE_POST), (4, 60_000));
    assert_eq!(place.list_files("threads").len(), 1);
}

#[test]
fn corrupt_chunks_are_reported_as_missing() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app", "20", "0", "500"]);
    let path = place.list_files("threads").remove(0);
    let kept = std::fs::read(&path).unwrap();
    let found = list_chunks(&kept);
    let of = |kind: u32| found.iter().filter(move |chunk| chunk.header.kind == kind);
    let notes = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let report = place.report(&[]);
        check_consistency(&report);
        report["notes"].to_string()
    };
    assert!(!notes(&kept).contains("missing"));
    let damage = |chunk: &FoundChunk, with: u8| {
        let mut bytes = kept.clone();
        bytes[chunk.at..chunk.at + CHUNK_HEADER_SIZE].fill(with);
        bytes
    };
    for with in [0, 0x5a] {
        for kind in [chunk_kind::THREAD, chunk_kind::CALLS, chunk_kind::STACKS] {
            let chunk = of(kind).nth(3).unwrap();
            let said = notes(&damage(chunk, with));
            assert!(said.contains("are corrupt, so the records in them are missing"), "{kind} {with}: {said}");
            let at = format!("bytes {} to ", chunk.at);
            assert!(with == 0 || said.contains(&at), "{kind}: {said} does not say {at}");
        }
    }
    let said = notes(&damage(of(chunk_kind::CALLS).find(|chunk| chunk.header.first > 0).unwrap(), 0x5a));
    assert!(said.contains("calls of thread") && said.contains("missing from some point on"), "{said}");
    let said = notes(&damage(of(chunk_kind::THREAD).nth(3).unwrap(), 0x5a));
    assert!(said.contains("has no header, and is left out"), "{said}");
    // A lost record with later ones after it must be reported.
    let chunk = of(chunk_kind::CALLS).find(|chunk| chunk.header.first > 0).unwrap();
    let before = of(chunk_kind::CALLS).find(|c| c.header.thread == chunk.header.thread && c.header.first == 0).unwrap();
    let mut bytes = kept.clone();
    bytes[before.at + CHUNK_HEADER_SIZE..][..CALL_RECORD_SIZE].fill(0);
    let said = notes(&bytes);
    assert!(said.contains("calls of 1 thread are corrupt"), "{said}");
    let cut = of(chunk_kind::CALLS).nth(10).unwrap();
    let said = notes(&kept[..cut.at + 100]);
    assert!(said.contains(&format!("truncated at byte {}", cut.at + 100)), "{said}");
}

#[test]
fn huge_numbers_of_claimed_ranks_need_no_memory() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app", "1", "40", "2"]);
    let path = place.list_files("process").remove(0);
    let mut text = std::fs::read_to_string(&path).unwrap();
    let processes: BTreeSet<String> = text.lines().filter(|line| line.starts_with("process ")).map(String::from).collect();
    assert_eq!(processes.len(), 41);
    for process in processes {
        text += &format!("{process}\nmpi openmpi 5 2147483647\ncommunicator 9 local 0-2147483646\nmore 8 remote 7-2147483640\n");
    }
    std::fs::write(&path, text).unwrap();
    // The limit on the address space must leave room for `trodden` itself, which is mapped with its debug information.
    let report = "ulimit -v 1500000 && exec \"$0\" report app.waits --json";
    let output = must(place.command("sh").args(["-c", report, env!("CARGO_BIN_EXE_trodden")]).output().unwrap());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["notes"].to_string().contains("2147483646 of 2147483647 ranks are not in the recording"), "{:#}", report["notes"]);
}

#[test]
fn files_of_another_version_or_kind_are_rejected() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app", "1", "0", "5"]);
    let path = place.list_files("threads").remove(0);
    let kept = std::fs::read(&path).unwrap();
    let header = |kind, version| FileHeader::new(kind, version).to_bytes();
    for (header, expected) in [
        (&header(FileKind::WAITS, 7)[..], "the recording has format 7"),
        (&header(FileKind::PROFILE, VERSION), "is not a file of recorded threads: it is a profile"),
        (b"TRODWAIT", "an earlier version of trodden wrote it. Use the earlier version, or record again"),
        (b"x", "is not a file of recorded threads"),
    ] {
        std::fs::write(&path, [header, &kept[header.len()..]].concat()).unwrap();
        let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["report", "app.waits"]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains(expected) && message.contains(".threads"), "{message}");
    }
}

/// Single bytes in the headers of an extent (a range of chunks) and of a chunk are changed. Reports must reject the file, or name it and
/// the lost part.
#[test]
fn changed_header_bytes_are_reported() {
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app", "1", "0", "5"]);
    let path = place.list_files("threads").remove(0);
    let kept = std::fs::read(&path).unwrap();
    let reserved = std::mem::offset_of!(ExtentHeader, reserved)..EXTENT_HEADER_SIZE;
    let unused = EXTENT_HEADER_SIZE + std::mem::offset_of!(WaitsChunkHeader, reserved)
        ..EXTENT_HEADER_SIZE + std::mem::offset_of!(WaitsChunkHeader, checksum);
    for at in (0..EXTENT_HEADER_SIZE + CHUNK_HEADER_SIZE).filter(|at| !reserved.contains(at) && !unused.contains(at)).step_by(3) {
        let mut bytes = kept.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&path, &bytes).unwrap();
        let output = place.command(env!("CARGO_BIN_EXE_trodden")).args(["report", "app.waits", "--json"]).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let is_said = said.contains(".threads") && (output.status.code() == Some(2) || said.contains("corrupt"));
        assert!(is_said, "byte {at} of {FILE_HEADER_BYTES} and more: {said}");
    }
}

#[test]
fn only_the_owner_can_read_recordings() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.build("gcc", "many.c", MANY_THREADS_PROGRAM, &["-O1", "-pthread"]);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    place.record(&["./app", "1", "1", "1"]);
    assert_eq!(mode(&place.path("app.waits")), 0o700);
    let files = [place.list_files("process"), place.list_files("threads")].concat();
    assert_eq!(files.iter().map(|path| mode(path)).collect::<Vec<_>>(), [0o600; 2]);
    // If the user has created the folder, it must keep its permissions.
    std::fs::set_permissions(place.path("app.waits"), std::fs::Permissions::from_mode(0o755)).unwrap();
    place.record(&["./app", "1", "1", "1"]);
    assert_eq!(mode(&place.path("app.waits")), 0o755);
}
