//! Programs without libc and its start files.

use crate::place::{Place, executions, trodden};

/// A program without libc, start files and thread-local storage. Its `_start` calls `step` ten times.
const BARE_PROGRAM: &str = r#"
static long call(long n, long a, long b, long c) {
  long r;
  __asm__ volatile("syscall" : "=a"(r) : "0"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return r;
}
__attribute__((noinline)) int step(int n) {
  if (n & 1) { __asm__ volatile("nop"); return 1; }
  return 2;
}
void begin(long *stack) {
  int sum = stack[0] == 1 ? 0 : 100;
  for (int i = 0; i < 10; i++) sum += step(i);
  char text[] = "s=1?\n";
  text[3] = '0' + sum % 10;
  call(1, 1, (long)text, 5);
  call(60, sum, 0, 0);
  __builtin_unreachable();
}
__asm__(".globl START\nSTART: mov %rsp, %rdi\nand $-16, %rsp\ncall begin\n");
"#;

/// Records a program built from [`BARE_PROGRAM`], which must end with status 15.
fn check_bare(place: &Place, program: &str, case: &str) {
    let output = place.command(place.path(program)).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(15), &b"s=15\n"[..], &b""[..]), "{case}");
    let recorded =
        place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--"]).arg(place.path(program)).output().unwrap();
    assert_eq!((recorded.status.code(), &*recorded.stdout), (Some(15), &b"s=15\n"[..]), "{case}");
    let profile = trodden_profile::Profile::read(&place.path("run.trodden")).unwrap();
    assert_eq!(executions(&profile, "step"), Some(10), "{case}");
}

#[test]
fn executables_without_libc_are_counted() {
    let place = Place::with(&[("bare.c", &BARE_PROGRAM.replace("START", "_start"))]);
    let with_loader = "-pie -fPIE -Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2";
    for linker in ["bfd", "gold", "lld"] {
        for kind in ["-static", "-static-pie -fPIE", "-no-pie -fno-pie", with_loader] {
            // gold cannot link static PIEs. The C library's loader cannot run a program that lld linked at a fixed address without
            // libraries.
            if matches!((linker, kind), ("gold", "-static-pie -fPIE") | ("lld", "-no-pie -fno-pie")) {
                continue;
            }
            for more in ["", "-s", "-ffunction-sections -Wl,--gc-sections"] {
                let case = format!("-O2 -nostdlib -ffreestanding -fno-stack-protector {kind} -fuse-ld={linker} {more}");
                place.cc(&format!("{case} bare.c -o prog"));
                check_bare(&place, "prog", &case);
            }
        }
    }
    place.cc("-O2 -nostartfiles -ffreestanding -fno-stack-protector -static bare.c -o prog");
    place.remove("bare.c");
    place.trodden("instrument prog -o other --chords off");
    check_bare(&place, "other", "another variant");
}

#[test]
fn custom_entry_points_without_libc_are_kept() {
    let place = Place::with(&[("bare.c", &BARE_PROGRAM.replace("START", "_start")), ("go.c", &BARE_PROGRAM.replace("START", "go"))]);
    place.write("empty.c", "int nothing;\n");
    let options = "-O2 -nostdlib -ffreestanding -fno-stack-protector -static";
    let symbols = |program: &str| String::from_utf8(place.tool("nm", program).stdout).unwrap();
    place.cc(&format!("{options} -c bare.c"));
    place.tool("ar", "qc libstart.a bare.o");
    for linker in ["bfd", "gold", "lld"] {
        place.cc(&format!("{options} -fuse-ld={linker} empty.c libstart.a -o archive"));
        check_bare(&place, "archive", linker);
        for entry in ["-e go", "-Wl,-e,go", "-Wl,--entry=go"] {
            place.cc(&format!("{options} -fuse-ld={linker} {entry} go.c -o own"));
            assert!(!symbols("own").contains("__trodden_start"), "{linker} {entry}");
        }
        let notes = place.cc(&format!("{options} -fuse-ld={linker} go.c -o none"));
        assert!(!symbols("none").contains("__trodden_start"), "{linker}");
        assert!(linker == "gold" || String::from_utf8(notes.stderr).unwrap().contains("cannot find entry symbol _start"), "{linker}");
    }
}
