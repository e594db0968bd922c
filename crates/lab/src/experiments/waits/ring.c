// Sends messages around a ring: `ring ITERATIONS`. Each iteration makes two calls, as in archive.py.
#include <mpi.h>
#include <stdlib.h>

static volatile double sink;

__attribute__((noinline)) static void work(int n) {
  for (int i = 0; i < n; i++) sink += i;
}

int main(int argc, char **argv) {
  long iterations = argc > 1 ? atol(argv[1]) : 1000;
  int rank, size;
  double x = 0, y;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (long i = 0; i < iterations; i++) {
    work(rank == 1 ? 400 : 200);
    MPI_Send(&x, 1, MPI_DOUBLE, (rank + 1) % size, 0, MPI_COMM_WORLD);
    MPI_Recv(&y, 1, MPI_DOUBLE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
  return 0;
}
