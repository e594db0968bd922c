//! Slow functions that are not those of the executed lines: Fortran procedures, and functions that spend their time in helpers.

use super::{Place, check_consistency, first_cause};

const FORTRAN_PROGRAM: &str = r#"
program relaxation
  use mpi
  implicit none
  integer :: r, n, e, i, req(2), st(MPI_STATUS_SIZE, 2), comm
  double precision :: x, y
  call MPI_Init(e)
  call MPI_Comm_rank(MPI_COMM_WORLD, r, e)
  call MPI_Comm_size(MPI_COMM_WORLD, n, e)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, e)
  x = r
  do i = 1, 30
    if (r == 0) call slow_solver(3000000, x)
    call MPI_Irecv(y, 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 5, comm, req(1), e)
    call MPI_Isend(x, 1, MPI_DOUBLE_PRECISION, mod(r + 1, n), 5, comm, req(2), e)
    call MPI_Waitall(2, req, st, e)
    call MPI_Bcast(x, 1, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, e)
  end do
  call MPI_Finalize(e)
contains
  subroutine slow_solver(k, s)
    integer :: k, j
    double precision :: s
    do j = 1, k
      s = s + sqrt(dble(j))
    end do
  end subroutine
end program
"#;

#[test]
fn fortran_is_recorded_with_both_libraries() {
    for library in ["openmpi", "mpich"] {
        let place = Place::new();
        place.build(&format!("mpif90.{library}"), "relaxation.f90", FORTRAN_PROGRAM, &["-O1"]);
        place.record(&[&format!("mpirun.{library}"), "-n", "2", "./app"]);
        let report = place.report(&[]);
        check_consistency(&report);
        assert_eq!(first_cause(&report), ("slow_solver".into(), 0), "{library}: {:#}", report["causes"]);
        assert!(report["waits"].as_array().unwrap().iter().any(|w| w["site"]["call"] == "MPI_Waitall" && w["kind"] == "late sender"));
    }
}

/// An old-style program with separate procedures, a reduction whose arguments share a buffer, and receives from any source with any tag.
const FORTRAN_77_PROGRAM: &str = r#"
      program old
      include 'mpif.h'
      integer r, e, i
      double precision x, y
      call mpi_init(e)
      call mpi_comm_rank(MPI_COMM_WORLD, r, e)
      x = r
      do i = 1, 20
        if (r .eq. 1) call conj_grad(3000000, x)
        if (r .eq. 0) then
          call mpi_recv(y, 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE,
     &      MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE, e)
        else
          call mpi_send(x, 1, MPI_DOUBLE_PRECISION, 0, 4,
     &      MPI_COMM_WORLD, e)
        endif
        call mpi_allreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION,
     &    MPI_SUM, MPI_COMM_WORLD, e)
      end do
      call mpi_finalize(e)
      end
      subroutine conj_grad(k, s)
      integer k, j
      double precision s
      do j = 1, k
        s = s + sqrt(dble(j))
      end do
      end
"#;

#[test]
fn fortran_procedures_have_their_source_names() {
    for library in ["openmpi", "mpich"] {
        let place = Place::new();
        place.build(&format!("mpif77.{library}"), "old.f", FORTRAN_77_PROGRAM, &["-O2"]);
        place.record(&[&format!("mpirun.{library}"), "-n", "2", "./app"]);
        let report = place.report(&[]);
        check_consistency(&report);
        assert_eq!(first_cause(&report), ("conj_grad".into(), 1), "{library}: {:#}", report["causes"]);
        assert!(report["waits"].as_array().unwrap().iter().any(|w| w["site"]["call"] == "MPI_Recv" && w["kind"] == "late sender"));
    }
}

/// A program in which the function that is slow on rank 1 spends its time in several helpers. One of the helpers is inlined.
const HELPERS_PROGRAM: &str = r#"
#include <mpi.h>
static volatile double sink;
__attribute__((noinline)) static void area(long n) { double s = 0; for (long i = 0; i < n; i++) s += i * 0.5; sink = s; }
static inline void gradient(long n) { double s = 1; for (long i = 0; i < n; i++) s += i * 0.25; sink = s; }
__attribute__((noinline)) static void volume(long n) { double s = 0; for (long i = 0; i < n; i++) s -= i * 0.125; sink = s; }
__attribute__((noinline)) void kinematics(const double *shape, int turns) {
  for (int i = 0; i < turns; i++) { area(60000); gradient(60000); volume(60000); }
  sink = *shape;
}
__attribute__((noinline)) void elements(const double *shape, int turns) { kinematics(shape, turns); sink = 1; }
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  double x = 1, sum;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 20; i++) {
    elements(&x, rank == 1 ? 200 : 1);
    MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn slow_functions_are_named_instead_of_their_helpers() {
    for (language, compiler) in [("c", "mpicc.openmpi"), ("cc", "mpicxx.mpich")] {
        let place = Place::new();
        place.build(compiler, &format!("helpers.{language}"), HELPERS_PROGRAM, &["-O2"]);
        place.record(&[&format!("mpirun.{}", compiler.rsplit('.').next().unwrap()), "-n", "2", "./app"]);
        let report = place.report(&["--what-if", "kinematics=100"]);
        check_consistency(&report);
        assert_eq!(first_cause(&report), ("kinematics".into(), 1), "{language}: {:#}", report["causes"]);
        assert_eq!(report["causes"][0]["caller"], "elements");
        assert_eq!(report["causes"][0]["callers"][0]["function"], "elements");
    }
}
