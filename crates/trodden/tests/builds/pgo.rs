//! Edge profiles derived from path profiles must equal LLVM's own profiles in every counter, and compilers must accept them.

use crate::place::{Place, cargo_trodden, must, trodden, with_choices};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use trodden_oracle::random::{self, RandomLanguage};

/// Counters and value profiles of functions, by name and hash. A value profile consists of lines; those of each site are in alphabetical
/// order.
type Profile = BTreeMap<(String, u64), (Vec<u64>, Vec<String>)>;

/// Options that turn warnings about mismatching profiles into errors.
const STRICT_FLAGS: [&str; 5] =
    ["-Wprofile-instr-out-of-date", "-Wprofile-instr-unprofiled", "-Werror", "-Wno-error=unused-command-line-argument", "-c"];

fn read_profile(place: &Place, file: &str) -> Profile {
    let text = place.tool("llvm-profdata-22", &format!("merge --text {file} -o -")).stdout;
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut profile = Profile::new();
    for at in (1..lines.len()).filter(|at| lines[*at] == "# Func Hash:") {
        let count: usize = lines[at + 3].parse().unwrap();
        let counts = lines[at + 5..at + 5 + count].iter().map(|l| l.parse().unwrap()).collect();
        let mut values: Vec<String> = lines[at + 5 + count..].iter().take_while(|l| !l.is_empty()).map(|l| (*l).to_owned()).collect();
        // The order of values with equal frequency is irrelevant.
        values.chunk_by_mut(|a, b| a.contains(':') && b.contains(':') && !a.starts_with('#')).for_each(<[String]>::sort);
        profile.insert((lines[at - 1].to_owned(), lines[at + 1].parse().unwrap()), (counts, values));
    }
    profile
}

fn assert_equal_profiles(llvm: &Profile, ours: &Profile, what: &str) {
    let names = |p: &Profile| p.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(llvm), names(ours), "{what}: functions");
    for (function, known) in llvm {
        assert_eq!(known, &ours[function], "{what}: {function:?}");
    }
    assert!(llvm.values().flat_map(|known| &known.0).any(|c| *c > 0), "{what}: nothing was executed");
}

#[test]
fn counters_of_random_programs_equal_those_of_llvm() {
    let mut checked = 0;
    for seed in 0..8 {
        let program = random::program(seed);
        let (name, language, clang) = match program.language {
            RandomLanguage::C => ("prog.c", "cc", "clang-22"),
            RandomLanguage::Cxx => ("prog.cc", "c++", "clang++-22"),
        };
        let place = Place::with(&[(name, &program.text)]);
        let level = ["-O2", "-O3", "-O1", "-Os"][seed as usize % 4];
        let what = format!("seed {seed} {level}");
        must(place.command(clang).args([level, "-w", "-pthread", "-fprofile-generate", "-fprofile-update=atomic", name, "-o", "prog"]));
        let status = place.command(place.path("prog")).env("LLVM_PROFILE_FILE", "llvm.profraw").output().unwrap().status;
        let is_written = std::fs::metadata(place.path("llvm.profraw")).is_ok_and(|file| file.len() > 0);
        if status.code().is_none() || !is_written {
            // LLVM writes no profile if a signal or `_exit` ends the program.
            continue;
        }
        must(place.command(trodden()).args([language, "--trodden=pgo", level, "-w", "-pthread", name, "-o", "prog"]));
        let recorded = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./prog"]).output().unwrap();
        assert_eq!(recorded.status.code(), status.code(), "{what}");
        place.trodden("export profdata run.trodden -o own.profdata");
        assert_equal_profiles(&read_profile(&place, "llvm.profraw"), &read_profile(&place, "own.profdata"), &what);
        let mut using = place.command(clang);
        must(using.args([level, "-w", "-fprofile-use=own.profdata", name, "-o", "prog.o"]).args(STRICT_FLAGS));
        checked += 1;
    }
    assert!(checked >= 5);
}

/// A program for edge profiles. It has a function that is inlined in two units, a local function, an exit inside a call, values that paths
/// do not contain (computed sizes, a counter between two calls), calls through a table (one to a function without a profile), and memory
/// copies of various sizes.
const FIRST_PROGRAM: &str = "\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include \"shared.h\"
long second(long n);
static long half(long n) { return n / 2; }
static long (*const table[])(long) = {half, second, labs};
static char text[4000], copy[4000];
static void stop(long n) { if (n > 40) exit(0); }
static long least(long a, long b) { return a < b ? a : b; }
int main(void) {
    long s = 0;
    for (long n = 0; n < 1000; n++) { s += least(weigh(n), second(n)); printf(\"%ld\\n\", s); if (n & 1) s++; s += table[n % 3](n);\
        memcpy(copy, text, n * n); stop(n); s += weigh(n + 1); }
    return 0;
}
";
const SHARED_HEADER: &str = "static inline long weigh(long n) { if (n % 3 == 0) return n * 2; return n % 5 ? n : -n; }\n";
const SECOND_SOURCE: &str = "#include \"shared.h\"\nlong second(long n) { long s = 0; while (n-- > 0) s += weigh(n); return s; }\n";

#[test]
fn edge_profiles_of_several_units_and_merged_runs_equal_those_of_llvm() {
    let place = Place::with(&[("first.c", FIRST_PROGRAM), ("second.c", SECOND_SOURCE), ("shared.h", SHARED_HEADER)]);
    place.tool("clang-22", "-O2 -fprofile-generate first.c second.c -o prog");
    for run in ["one", "two"] {
        must(place.command(place.path("prog")).env("LLVM_PROFILE_FILE", format!("{run}.profraw")));
    }
    place.tool("llvm-profdata-22", "merge one.profraw two.profraw -o llvm.profdata");
    place.trodden("build --pgo -- clang -O2 first.c second.c -o prog");
    for run in ["one", "two"] {
        place.trodden(&format!("record --no-store -o {run}.trodden -- ./prog"));
    }
    place.trodden("merge -o both.trodden one.trodden two.trodden");
    place.trodden("export profdata both.trodden -o own.profdata");
    assert_equal_profiles(&read_profile(&place, "llvm.profdata"), &read_profile(&place, "own.profdata"), "two units");
    // `trodden instrument` makes these two variants from the stored bitcode.
    place.trodden("instrument prog -o again --pgo");
    place.trodden("record --no-store -o again.trodden -- ./again");
    place.trodden("export profdata again.trodden -o again.profdata");
    assert_equal_profiles(&read_profile(&place, "one.profraw"), &read_profile(&place, "again.profdata"), "a variant");
    place.trodden("build --lto --pgo -- clang -O2 first.c second.c -o whole");
    place.trodden("record --no-store -o whole.trodden -- ./whole");
    place.trodden("export profdata whole.trodden -o whole.profdata");
    assert_equal_profiles(&read_profile(&place, "one.profraw"), &read_profile(&place, "whole.profdata"), "optimised as a whole");
    place.trodden("instrument prog -o plain");
    place.trodden("record --no-store -o plain.trodden -- ./plain");
    let refused = place.command(trodden()).args(["export", "profdata", "plain.trodden"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`trodden build --pgo` (for `-fprofile-use`)"));
    for file in ["first.c", "second.c"] {
        let mut using = place.command("clang-22");
        must(using.args(["-O2", "-fprofile-use=own.profdata", file, "-o", "used.o"]).args(STRICT_FLAGS));
    }
}

#[test]
fn clangs_own_profile_options_are_rejected() {
    let place = Place::with(&[("a.c", "int main(void) { return 0; }\n")]);
    let output = place.command(trodden()).args(["cc", "--trodden=pgo", "-fprofile-generate", "a.c"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("-fprofile-generate cannot be combined"));
}

const RUST_PROGRAM: &str = "\
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
fn grade(n: u64) -> &'static str { match n % 7 { 0 => \"zero\", 1 | 2 => \"low\", 3 if n > 1000 => \"high\", _ => \"rest\" } }
fn main() {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for n in 0..50_000u64 { *counts.entry(grade(n)).or_default() += 1; }
    let apply: [&dyn Fn(u64) -> u64; 2] = [&|n| n + 1, &|n| n * 3];
    let sum: u64 = (0..3000).map(|n| apply[n as usize % 2](n)).sum();
    let mut x = 12345;
    for _ in 0..60_000 { x = step(x); }
    println!(\"{counts:?} {sum} {x}\");
    if counts.len() > 2 { std::process::exit(0) }
}
static TABLE: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static ODDS: AtomicU32 = AtomicU32::new(0);
#[inline(never)] fn up() { ODDS.fetch_add(1, Relaxed); }
#[inline(never)] fn down() { ODDS.fetch_add(7, Relaxed); }
/// The first branch determines the second.
#[inline(never)] fn step(x: u32) -> u32 {
    let x = x.wrapping_mul(1664525).wrapping_add(1013904223);
    let odd = x >> 16 & 1 == 1;
    if odd { up() } else { down() }
    let seen = TABLE[x as usize & 63].fetch_add(1, Relaxed) ^ TABLE[(x >> 6) as usize & 63].load(Relaxed);
    TABLE[(x >> 12) as usize & 63].store(seen, Relaxed);
    if odd { down() } else { up() }
    x ^ ODDS.load(Relaxed)
}
";

fn run_cargo(place: &Place, program: impl AsRef<Path>, arguments: &str, flags: &str) -> String {
    let mut command = remove_cargos_variables(place.command(program.as_ref()));
    let output = must(command.args(arguments.split_whitespace()).env("RUSTFLAGS", flags));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Removes the variables that cargo sets for tests, because they would change what the tested command does.
fn remove_cargos_variables(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO") && n != "CARGO_HOME") {
        command.env_remove(name);
    }
    ["RUSTC_WRAPPER", "RUSTFLAGS", "OUT_DIR"].into_iter().for_each(|name| _ = command.env_remove(name));
    command
}

#[test]
fn rust_edge_profiles_equal_those_of_llvm() {
    let manifest = "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let place = Place::with(&[("Cargo.toml", manifest), ("src/main.rs", RUST_PROGRAM)]);
    let target = "x86_64-unknown-linux-gnu";
    run_cargo(&place, cargo_trodden(), "build --release --pgo", "");
    must(
        place
            .command(trodden())
            .args(["record", "--no-store", "-o", "run.trodden", "--"])
            .arg(place.path(&format!("target/trodden/{target}/release/subject"))),
    );
    place.trodden("export profdata run.trodden -o own.profdata");
    let raw = place.path("raw");
    run_cargo(&place, "cargo", &format!("build --release --target {target}"), &format!("-Cprofile-generate={}", raw.display()));
    must(&mut place.command(place.path(&format!("target/{target}/release/subject"))));
    let raw = std::fs::read_dir(raw).unwrap().next().unwrap().unwrap().file_name();
    let llvm = read_profile(&place, &format!("raw/{}", raw.to_string_lossy()));
    assert_equal_profiles(&llvm, &read_profile(&place, "own.profdata"), "rust");
    let flags = format!("-Cprofile-use={} -Cllvm-args=-pgo-warn-missing-function", place.path("own.profdata").display());
    let said = run_cargo(&place, "cargo", &format!("build --release --target {target} --target-dir used"), &flags);
    assert!(!said.contains("warning"), "{said}");
    check_pgo_command(&place, &format!("used/{target}/release/subject"), &llvm);
}

/// Checks `trodden pgo` with a cargo command: the edge profile is the same, behaviour is unchanged, and path-based transformations apply.
fn check_pgo_command(place: &Place, plain: &str, llvm: &Profile) {
    let arguments =
        ["pgo", "--train", "$TRODDEN_PROGRAM > trained", "--keep-profile", "kept.profdata", "--", "cargo", "build", "--release"];
    let mut command = remove_cargos_variables(place.command(trodden()));
    let reported = String::from_utf8(must(with_choices(&mut command, arguments)).stderr).unwrap();
    assert_equal_profiles(llvm, &read_profile(place, "kept.profdata"), "rust, in one command");
    assert!(reported.contains("step") && reported.contains("copies of paths whose branches are decided by earlier ones: "), "{reported}");
    assert_eq!(place.output("subject.fast"), place.output(plain));
    let symbols = String::from_utf8(place.tool("nm", "subject.fast").stdout).unwrap();
    assert!(!symbols.contains("trodden") && !symbols.contains("__llvm_prf"), "{symbols}");
}

/// The makefile calls the compiler first by a name with a version, and then by an absolute path, which cannot be intercepted. The error
/// must name this path.
#[test]
fn compilers_with_a_version_in_their_name_are_intercepted() {
    let makefile = |compiler: &str| format!("CC = {compiler}\nprog: a.c\n\t$(CC) -O2 a.c -o prog\nclean:\n\trm -f prog\n");
    let program = "#include <stdio.h>\nint main(void) { int s = 0; for (int i = 0; i < 1000; i++) if (i % 3) s += i; printf(\"%d\\n\", \
        s); return 0; }\n";
    let place = Place::with(&[("a.c", program), ("Makefile", &makefile("clang-22"))]);
    let pgo = |make: &str| {
        let arguments = ["pgo", "--clean", "make clean", "--train", "$TRODDEN_PROGRAM", "--", "sh", "-c", make];
        let output = place.command(trodden()).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, reported) = pgo("make");
    assert_eq!(status, Some(0), "{reported}");
    assert_eq!(place.output("prog.fast"), "332667\n", "{reported}");
    let whole = String::from_utf8(place.shell("command -v clang-22").stdout).unwrap();
    place.write("Makefile", &makefile(whole.trim()));
    let (status, reported) = pgo("make");
    assert!(status == Some(2) && reported.contains("by an absolute path") && !reported.contains("pass a command to --clean"), "{reported}");
    assert_eq!(pgo("make CC=\"$CC\"").0, Some(0), "the remedy that the error names");
}

/// One source file is compiled twice, with different folder names and function names. Each compilation must have its own paths.
#[test]
fn copies_of_a_unit_with_renamed_folders_have_their_paths() {
    const PART_SOURCE: &str = "__attribute__((noinline)) int NAME(int n) {\n  int sum = 0;\n  for (int i = 0; i < n; i++)\n    if (i % \
        3)\n      \
        sum += i;\n  return sum;\n}\n";
    const MAIN_SOURCE: &str = "int work(int), again(int);\nint main(int n, char **v) { return work(n + 5) + again(n + 2) < 0; }\n";
    let place = Place::with(&[("src/part.c", PART_SOURCE), ("src/main.c", MAIN_SOURCE)]);
    let here = place.path("");
    let here = here.to_str().unwrap().trim_end_matches('/');
    for counters in ["", "--trodden=pgo", "--trodden=coverage"] {
        for map in ["-g", "-fdebug-prefix-map=HERE=/usr/src", "-ffile-prefix-map=HERE=/usr/src", "-ffile-prefix-map=HERE=."] {
            let map = map.replace("HERE", here);
            place.trodden(&format!("cc {counters} -O1 -g -DNAME=work {map} -c {here}/src/part.c -o one.o"));
            place.trodden(&format!("cc {counters} -O1 -g -DNAME=again -fdebug-prefix-map={here}=/other -c {here}/src/part.c -o two.o"));
            place.trodden(&format!("cc {counters} -O1 -g -c {here}/src/main.c -o main.o"));
            place.trodden(&format!("cc {counters} one.o two.o main.o -o prog"));
            place.trodden("record --no-store -o run.trodden -- ./prog");
            let report: serde_json::Value = serde_json::from_slice(&place.trodden("report run.trodden --json").stdout).unwrap();
            let number = |function: &serde_json::Value, what: &str| function[what].as_u64().unwrap();
            let functions = report["functions"].as_array().unwrap().iter();
            let mut found: Vec<_> = functions.map(|f| (f["name"].as_str().unwrap(), number(f, "calls"), number(f, "line"))).collect();
            found.sort_unstable();
            assert_eq!(found, [("again", 1, 1), ("main", 1, 2), ("work", 1, 1)], "{counters} {map}");
            for (name, executions) in [("work", 6), ("again", 3)] {
                let function = report["functions"].as_array().unwrap().iter().find(|f| f["name"] == name).unwrap();
                assert_eq!(number(function, "executions"), executions, "{counters} {map} {name}");
                let page = String::from_utf8(place.trodden(&format!("annotate {name} run.trodden")).stdout).unwrap();
                assert!(page.contains("part.c:1") && page.contains(" executed "), "{counters} {map}: {page}");
            }
            let lcov = String::from_utf8(place.trodden("export lcov run.trodden").stdout).unwrap();
            assert!(lcov.contains("FNDA:1,main"), "{lcov}");
        }
    }
}
