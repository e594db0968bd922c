//! Threads in C and Rust that wait for each other.

use super::{Place, check_consistency, first_cause};

pub const LOCKS_PROGRAM: &str = r#"
#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static volatile double sink;
__attribute__((noinline)) static void spin(long n) { double s = 0; for (long i = 0; i < n; i++) s += i * 0.5; sink = s; }
__attribute__((noinline)) void rebuild_index(void) { pthread_mutex_lock(&lock); spin(8000000); pthread_mutex_unlock(&lock); }
__attribute__((noinline)) void look_up(void) { pthread_mutex_lock(&lock); spin(1000); pthread_mutex_unlock(&lock); spin(100000); }
static void *writer(void *a) { for (int i = 0; i < 40; i++) { rebuild_index(); spin(1000); } return a; }
static void *reader(void *a) { for (int i = 0; i < 400; i++) { look_up(); spin(1000); } return a; }
int main(void) {
  pthread_t t[3];
  pthread_create(&t[0], 0, writer, 0);
  for (int i = 1; i < 3; i++) pthread_create(&t[i], 0, reader, 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
  return 0;
}
"#;

#[test]
fn the_holder_of_a_lock_is_named_first() {
    let place = Place::new();
    place.build("gcc", "locks.c", LOCKS_PROGRAM, &["-O2", "-pthread"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    assert_eq!(report["causes"][0]["function"], "rebuild_index", "{:#}", report["causes"]);
    assert!(report["waits"].as_array().unwrap().iter().any(|w| w["kind"] == "join"));
}

#[test]
fn missing_split_debug_information_is_noted_once() {
    let place = Place::new();
    place.build("gcc", "locks.c", LOCKS_PROGRAM, &["-O2", "-pthread", "-gsplit-dwarf"]);
    std::fs::remove_file(place.path("app-locks.dwo")).unwrap();
    place.record(&["./app"]);
    let report = place.report(&[]);
    assert_eq!(report["causes"][0]["function"], "rebuild_index", "{:#}", report["causes"]);
    let notes = report["notes"].as_array().unwrap().iter().filter_map(|note| note.as_str());
    assert_eq!(notes.filter(|note| note.contains("app-locks.dwo cannot be read")).count(), 1, "{:#}", report["notes"]);
}

const RUST_PROGRAM: &str = r#"
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::thread;
#[inline(never)]
fn crunch(n: u64) -> u64 { (0..n).fold(0, |a, i| black_box(a ^ i.wrapping_mul(31))) }
#[inline(never)]
fn rebuild_index(shared: &Mutex<u64>) { let mut v = shared.lock().unwrap(); *v ^= crunch(8_000_000); }
#[inline(never)]
fn look_up(shared: &Mutex<u64>) -> u64 { let v = shared.lock().unwrap(); *v ^ crunch(100) }
fn main() {
    let shared = Arc::new(Mutex::new(0));
    let a = shared.clone();
    let writer = thread::spawn(move || for _ in 0..40 { rebuild_index(&a); });
    let reader = |s: Arc<Mutex<u64>>| thread::spawn(move || for _ in 0..400 { black_box(look_up(&s)); });
    let readers: Vec<_> = (0..2).map(|_| reader(shared.clone())).collect();
    writer.join().unwrap();
    readers.into_iter().for_each(|r| r.join().unwrap());
}
"#;

#[test]
fn the_holder_of_a_rust_mutex_is_named_first() {
    let place = Place::new();
    place.build("rustc", "locks.rs", RUST_PROGRAM, &["-O", "--edition=2021"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    let (function, _) = first_cause(&report);
    assert!(function.ends_with("rebuild_index") || function.ends_with("crunch"), "{:#}", report["causes"]);
}

pub const THREAD_WAITS_PROGRAM: &str = r#"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
static pthread_barrier_t barrier;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static sem_t items;
static int state;
__attribute__((noinline)) static void prepare(void) { usleep(100000); }
static void *slow(void *a) {
  prepare(); pthread_barrier_wait(&barrier);
  pthread_rwlock_wrlock(&rwlock); pthread_barrier_wait(&barrier); prepare(); pthread_rwlock_unlock(&rwlock);
  pthread_spin_lock(&spinlock); pthread_barrier_wait(&barrier); prepare(); pthread_spin_unlock(&spinlock);
  prepare(); pthread_mutex_lock(&mutex); state = 1; pthread_cond_broadcast(&ready); pthread_mutex_unlock(&mutex);
  prepare(); sem_post(&items);
  prepare();
  return a;
}
int main(void) {
  pthread_t t;
  pthread_barrier_init(&barrier, 0, 2);
  pthread_spin_init(&spinlock, 0);
  sem_init(&items, 0, 0);
  pthread_create(&t, 0, slow, 0);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier); pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock);
  pthread_barrier_wait(&barrier); pthread_spin_lock(&spinlock); pthread_spin_unlock(&spinlock);
  pthread_mutex_lock(&mutex); while (!state) pthread_cond_wait(&ready, &mutex); pthread_mutex_unlock(&mutex);
  sem_wait(&items);
  pthread_join(t, 0);
  return 0;
}
"#;

#[test]
fn waits_for_a_thread_are_explained_by_what_the_thread_did() {
    let place = Place::new();
    place.build("gcc", "threads.c", THREAD_WAITS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    let waits = report["waits"].as_array().unwrap();
    let of = |call: &str| {
        let sites = waits.iter().filter(|w| w["site"]["call"] == call && w["site"]["function"] == "main");
        sites.map(|w| w["total_ns"].as_u64().unwrap()).sum::<u64>()
    };
    let calls = ["pthread_barrier_wait", "pthread_rwlock_rdlock", "pthread_spin_lock", "pthread_cond_wait", "sem_wait", "pthread_join"];
    // Each sleep lasts 100 ms. Even a thread that starts late on a busy machine still waits for a part of it.
    for call in calls {
        assert!(of(call) > 10_000_000, "{call}: {} ns of waiting\n{waits:#?}", of(call));
    }
    assert_eq!(report["causes"][0]["function"], "prepare");
    assert_eq!(report["causes"][0]["state"], "blocked");
}

/// A program that uses a pipe as a lock: a thread that has read the pipe's only byte holds the lock, and writes the byte back to release
/// it. Writing never blocks.
const PIPE_LOCK_PROGRAM: &str = r#"
#include <pthread.h>
#include <unistd.h>
static int p[2];
__attribute__((noinline)) static void critical(void) { for (volatile int i = 0; i < 3000000; i++) {} }
__attribute__((noinline)) static void lock(void) { char c; while (read(p[0], &c, 1) != 1) {} }
__attribute__((noinline)) static void unlock(void) { while (write(p[1], "x", 1) != 1) {} }
static void *worker(void *x) { for (int i = 0; i < 40; i++) { lock(); critical(); unlock(); } return x; }
int main(void) {
  pthread_t t[3];
  if (pipe(p)) return 1;
  unlock();
  for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, worker, 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
  return 0;
}
"#;

#[test]
fn calls_that_only_lose_the_processor_are_not_blocked() {
    let place = Place::new();
    place.build("gcc", "pipe.c", PIPE_LOCK_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    let blocked = |function: &str| {
        let is_it = |cause: &&serde_json::Value| cause["function"] == function && cause["state"] == "blocked";
        report["causes"].as_array().unwrap().iter().filter(is_it).count()
    };
    assert_eq!((blocked("lock") > 0, blocked("unlock")), (true, 0), "{:#}", report["causes"]);
}
