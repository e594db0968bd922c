//! `trodden trace record --library`: code in shared libraries must be traced like that of the program, whether a library is loaded at the
//! start or later.

use crate::traced::{Folder, errors, is_installed, must};
use std::process::Command;

/// A library that has a constructor, calls its own functions by name and through pointers, and calls back.
const LIBRARY_SOURCE: &str = r#"
static int seen;
__attribute__((constructor)) static void begin(void) { seen = 3; }
int weigh(int n) {
    switch (n % 6) { case 0: return 5; case 1: return n * 2; case 2: return 7; case 3: return n ^ 9; case 4: return 1; default: return n; }
}
static int odd(int n) { return n & 1 ? weigh(n) : seen++; }
static int even(int n) { return n & 1 ? 2 : weigh(n + 1); }
static int (*const table[2])(int) = { odd, even };
int sum(int n, int (*each)(int)) {
    int all = 0;
    for (int i = 0; i < n; i++) all += table[i % 2](i) + each(i);
    return all + seen;
}
"#;

const PROGRAM: &str = r#"
#include <stdio.h>
int sum(int n, int (*each)(int));
int weigh(int n);
static int square(int i) { return i % 3 ? i * i : weigh(i); }
int main(void) {
    for (int n = 1; n < 5; n++) printf("%d\n", sum(n, square));
    return 0;
}
"#;

/// A program that loads the library twice and unloads it in between. The second time, something else may be mapped where the library was.
const LOADS_PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
static int half(int i) { return i / 2; }
int main(int argc, char **argv) {
    for (int time = 0; time < 2; time++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) { puts(dlerror()); return 1; }
        int (*sum)(int, int (*)(int)) = (int (*)(int, int (*)(int)))dlsym(library, "sum");
        printf("%d\n", sum(3 + time, half));
        dlclose(library);
    }
    return 0;
}
"#;

impl Folder {
    fn compile_library(&self) {
        std::fs::write(self.path("twice.c"), LIBRARY_SOURCE).unwrap();
        let arguments = ["-O1", "-g", "-shared", "-fPIC", "twice.c", "-o", "libtwice.so"];
        must(Command::new("cc").current_dir(self.path(".")).args(arguments).output().unwrap());
    }

    /// Checks that each set of options in `ways` gives the blocks that stepping gives, including those in the library.
    fn assert_library_matches_stepping(&self, library: &str, program: &[&str], ways: &[&[&str]]) -> Vec<String> {
        let options = ["--library", library];
        let stepped = self.record(&[&options[..], &["--collector", "single-step"]].concat(), "stepped.trace", program);
        let output = must(stepped);
        let stepped = self.addresses("stepped.trace");
        for way in ways {
            let merged = self.record(&[&options[..], way].concat(), "merged.trace", program);
            assert!(!errors(&merged).contains("falling back to one run"), "{way:?}: {}", errors(&merged));
            assert_eq!(must(merged), output);
            let merged = self.addresses("merged.trace");
            let parts = merged.iter().zip(&stepped).position(|(a, b)| a != b);
            assert!(merged == stepped, "{way:?}: {} and {} blocks, part at {parts:?}", merged.len(), stepped.len());
        }
        stepped
    }
}

const RECORD_OPTIONS: [&[&str]; 4] =
    [&["--runs", "4"], &["--runs", "4", "--collector", "ptrace"], &["--runs", "1"], &["--runs", "1", "--collector", "ptrace"]];

#[test]
fn libraries_are_traced() {
    let folder = Folder::new();
    folder.compile_library();
    std::fs::write(folder.path("app.c"), PROGRAM).unwrap();
    let arguments = ["-O1", "-g", "app.c", "-o", "app", "-L.", "-ltwice", "-Wl,-rpath,$ORIGIN"];
    must(Command::new("cc").current_dir(folder.path(".")).args(arguments).output().unwrap());
    let blocks = folder.assert_library_matches_stepping("libtwice", &["./app"], &RECORD_OPTIONS);
    // In this listing, each address is followed by the name of its file.
    let of = |file: &str| blocks.iter().filter(|line| line.ends_with(file)).count();
    assert!(of(" libtwice.so") > 40 && of(" app") > 20 && of(" libtwice.so") + of(" app") == blocks.len(), "{blocks:?}");
    // Calls go from one file to the other, and the constructor runs before all of them.
    let tree = must(folder.trodden(&["report", "merged.trace"]));
    let times = |name: &str| -> u64 {
        let calls = tree.lines().filter(|l| l.ends_with(&format!(" {name}")));
        calls.filter_map(|l| l.split_whitespace().next()?.parse::<u64>().ok()).sum()
    };
    assert_eq!([times("sum"), times("square"), times("begin")], [4, 10, 1], "{tree}");
    // Line numbers refer to the library's own source.
    let found = must(folder.trodden(&["find", "twice.c:12", "merged.trace", "--json"]));
    assert!(serde_json::from_str::<serde_json::Value>(&found).unwrap()["times"].as_u64().unwrap() >= 4, "{found}");
    must(folder.record(&["--runs", "2"], "plain.trace", &["./app"]));
    let plain = folder.addresses("plain.trace");
    assert_eq!(plain.len(), of(" app"));
}

#[test]
fn libraries_that_are_loaded_later_are_traced() {
    let folder = Folder::new();
    folder.compile_library();
    folder.compile("cc", "loads.c", LOADS_PROGRAM);
    let blocks = folder.assert_library_matches_stepping("./libtwice.so", &["./app", "./libtwice.so"], &RECORD_OPTIONS);
    assert!(blocks.iter().filter(|line| line.ends_with(" libtwice.so")).count() > 30, "{blocks:?}");
    // If `--library` is not given, loading a library later must not disturb the trace.
    folder.assert_matches_stepping(&["./app", "./libtwice.so"], 0);
}

#[test]
fn system_libraries_are_traced() {
    if is_installed("/usr/bin/bzip2") {
        let folder = Folder::new();
        let blocks = folder.assert_library_matches_stepping("libbz2", &["/usr/bin/bzip2", "-1", "-c", "input"], &[&["--runs", "4"]]);
        assert!(blocks.iter().filter(|line| line.contains(" libbz2.so")).count() > 1000, "{} blocks", blocks.len());
        // Both files have functions without symbols, some with equal names, so the profile must distinguish the files.
        must(folder.trodden(&["import", "merged.trace", "--output", "profile.trodden"]));
        let report = must(folder.trodden(&["report", "profile.trodden", "--json"]));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let paths: Vec<&str> = report["images"].as_array().unwrap().iter().map(|i| i["path"].as_str().unwrap()).collect();
        assert!(matches!(paths[..], [program, library] if program.ends_with("/bzip2") && library.contains("libbz2.so")), "{paths:?}");
        // In the call tree, names of functions without symbols are followed by `@` and the file.
        let tree = must(folder.trodden(&["report", "merged.trace"]));
        assert!(tree.lines().any(|l| l.ends_with("@bzip2")) && tree.lines().any(|l| l.contains("@libbz2.so")), "{tree}");
        let totals = &report["totals"];
        assert_eq!(totals["functions_executed"], totals["functions_instrumented"], "{totals}");
    }
}

#[test]
fn libraries_that_cannot_be_traced_are_named() {
    let folder = Folder::new();
    folder.compile_library();
    let with =
        |choices: &str, options: &[&str]| errors(&folder.record_with(choices, options, "no.trace", &["/usr/bin/gzip", "-c", "input"]));
    let said = |options: &[&str]| with("", options);
    let unknown = said(&["--library", "libnone"]);
    assert!(unknown.contains("does not load a library `libnone`") && unknown.contains("libc.so.6"), "{unknown}");
    let missing = said(&["--library", "./libnone.so"]);
    assert!(missing.contains("cannot read the library ./libnone.so"), "{missing}");
    let other = said(&["--library", "./input"]);
    assert!(other.contains("is not an ELF file"), "{other}");
    let hardware = with("--collector hardware", &["--library", "./libtwice.so"]);
    assert!(hardware.contains("this collector cannot trace libraries"), "{hardware}");
}

/// A program that calls the library again and again.
const CALLS_PROGRAM: &str = r#"
#include <unistd.h>
int sum(int n, int (*each)(int));
static int square(int i) { return i * i; }
int main(void) { for (volatile int n = 0;; n++) { sum(n % 5, square); usleep(1000); } }
"#;

#[test]
fn libraries_of_running_processes_are_traced() {
    let folder = Folder::new();
    folder.compile_library();
    std::fs::write(folder.path("app.c"), CALLS_PROGRAM).unwrap();
    let arguments = ["-O1", "-g", "app.c", "-o", "app", "-L.", "-ltwice", "-Wl,-rpath,$ORIGIN"];
    must(Command::new("cc").current_dir(folder.path(".")).args(arguments).output().unwrap());
    let mut process = Command::new(folder.path("app")).spawn().unwrap();
    let id = process.id().to_string();
    let sleeps = || std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap().contains(") S ");
    while !sleeps() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // After each trace, the process must be as it was.
    for collector in ["ptrace", "trampolines"] {
        for library in ["libtwice", "./libtwice.so"] {
            let arguments = ["trace", "record", "--library", library, "--collector", collector, "--pid", &id, "--for", "300ms"];
            let output = folder.trodden(&[&arguments[..], &["--output", "t.trace"]].concat());
            assert!(output.status.success(), "{collector}: {}", errors(&output));
            let blocks = folder.addresses("t.trace");
            let of = |file: &str| blocks.iter().filter(|line| line.ends_with(file)).count();
            assert!(of(" libtwice.so") > 0 && of(" app") > 0, "{collector} {library}: {} {}", of(" libtwice.so"), of(" app"));
            assert!(process.try_wait().unwrap().is_none(), "{collector}");
        }
    }
    let unknown = folder.trodden(&["trace", "record", "--library", "libnone", "--pid", &id, "--output", "t.trace"]);
    assert!(
        errors(&unknown).contains("has not mapped a library `libnone`") && errors(&unknown).contains("libtwice.so"),
        "{}",
        errors(&unknown)
    );
    process.kill().unwrap();
    process.wait().unwrap();
}
