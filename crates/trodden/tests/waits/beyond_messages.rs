//! MPI waits other than those for messages and for collective operations of one group: windows, files, two groups, persistent operations.
//! Also C11 threads, and processes that share memory.
//!
//! In each MPI program, rank 1 does much more work than the other ranks in one function before it lets them continue. The report must name
//! this function first, and the call that waited for it must be a wait site.

use super::{Place, check_consistency, first_cause};

const MPI_MODES_PROGRAM: &str = r#"
#include <mpi.h>
#include <string.h>
#include <unistd.h>
static int rank, size;
/* Sleeping is labelled as such, and does not depend on how many processors the machine has. */
__attribute__((noinline)) static void slow_filter(void) { usleep(60000); }
static void work(void) { if (rank == 1) slow_filter(); }

static void fence(void) {
  int *base; MPI_Win win;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  for (int i = 0; i < 3; i++) { MPI_Win_fence(0, win); work(); MPI_Put(&rank, 1, MPI_INT, 0, 0, 1, MPI_INT, win); MPI_Win_fence(0, win); }
  MPI_Win_free(&win);
}
static void lock(void) {
  int *base; MPI_Win win;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  if (rank == 1) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) { slow_filter(); MPI_Win_unlock(0, win); }
  if (rank == 2) { MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win); MPI_Put(&rank, 1, MPI_INT, 0, 0, 1, MPI_INT, win); MPI_Win_unlock(0, win); }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&win);
}
static void epochs(void) {
  int *base; MPI_Win win; MPI_Group world, others; int zero = 0;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  for (int i = 0; i < 3; i++) {
    if (rank == 0) {
      MPI_Group_excl(world, 1, &zero, &others);
      MPI_Win_post(others, 0, win); MPI_Win_wait(win);
    } else {
      MPI_Group_incl(world, 1, &zero, &others);
      MPI_Win_start(others, 0, win); work(); MPI_Put(&rank, 1, MPI_INT, 0, 0, 1, MPI_INT, win); MPI_Win_complete(win);
    }
    MPI_Group_free(&others);
  }
  MPI_Win_free(&win);
}
static void file(void) {
  MPI_File f; int all[16] = {0};
  MPI_File_open(MPI_COMM_WORLD, "shared.bin", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
  for (int i = 0; i < 3; i++) {
    work(); MPI_File_set_size(f, 1024);
    work(); MPI_File_write_at_all_begin(f, 64 * rank, all, 16, MPI_INT); MPI_File_write_at_all_end(f, all, MPI_STATUS_IGNORE);
  }
  MPI_File_close(&f);
}
static void groups(void) {
  MPI_Comm own, inter; int value = rank;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 1, rank, &own);
  MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, rank == 1 ? 0 : 1, 7, &inter);
  for (int i = 0; i < 3; i++) {
    work(); MPI_Bcast(&value, 1, MPI_INT, rank == 1 ? MPI_ROOT : 0, inter);
    work(); MPI_Barrier(inter);
    work();
    if (rank == 1) { MPI_Send(&value, 1, MPI_INT, 0, 5, inter); }
    if (rank == 0) MPI_Recv(&value, 1, MPI_INT, 0, 5, inter, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&own);
}
static void neighbours(void) {
  MPI_Comm line, wheel; int periods = 0, value = rank, from[4], before = (rank + size - 1) % size, after = (rank + 1) % size;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periods, 0, &line);
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &after, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &wheel);
  for (int i = 0; i < 3; i++) {
    work(); MPI_Neighbor_allgather(&value, 1, MPI_INT, from, 1, MPI_INT, line);
    work(); MPI_Neighbor_alltoall(&value, 1, MPI_INT, from, 1, MPI_INT, wheel);
  }
  MPI_Comm_free(&wheel);
  MPI_Comm_free(&line);
}
static void empty(void) {
  for (int i = 0; i < 3; i++) { work(); MPI_Bcast(&rank, 0, MPI_INT, 1, MPI_COMM_WORLD); MPI_Barrier(MPI_COMM_WORLD); }
}
#ifdef MPICH_VERSION
#define NEIGHBOUR_ALLTOALL_INIT MPI_Neighbor_alltoall_init
#else
#include <mpi-ext.h>
#define NEIGHBOUR_ALLTOALL_INIT MPIX_Neighbor_alltoall_init
#endif
static void cancelled(void) {
  MPI_Request request; int value = 0, after = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int i = 0; i < 3; i++) {
    MPI_Irecv(&value, 1, MPI_INT, i % 2 ? before : MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    work();
    MPI_Sendrecv(&rank, 1, MPI_INT, after, 5, &value, 1, MPI_INT, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}
static void later(int is_prepared) {
  MPI_Comm wheel; MPI_Request request; int value = rank, from, before = (rank + size - 1) % size, after = (rank + 1) % size;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &after, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &wheel);
  if (is_prepared) NEIGHBOUR_ALLTOALL_INIT(&value, 1, MPI_INT, &from, 1, MPI_INT, wheel, MPI_INFO_NULL, &request);
  for (int i = 0; i < 3; i++) {
    work();
    if (is_prepared) MPI_Start(&request); else MPI_Ineighbor_alltoall(&value, 1, MPI_INT, &from, 1, MPI_INT, wheel, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (is_prepared) MPI_Request_free(&request);
  MPI_Comm_free(&wheel);
}
#ifdef MPICH_VERSION
static void persistent(void) {
  MPI_Request request; int value = rank, all = 0;
  MPI_Allreduce_init(&value, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int i = 0; i < 3; i++) { work(); MPI_Start(&request); MPI_Wait(&request, MPI_STATUS_IGNORE); }
  MPI_Request_free(&request);
}
#else
static void persistent(void) {
  MPI_Request request; int value = rank, all = 0;
  MPIX_Allreduce_init(&value, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int i = 0; i < 3; i++) { work(); MPI_Start(&request); MPI_Wait(&request, MPI_STATUS_IGNORE); }
  MPI_Request_free(&request);
}
#endif
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Barrier(MPI_COMM_WORLD);
  if (!strcmp(argv[1], "fence")) fence();
  if (!strcmp(argv[1], "lock")) lock();
  if (!strcmp(argv[1], "epochs")) epochs();
  if (!strcmp(argv[1], "file")) file();
  if (!strcmp(argv[1], "groups")) groups();
  if (!strcmp(argv[1], "empty")) empty();
  if (!strcmp(argv[1], "neighbours")) neighbours();
  if (!strcmp(argv[1], "persistent")) persistent();
  if (!strcmp(argv[1], "begun")) later(0);
  if (!strcmp(argv[1], "cancelled")) cancelled();
  if (!strcmp(argv[1], "prepared")) later(1);
  MPI_Finalize();
  return 0;
}
"#;

/// Runs one mode of the program on three ranks with both MPI libraries. The report must list each call in `expected` as a place where
/// ranks wait, with the given kind of wait.
fn check_waits_of_mode(mode: &str, expected: &[(&str, &str)]) {
    for library in ["openmpi", "mpich"] {
        let place = Place::new();
        place.build(&format!("mpicc.{library}"), "modes.c", MPI_MODES_PROGRAM, &["-O1"]);
        place.record(&[&format!("mpirun.{library}"), "-n", "3", "./app", mode]);
        let report = place.report(&[]);
        check_consistency(&report);
        assert_eq!(first_cause(&report), ("slow_filter".into(), 1), "{library} {mode}: {:#}", report["causes"]);
        let sites: Vec<(&str, &str)> =
            report["waits"].as_array().unwrap().iter().filter_map(|w| Some((w["site"]["call"].as_str()?, w["kind"].as_str()?))).collect();
        for site in expected {
            assert!(sites.contains(site), "{library} {mode}: {site:?} is not among {sites:?}");
        }
        assert!(report["diagnostics"] == serde_json::json!([]), "{library} {mode}: {}", report["diagnostics"]);
        let unknown: Vec<&str> = report["uncovered"].as_array().unwrap().iter().filter_map(|u| u["function"].as_str()).collect();
        assert!(unknown.iter().all(|name| *name == "MPI_Intercomm_create"), "{library} {mode}: {unknown:?}");
    }
}

#[test]
fn fences_wait_for_the_last_rank() {
    check_waits_of_mode("fence", &[("MPI_Win_fence", "wait at barrier")]);
}

#[test]
fn window_locks_wait_for_their_holder() {
    check_waits_of_mode("lock", &[]);
}

#[test]
fn epochs_wait_for_the_ranks_that_access() {
    check_waits_of_mode("epochs", &[("MPI_Win_wait", "late complete")]);
}

#[test]
fn file_operations_wait_for_all_ranks() {
    check_waits_of_mode("file", &[("MPI_File_set_size", "wait at NxN")]);
}

#[test]
fn operations_between_two_groups_wait_for_the_other_group() {
    check_waits_of_mode("groups", &[("MPI_Bcast", "late broadcast"), ("MPI_Barrier", "wait at NxN"), ("MPI_Recv", "late sender")]);
}

#[test]
fn neighbourhood_exchanges_wait_for_the_neighbours() {
    check_waits_of_mode("neighbours", &[("MPI_Neighbor_allgather", "late sender"), ("MPI_Neighbor_alltoall", "late sender")]);
}

#[test]
fn cancelled_receives_take_no_message() {
    check_waits_of_mode("cancelled", &[("MPI_Sendrecv", "late sender")]);
}

#[test]
fn started_and_persistent_neighbourhood_exchanges_wait_at_their_completion() {
    check_waits_of_mode("begun", &[("MPI_Wait", "late sender")]);
    check_waits_of_mode("prepared", &[("MPI_Wait", "late sender")]);
}

/// MPI libraries return immediately from a broadcast of no data, so a rank may leave the broadcast before its root enters it.
#[test]
fn empty_broadcasts_are_not_contradictions() {
    check_waits_of_mode("empty", &[]);
}

#[test]
fn persistent_operations_wait_at_their_completion() {
    check_waits_of_mode("persistent", &[("MPI_Wait", "wait at NxN")]);
}

const C11_THREADS_PROGRAM: &str = r#"
#include <threads.h>
#include <time.h>
#include <unistd.h>
static mtx_t mutex; static cnd_t ready; static int state;
__attribute__((noinline)) static void prepare(void) { usleep(20000); }
static int slow(void *a) {
  mtx_lock(&mutex); state = 1; cnd_broadcast(&ready); prepare(); mtx_unlock(&mutex);
  prepare(); mtx_lock(&mutex); state = 2; cnd_signal(&ready); mtx_unlock(&mutex);
  prepare();
  return 0;
}
int main(void) {
  thrd_t t; struct timespec until = { time(0) + 60, 0 };
  mtx_init(&mutex, mtx_timed); cnd_init(&ready);
  mtx_lock(&mutex);
  thrd_create(&t, slow, 0);
  while (state < 1) cnd_wait(&ready, &mutex);
  while (state < 2) cnd_timedwait(&ready, &mutex, &until);
  mtx_unlock(&mutex);
  thrd_join(t, 0);
  return 0;
}
"#;

#[test]
fn c11_threads_are_explained() {
    let place = Place::new();
    place.build("gcc", "c11.c", C11_THREADS_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    assert_eq!(report["causes"][0]["function"], "prepare");
    let waits = report["waits"].as_array().unwrap();
    // After it is woken, `cnd_wait` must also wait for the mutex, which the waking thread holds for 20 ms.
    for (call, least_ns) in [("cnd_wait", 10_000_000), ("cnd_timedwait", 1_000_000)] {
        let sites = waits.iter().filter(|w| w["site"]["call"] == call && w["site"]["function"] == "main");
        let ns = sites.map(|w| w["total_ns"].as_u64().unwrap()).sum::<u64>();
        assert!(ns >= least_ns, "{call}: {ns} ns of waiting\n{waits:#?}");
    }
}

const SHARED_MEMORY_PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
typedef struct { pthread_mutex_t lock; pthread_barrier_t barrier; } shared;
static volatile double sink;
__attribute__((noinline)) static void step(long n) { double s = 0; for (long i = 1; i < n; i++) s += 1.0 / i; sink = s; }
__attribute__((noinline)) static void balance(void) { step(4000000); }
static void child(shared *s, int which) {
  for (int i = 0; i < 20; i++) {
    step(20000);
    if (which == 1) balance();
    pthread_mutex_lock(&s->lock);
    pthread_mutex_unlock(&s->lock);
    pthread_barrier_wait(&s->barrier);
  }
  if (which == 1) exit(0);
  _exit(0);
}
int main(void) {
  shared *s = mmap(0, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_mutexattr_t m;
  pthread_mutexattr_init(&m);
  pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&s->lock, &m);
  pthread_barrierattr_t b;
  pthread_barrierattr_init(&b);
  pthread_barrierattr_setpshared(&b, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&s->barrier, &b, 3);
  for (int k = 0; k < 3; k++) if (fork() == 0) child(s, k);
  for (int k = 0; k < 3; k++) wait(0);
  return 0;
}
"#;

/// The processes have no threads. Their locks and barriers are in shared memory, and the parent waits for them to end.
#[test]
fn processes_that_share_memory_are_explained() {
    let place = Place::new();
    place.build("gcc", "processes.c", SHARED_MEMORY_PROGRAM, &["-O1", "-pthread"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    let cause = &report["causes"][0];
    assert!(cause["function"] == "balance" || cause["caller"] == "balance", "{:#}", report["causes"]);
    let kind = |name: &str| report["kinds"].as_array().unwrap().iter().find(|k| k["kind"] == name).cloned().unwrap_or_default();
    assert!(kind("wait at thread barrier")["occurrences"].as_u64() >= Some(20), "{:#}", report["kinds"]);
    assert!(kind("join")["occurrences"].as_u64() >= Some(1), "{:#}", report["kinds"]);
    assert_eq!(report["locations"].as_array().unwrap().len(), 4);
}

const OPENMP_PROGRAM: &str = r#"
#include <omp.h>
#include <signal.h>
#include <unistd.h>
int main(void) {
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num()) usleep(1000);
  /* No function that is recorded, and no processor time that could be sampled. */
  sigset_t none;
  sigemptyset(&none);
  sigtimedwait(&none, 0, &(struct timespec){0, 200000000});
  return 0;
}
"#;

/// The run must last until the process ends, although nothing is recorded in its last 200 ms. A note must say that waits inside libgomp are
/// not recorded.
#[test]
fn run_lasts_until_its_process_ends_and_openmp_waits_are_noted() {
    let place = Place::new();
    place.build("gcc", "team.c", OPENMP_PROGRAM, &["-O1", "-fopenmp"]);
    place.record(&["./app"]);
    let report = place.report(&[]);
    check_consistency(&report);
    assert!(report["run_ns"].as_u64() >= Some(200_000_000), "{}", report["run_ns"]);
    assert!(report["notes"].to_string().contains("libgomp"), "{:#}", report["notes"]);
}
