// Prints the processor time per call in nanoseconds: `calls mpi|lock COUNT`.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
  int is_mpi = argc > 1 && !strcmp(argv[1], "mpi");
  long count = argc > 2 ? atol(argv[2]) : 1000;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  MPI_Init(&argc, &argv);
  double start = now();
  for (long i = 0; i < count; i++) {
    if (is_mpi) {
      MPI_Barrier(MPI_COMM_SELF);
    } else {
      pthread_mutex_lock(&lock);
      pthread_mutex_unlock(&lock);
    }
  }
  double each = (now() - start) / count;
  MPI_Finalize();
  printf("%f\n", each);
  return 0;
}
