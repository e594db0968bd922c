//! What compilers, linkers and build systems do to programs, one test for each. The instrumented program must print what the original
//! program prints, the image must contain its units, and its counts must be right. The tests need clang-22, lld-22, llvm-22, binutils (with
//! gold), make, cmake and ccache.

#[path = "../platform/bare.rs"]
mod bare;
#[path = "../platform/call_sites.rs"]
mod call_sites;
#[path = "../platform/debug_information.rs"]
mod debug_information;

use crate::place::{Place, executions, must, trodden};
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// Calls `step`, which is in a separate unit, ten times.
const MAIN_SOURCE: &str = r#"
#include <stdio.h>
int step(int n);
int main(void) {
  int sum = 0;
  for (int i = 0; i < 10; i++) sum += step(i);
  printf("%d\n", sum);
  return 0;
}
"#;
const STEP_SOURCE: &str = "int step(int n) { if (n % 3 == 0) return n * 7; return n; }\n";
const EXPECTED_OUTPUT: &str = "153\n";

fn create_two_units() -> Place {
    Place::with(&[("main.c", MAIN_SOURCE), ("step.c", STEP_SOURCE)])
}

#[test]
fn separately_compiled_units_are_counted() {
    let place = create_two_units();
    place.cc("-O2 -c main.c");
    place.cc("-O2 -c step.c");
    place.cc("main.o step.o -o prog");
    assert_eq!(place.sources("prog"), ["main.c", "step.c"]);
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn program_compiled_and_linked_by_one_command_is_counted() {
    let place = create_two_units();
    place.cc("-O2 main.c step.c -o prog");
    assert_eq!(place.sources("prog"), ["main.c", "step.c"]);
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn unoptimised_code_and_code_from_assembly_output_are_counted() {
    let place = create_two_units();
    place.cc("-O0 -c main.c");
    place.cc("-O1 -S step.c");
    place.cc("-c step.s");
    place.cc("main.o step.o -o prog");
    assert_eq!(place.sources("prog"), ["main.c", "step.c"]);
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10), ("main", 1)]);
}

#[test]
fn users_lto_option_is_ignored_with_a_note() {
    let place = create_two_units();
    for lto in ["-flto", "-flto=thin"] {
        let notes = place.cc(&format!("-O2 {lto} -c step.c"));
        let notes = String::from_utf8(notes.stderr).unwrap();
        assert_eq!(notes.lines().count(), 1, "{notes}");
        assert!(notes.contains("-flto"), "{notes}");
        place.cc(&format!("-O2 {lto} main.c step.o -o prog"));
        place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    }
}

#[test]
fn notes_can_be_silenced() {
    let place = create_two_units();
    let output = must(place.command(trodden()).args(["cc", "-flto", "-c", "step.c"]).env("TRODDEN_QUIET", "1"));
    assert_eq!(output.stderr, b"");
}

#[test]
fn cmake_build_with_interprocedural_optimisation_is_counted() {
    let place = create_two_units();
    place.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(p \
            C)\ninclude(CheckIPOSupported)\ncheck_ipo_supported()\nset(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)\n\
         add_library(step STATIC step.c)\nadd_executable(prog main.c)\ntarget_link_libraries(prog step)\n",
    );
    place.shell("cmake -S . -B out -DCMAKE_BUILD_TYPE=Release && cmake --build out");
    assert_eq!(place.sources("out/prog").len(), 2);
    place.check("out/prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn merged_objects_are_counted() {
    let place = create_two_units();
    place.cc("-O2 -c main.c");
    place.cc("-O2 -c step.c");
    place.cc("-r main.o step.o -o both.o");
    place.cc("both.o -o prog");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    place.trodden("instrument prog -o other --chords off");
    place.check("other", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn programs_with_precompiled_headers_are_counted() {
    let place = Place::with(&[("all.h", "int step(int);\n#include <stdio.h>\n"), ("main.c", MAIN_SOURCE), ("step.c", STEP_SOURCE)]);
    place.cc("-O1 -x c-header all.h -o all.pch");
    place.cc("-O1 -include-pch all.pch -c main.c");
    place.cc("-O1 main.o step.c -o prog");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn program_without_any_library_is_counted() {
    let start = "int step(int);\n__attribute__((force_align_arg_pointer)) void _start(void) {\n  int s = 0;\n  for (int i = 0; i < 10; \
        i++) s += step(i);\n  \
                 __asm__ volatile(\"syscall\" :: \"a\"(231), \"D\"(s == 153 ? 0 : 1));\n  __builtin_unreachable();\n}\n";
    let place = Place::with(&[("start.c", start), ("step.c", STEP_SOURCE)]);
    place.cc("-O2 -nostdlib -ffreestanding -shared -fPIC step.c -o libstep.so");
    assert_eq!(place.sources("libstep.so"), ["step.c"]);
    place.write("main.c", MAIN_SOURCE);
    place.cc("-O2 main.c -L. -lstep -o prog");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn garbage_collection_works_with_three_linkers() {
    let place = create_two_units();
    place.write("spare.c", "int spare(int n) { return n ? n + 1 : 5; }\n");
    for linker in ["bfd", "gold", "lld"] {
        place.cc(&format!("-O2 -ffunction-sections -fdata-sections -fuse-ld={linker} -Wl,--gc-sections main.c step.c spare.c -o {linker}"));
        assert!(place.sources(linker).contains(&"step.c".to_owned()));
        place.check(linker, EXPECTED_OUTPUT, &[("step", 10)]);
    }
}

#[test]
fn failed_link_names_counters_that_code_cannot_address() {
    // Fifteen decisions make too many paths for an array of 100, so counters are in a hash table.
    let step: String = (0..15).map(|i| format!("  if (n >> {i} & 1) seen++;\n")).collect();
    let place = Place::with(&[("main.c", MAIN_SOURCE)]);
    // Nine tables with 2^24 slots each take 2.25 GiB.
    let options = "table-slots=16777216 array-paths=100";
    let mut objects = String::new();
    for unit in 0..9 {
        let name = if unit == 0 { "step".to_owned() } else { format!("step{unit}") };
        place.write("unit.c", &format!("static volatile int seen;\nint {name}(int n) {{\n{step}  return seen;\n}}\n"));
        must(place.command(trodden()).args(["cc", "-O1", "-c", "unit.c", "-o", &format!("{name}.o")]).env("TRODDEN_INSTRUMENT", options));
        objects += &format!(" {name}.o");
    }
    place.cc("-O1 -c main.c");
    let link = |objects: &str| {
        place.command(trodden()).arg("cc").args("main.o -o prog".split(' ')).args(objects.split_whitespace()).output().unwrap()
    };
    let said = link(&objects);
    let said = (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned());
    assert!(!said.0 && said.1.contains("the counters of prog need 2.3 GiB, but its code can address less than 2 GiB"), "{said:?}");
    // A link error must not be blamed on the counters if they are small.
    let said = link("");
    let said = (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned());
    assert!(!said.0 && !said.1.contains("counters of"), "{said:?}");
}

#[test]
fn version_scripts_hide_trodden_symbols() {
    let place = Place::with(&[("step.c", STEP_SOURCE), ("main.c", MAIN_SOURCE), ("lib.map", "V1 { global: step; local: *; };\n")]);
    for linker in ["bfd", "gold", "lld"] {
        place.cc(&format!("-O2 -fPIC -shared -fuse-ld={linker} -Wl,--version-script=lib.map step.c -o libstep.so"));
        place.cc("-O2 main.c -L. -lstep -o prog");
        place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
        let symbols = place.tool("nm", "-D --defined-only libstep.so");
        // gold also lists hidden symbols, but as local ones, with a lower-case letter.
        let symbols = String::from_utf8(symbols.stdout).unwrap();
        let exported = symbols.lines().filter(|l| l.contains("trodden") && l.split(' ').nth(1).unwrap().chars().all(char::is_uppercase));
        assert_eq!(exported.count(), 0, "{symbols}");
    }
    place.trodden("instrument libstep.so -o libstep.so --chords off");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn weak_functions_constructors_and_thread_locals_are_counted() {
    let header = "#pragma once\ntemplate <class T> __attribute__((noinline)) T twice(T x) { static thread_local T calls; calls++; return \
        x > 3 ? x * 2 : x; }\n\
                  struct Early { int n; Early(); };\n";
    let one = "#include \"h.h\"\nint other(int);\nextern Early early;\n__attribute__((weak)) int weak() { return 1; }\n#include <cstdio>\n\
               int main() { std::printf(\"%d %d %d %d\\n\", twice(2) + twice(5), other(4), early.n, weak()); }\n";
    let two = "#include \"h.h\"\nEarly::Early() : n(twice(8)) {}\nEarly early;\nint other(int x) { return twice(x); }\nint weak() { \
        return 2; }\n";
    let place = Place::with(&[("h.h", header), ("one.cc", one), ("two.cc", two)]);
    place.cxx("-O1 -c one.cc");
    place.cxx("-O1 -c two.cc");
    place.cxx("one.o two.o -o prog");
    place.check("prog", "12 8 16 2\n", &[("_Z5twiceIiET_S0_", 4), ("_Z5otheri", 1), ("_GLOBAL__sub_I_two.cc", 1)]);
}

#[test]
fn static_programs_are_counted() {
    let place = create_two_units();
    for option in ["-static", "-static-pie -fPIE", "-no-pie -fno-pie", "-pie -fPIE"] {
        place.cc(&format!("-O2 {option} main.c step.c -o prog"));
        place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    }
    place.cc("-O2 -static main.c step.c -o prog");
    place.trodden("instrument prog -o other --max-paths 1");
    place.check("other", EXPECTED_OUTPUT, &[]);
}

#[test]
fn archive_members_with_equal_names_are_counted() {
    let place = create_two_units();
    place.write("sub/step.c", "int spare(int n) { if (n) return 1; return 2; }\n");
    place.cc("-O2 -c step.c -o step.o");
    place.cc("-O2 -c sub/step.c -o sub/step.o");
    place.tool("ar", "qc libstep.a step.o sub/step.o");
    place.cc("-O2 main.c -Wl,--whole-archive libstep.a -Wl,--no-whole-archive -o prog");
    assert_eq!(place.image("prog").units.len(), 3);
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10), ("spare", 0)]);
    for file in ["libstep.a", "step.o", "sub/step.o", "step.c", "sub/step.c", "main.c"] {
        place.remove(file);
    }
    place.trodden("instrument prog -o other --chords off");
    place.check("other", EXPECTED_OUTPUT, &[("step", 10), ("spare", 0)]);
}

#[test]
fn program_and_two_libraries_are_counted() {
    let place = Place::with(&[
        (
            "main.c",
            "#include <stdio.h>\nint one(int), two(int);\nint main(void) { printf(\"%d\\n\", one(3) + one(4) + two(1)); return 0; }\n",
        ),
        ("one.c", "int two(int);\nint one(int n) { return n > 3 ? two(n) : n; }\n"),
        ("two.c", "int two(int n) { return n & 1 ? n + 10 : n; }\n"),
    ]);
    place.cc("-O2 -fPIC -shared two.c -o libtwo.so");
    place.cc("-O2 -fPIC -shared one.c -L. -ltwo -o libone.so");
    place.cc("-O2 main.c -L. -lone -ltwo -o prog");
    place.check("prog", "18\n", &[("one", 2), ("two", 2), ("main", 1)]);
    let (_, profile) = place.record("prog");
    assert_eq!(profile.images.len(), 3);
}

#[test]
fn libraries_loaded_at_run_time_are_counted() {
    let main = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  int sum = 0;
  for (int i = 0; i < 3; i++) {
    void *l = dlopen("libstep.so", RTLD_NOW);
    if (!l) { puts(dlerror()); return 1; }
    int (*step)(int) = (int (*)(int))dlsym(l, "step");
    sum += step(i) + step(i + 1);
    dlclose(l);
  }
  printf("%d\n", sum);
  return 0;
}
"#;
    let place = Place::with(&[("main.c", main), ("step.c", STEP_SOURCE)]);
    place.cc("-O2 -fPIC -shared step.c -o libstep.so");
    place.cc("-O2 main.c -ldl -o prog");
    place.check("prog", "27\n", &[("step", 6)]);
}

#[test]
fn libraries_use_as_little_thread_local_storage_as_the_guide_says() {
    let place = create_two_units();
    place.cc("-O2 main.c step.c -o prog");
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./prog"]));
    place.trodden("export known run.trodden -o known");
    let residual = format!("known={}", place.path("known").display());
    for (tier, expected) in [("", 8), ("when=bursts", 8), (residual.as_str(), 24), ("events=instructions", 40)] {
        let mut compile = place.command(trodden());
        compile.args(["cc", "-O2", "-fPIC", "-shared", "step.c", "-o", "libstep.so"]).env("TRODDEN_INSTRUMENT", tier);
        assert!(compile.status().unwrap().success(), "{tier}");
        let output = place.command("readelf").args(["-lW", "libstep.so"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let columns: Vec<&str> = text.lines().find(|l| l.trim_start().starts_with("TLS")).unwrap().split_whitespace().collect();
        assert_eq!(columns[5], format!("{expected:#08x}"), "{tier}: {columns:?}");
    }
}

#[test]
fn units_of_stripped_programs_are_found_in_the_cache() {
    let place = create_two_units();
    place.cc("-O2 main.c step.c -o prog");
    place.tool("strip", "prog -o gnu");
    assert_eq!(place.sources("gnu"), ["main.c", "step.c"]);
    place.check("gnu", EXPECTED_OUTPUT, &[("step", 10)]);
    place.tool("llvm-strip-22", "prog -o llvm");
    assert!(place.image("llvm").frames.is_empty());
    place.check("llvm", EXPECTED_OUTPUT, &[("step", 10)]);
    place.trodden("instrument llvm -o other --chords off");
    place.check("other", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn objects_from_ccache_are_counted() {
    let place = create_two_units();
    place.trodden("drivers bin");
    let compile = |source: &str| {
        let mut command = place.command("ccache");
        command.arg(place.path("bin/trodden-cc")).args(["-O2", "-c", source]);
        must(command.env("CCACHE_DIR", place.path("cache")))
    };
    for _ in 0..2 {
        compile("main.c");
        compile("step.c");
    }
    place.cc("main.o step.o -o prog");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn configure_script_that_requires_silence_succeeds() {
    let place = create_two_units();
    place.write("lib.map", "V1 { global: step; missing; local: *; };\n");
    let output = place.shell(
        "test -z \"$($CC -w -c -fPIC -O3 step.c 2>&1)\"
         test -z \"$($CC -shared -Wl,-soname,libstep.so.1,--version-script,lib.map -o libstep.so.1 -fPIC step.o 2>&1)\"
         $CC --version | grep -q clang
         $CC -E step.c | grep -q step
         test \"$($CC -dumpmachine)\" = \"$(clang-22 -dumpmachine)\"
         ! $CC -c missing.c 2> errors
         grep -q missing.c errors",
    );
    assert_eq!(output.stderr, b"");
}

#[test]
fn source_from_standard_input_is_compiled_without_output_option() {
    let place = create_two_units();
    let compile = |arguments: &[&str]| {
        let mut child = place.command(trodden()).arg("cc").args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(MAIN_SOURCE.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{arguments:?}");
    };
    compile(&["-x", "c", "-c", "-o", "/dev/null", "-"]);
    compile(&["-O2", "-o", "prog", "step.c", "-x", "c", "-"]);
    assert_eq!(place.sources("prog"), ["-", "step.c"]);
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    place.cc("-O2 -c step.c -o /dev/null");
    place.trodden("instrument prog -o other --chords off");
    place.check("other", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn arguments_in_response_files_are_used() {
    let place = create_two_units();
    place.write("words", "-O2 'main.c' \"step.c\"\n-o prog");
    place.cc("@words");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    place.trodden("instrument prog -o other --chords off");
    place.check("other", EXPECTED_OUTPUT, &[("step", 10)]);
}

#[test]
fn assembly_is_linked_without_instrumentation() {
    let place = Place::with(&[
        ("main.c", MAIN_SOURCE),
        ("step.S", ".globl step\nstep:\n  lea (%rdi,%rdi), %eax\n  ret\n.section .note.GNU-stack,\"\",@progbits\n"),
    ]);
    place.cc("-O2 main.c step.S -o prog");
    assert_eq!(place.sources("prog"), ["main.c"]);
    place.check("prog", "90\n", &[("main", 1)]);
    place.remove("step.S");
    place.trodden("instrument prog -o other --chords off");
    place.check("other", "90\n", &[("main", 1)]);
}

#[test]
fn trodden_build_instruments_parallel_make() {
    let place = create_two_units();
    let units: Vec<String> = (0..12).map(|i| format!("u{i}")).collect();
    for (i, unit) in units.iter().enumerate() {
        place.write(&format!("{unit}.c"), &format!("int {unit}(int n) {{ if (n > {i}) return 1; return 0; }}\n"));
    }
    // The makefile sets `CC` itself, as many makefiles do.
    let objects = units.iter().map(|u| format!("{u}.o")).collect::<Vec<_>>().join(" ");
    place.write("Makefile", &format!("CC = gcc\nCFLAGS = -O2\nprog: main.o step.o {objects}\n\t$(CC) -o $@ $^\n"));
    let output = place.trodden("build -- make -j4");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("14 units instrumented in 1 image: prog"), "{notes}");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10), ("u3", 0)]);
    let again = place.trodden("build -- make -j4");
    assert!(String::from_utf8(again.stderr).unwrap().contains("everything was up to date"));
}

/// Linking objects that were compiled with different counting options causes a warning. Such objects may come from a compiler cache, which
/// does not know these options.
#[test]
fn link_warns_of_objects_built_with_different_options() {
    let place = create_two_units();
    place.cc("-O1 -c main.c");
    place.cc("-O1 -c step.c");
    let link = |options: &str| {
        let mut command = place.command(trodden());
        let output = must(command.args("cc main.o step.o -o prog".split(' ')).env("TRODDEN_INSTRUMENT", options));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(link(""), "");
    for (options, here) in [("max-paths=2", "uses (max-paths=2)"), ("observe=coverage", "uses (observe=coverage)")] {
        let said = link(options);
        assert!(said.contains("main.c, and 1 more, in prog, was compiled with different counting options ("), "{said}");
        assert!(said.contains(here) && said.contains("CCACHE_NAMESPACE") && said.lines().count() == 1, "{said}");
    }
    for options in ["max-paths=2", "observe=stream", "observe=coverage", "when=bursts", "keep=map", "observe=addresses"] {
        let mut command = place.command(trodden());
        let output = must(command.args("cc -O1 -g main.c step.c -o prog".split(' ')).env("TRODDEN_INSTRUMENT", options));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("different counting options"), "{options}: {said}");
    }
}

/// Counting code needs a real ELF thread-local variable.
#[test]
fn emulated_thread_local_storage_is_rejected_by_name() {
    let place = create_two_units();
    for options in ["-femulated-tls", "-fno-emulated-tls -femulated-tls"] {
        let output = place.command(trodden()).args(format!("cc -O1 {options} main.c step.c -o prog").split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("-femulated-tls cannot be combined with counting"), "{said}");
    }
    place.cc("-O1 -femulated-tls -fno-emulated-tls main.c step.c -o prog");
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    place.cc("-O1 -femulated-tls --trodden=addresses main.c step.c -o marked");
    assert_eq!(place.output("marked"), EXPECTED_OUTPUT);
}

#[test]
fn sanitizers_find_their_address_ranges_free() {
    let place = create_two_units();
    for sanitizer in ["address", "memory", "thread", "undefined"] {
        place.cc(&format!("-O1 -fsanitize={sanitizer} main.c step.c -o prog"));
        place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    }
}

#[test]
fn lto_builds_instrument_whole_programs() {
    let place = create_two_units();
    place.write(
        "Makefile",
        "prog: main.o libstep.a\n\t$(CC) $(CFLAGS) -o $@ main.o -L. -lstep\nlibstep.a: step.o\n\t$(AR) rc $@ \
        $^\n\t$(RANLIB) $@\nCFLAGS = -O2\n",
    );
    place.trodden("build --lto -- make");
    assert_eq!(place.image("prog").units.len(), 1);
    let (output, profile) = place.record("prog");
    assert_eq!(output, EXPECTED_OUTPUT);
    assert!(executions(&profile, "main").unwrap() > 0);
    assert_eq!(executions(&profile, "step"), None, "it is inlined from another unit");
    place.trodden("instrument prog -o other --chords off");
    assert_eq!(place.output("other"), EXPECTED_OUTPUT);
}

#[test]
fn variants_count_the_same() {
    let place = create_two_units();
    place.cc("-O2 -c step.c");
    place.cc("-O2 main.c step.o -o prog");
    let (_, before) = place.record("prog");
    for file in ["main.c", "step.c", "step.o"] {
        place.remove(file);
    }
    place.trodden("instrument prog -o other --chords off");
    let (output, after) = place.record("other");
    assert_eq!(output, EXPECTED_OUTPUT);
    let counts = |profile: &trodden_profile::Profile| -> Vec<(String, Vec<(u64, u64)>)> {
        profile.functions().map(|(_, unit, f)| (f.name.clone(), unit.counts_of(f).collect())).collect()
    };
    assert_eq!(counts(&before), counts(&after));
    assert_ne!(before.images[0].identity, after.images[0].identity);
}

#[test]
fn missing_recipe_or_bitcode_is_named() {
    let place = create_two_units();
    must(place.command(trodden()).args(["cc", "-O2", "main.c", "step.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", "keep=map"));
    place.check("prog", EXPECTED_OUTPUT, &[("step", 10)]);
    let output = place.command(trodden()).args(["instrument", "prog", "-o", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("does not contain the link command of image"));
    assert!(!place.path("x").exists());
    fs::copy("/bin/true", place.path("true")).unwrap();
    let output = place.command(trodden()).args(["instrument", "true", "-o", "x"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("no part of this program was built with trodden"));
}
