//! Profiles and path sequences from a different variant of a program must be used if they match the program, and otherwise rejected with an
//! error that names them.

use crate::place::{Place, laboratory};
use std::os::unix::process::ExitStatusExt;

/// A program in which the compiler can prove that `step` returns.
const RETURNS_PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int step(int n) { return n & 1 ? n * 3 : n / 2; }
int main(void) {
    int sum = 0;
    for (int i = 0; i < 1000; i++) sum += step(i);
    printf("%d\n", sum);
    return 0;
}
"#;

const FORKS_PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int spawn(void) { return fork(); }
__attribute__((noinline)) int work(int n) {
    if (spawn() == 0) { printf("child %d\n", n); return n + 1; }
    wait(NULL);
    return n;
}
int main(int argc, char **argv) {
    int r = work(argc);
    printf("%d\n", r);
    return 0;
}
"#;

/// A build with `--reach all` has more calls at which paths can stop, so its paths have different numbers.
#[test]
fn plan_rejects_the_run_of_a_different_variant() {
    let place = Place::with(&[("prog.c", RETURNS_PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    place.trodden("record --no-store -o own.trodden -- ./prog");
    place.laboratory("plan ./prog -k 2 --profile own.trodden");
    place.trodden("instrument prog --reach all -o more");
    place.trodden("record --no-store -o other.trodden -- ./more");
    let output = place.command(laboratory()).args(["plan", "./prog", "-k", "2", "--profile", "other.trodden"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2)
            && said.contains("different paths (the first is `main`)")
            && said.contains("Record the given program"),
        "{said}"
    );
}

/// A forked child must inherit the callers of frames that were entered before the fork. All segments of a run are then known if the run is
/// compared with itself.
#[test]
fn forked_children_keep_their_callers() {
    let place = Place::with(&[("prog.c", FORKS_PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    place.trodden("instrument prog --stream -o streaming");
    place.trodden("record --whole-program --no-store -o stream.trodden -- ./streaming");
    place.trodden("instrument prog --segments tested:stream.trodden.streams -o tested");
    place.trodden("record --no-store -o field.trodden -- ./tested");
    place.trodden("untested field.trodden --fail");
}

#[test]
fn variant_of_a_variant_has_its_own_action() {
    let source = "int main(int argc, char **argv) { if (argc > 1) __asm__ volatile(\"nop\"); return 0; }\n";
    let place = Place::with(&[("prog.c", source)]);
    place.cc("-O1 prog.c -o prog");
    place.trodden("record --suite tests -- ./prog");
    place.trodden("instrument ./prog --residual tests --action abort -o aborts");
    place.trodden("instrument ./aborts --residual tests -o counts");
    let ended = |program: &str| place.command(place.path(program)).arg("x").env("TRODDEN_OUTPUT", "").status().unwrap();
    assert_eq!(ended("aborts").signal(), Some(6));
    assert!(ended("counts").success());
}
