//! Debug information in other files must say the same as that in the program itself: split DWARF, packages of it, separate debug files, and
//! what dwz moves to a shared file.

use crate::common::{read, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use trodden_binary::{Binary, SourceFrame, SourceLocations, set_debug_file_source};

const HEADER: &str = "\
static inline __attribute__((always_inline)) int scale(int n) { return n % 3 ? n * 7 : n ^ 9; }
static inline __attribute__((always_inline)) int twice(int n) { return scale(n) + scale(n + 1); }
int work(int n);
";
const MAIN: &str = "\
#include \"shared.h\"
int main(int count, char **arguments) {
    int sum = 0;
    for (int i = 0; i < count + 4; i++)
        sum += work(i) + twice(sum);
    return sum & 1;
}
";
const WORK: &str = "\
#include \"shared.h\"
static __attribute__((noinline)) int step(int n) { return n > 3 ? twice(n) : scale(n); }
int work(int n) { return n & 1 ? step(n) : twice(n - 1) * 3; }
";

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in [("shared.h", HEADER), ("main.c", MAIN), ("work.c", WORK)] {
            std::fs::write(folder.path(name), text).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) {
        run(Command::new("sh").args(["-ec", line]).current_dir(self.0.path()));
    }

    /// Compiles each source separately, as builds do.
    fn build(&self, compiler: &str, program: &str, options: &str) -> PathBuf {
        self.run(&format!("{compiler} -O2 {options} -c main.c && {compiler} -O2 {options} -c work.c"));
        self.run(&format!("{compiler} {options} -Wl,--build-id main.o work.o -o {program}"));
        self.path(program)
    }
}

fn open(binary: &Binary) -> SourceLocations {
    SourceLocations::read(binary).unwrap().expect("the program has line tables")
}

/// Returns the frames at all addresses of the program's own functions.
fn frames(binary: &Binary, source: &SourceLocations) -> Vec<Vec<SourceFrame>> {
    let own = ["main", "work", "step"];
    let functions = binary.functions().iter().filter(|f| own.contains(&f.name.as_str()));
    functions.flat_map(|f| f.address..f.address + f.size).map(|address| source.frames(address)).collect()
}

fn assert_frames(program: &Path, expected: &[Vec<SourceFrame>], what: &str) {
    let binary = read(program);
    let source = open(&binary);
    let found = frames(&binary, &source);
    let parts = found.iter().zip(expected).find(|(a, b)| a != b);
    assert!(found == expected, "{what}: {} and {} addresses, {parts:?}", found.len(), expected.len());
    assert!(source.missing_file().is_none(), "{what}");
}

fn read_frames(program: &Path) -> Vec<Vec<SourceFrame>> {
    let binary = read(program);
    let frames = frames(&binary, &open(&binary));
    let names = |chain: &[SourceFrame]| chain.iter().filter_map(|frame| frame.function.clone()).collect::<Vec<_>>();
    assert!(frames.iter().any(|chain| names(chain) == ["scale", "twice", "main"]), "{frames:?}");
    frames
}

/// Checks the frames with the units' own files, with a package, after both were moved, and without them.
fn check_split_dwarf(compiler: &str, version: u32) {
    let folder = Folder::new();
    let expected = read_frames(&folder.build(compiler, "plain", &format!("-gdwarf-{version} -g")));
    let program = folder.build(compiler, "split", &format!("-gdwarf-{version} -g -gsplit-dwarf"));
    let what = format!("{compiler}, DWARF {version}");
    assert_frames(&program, &expected, &what);
    folder.run("mkdir moved && mv split *.dwo moved");
    let program = folder.path("moved/split");
    assert_frames(&program, &expected, &format!("{what}, moved"));
    folder.run("mv moved/*.dwo . && llvm-dwp-22 -e moved/split -o all.dwp");
    if version == 4 {
        folder.run("dwp -e moved/split -o gnu.dwp");
    }
    folder.run("rm *.dwo");
    for package in if version == 4 { &["all.dwp", "gnu.dwp"][..] } else { &["all.dwp"] } {
        folder.run(&format!("mv {package} moved/split.dwp"));
        assert_frames(&program, &expected, &format!("{what}, {package}"));
    }
    folder.run("rm moved/split.dwp");
    let binary = read(&program);
    let source = open(&binary);
    assert!(source.missing_file().is_none(), "nothing was needed yet");
    let lines = |chain: &[SourceFrame]| chain.first().map(|frame| (frame.file.clone(), frame.line));
    let (found, expected) = (frames(&binary, &source), expected.iter().map(|chain| lines(chain)).collect::<Vec<_>>());
    assert_eq!(found.iter().map(|chain| lines(chain)).collect::<Vec<_>>(), expected, "{what}");
    let message = source.missing_file().unwrap().to_string();
    assert!(message.contains("moved/split are unknown") && message.contains(".dwo cannot be read"), "{message}");
}

#[test]
fn split_dwarf_agrees_with_unsplit_dwarf() {
    for (compiler, version) in [("clang-22", 4), ("clang-22", 5), ("gcc", 4), ("gcc", 5)] {
        check_split_dwarf(compiler, version);
    }
}

#[test]
fn split_dwarf_in_object_files_is_found() {
    let folder = Folder::new();
    let expected = read_frames(&folder.build("clang-22", "plain", "-g"));
    assert_frames(&folder.build("clang-22", "split", "-g -gsplit-dwarf=single"), &expected, "in object files");
    assert_frames(&folder.build("clang-22", "split", "-g -gsplit-dwarf -gz=zstd"), &expected, "compressed");
}

#[test]
fn files_of_another_build_and_pipes_are_not_read() {
    let folder = Folder::new();
    let program = folder.build("clang-22", "split", "-g -gsplit-dwarf");
    folder.run("cp split kept && echo 'int other;' >> work.c");
    folder.build("clang-22", "split", "-g -gsplit-dwarf");
    folder.run("mv kept split");
    let assert_missing = || {
        let binary = read(&program);
        let source = open(&binary);
        assert!(!frames(&binary, &source).is_empty());
        assert!(source.missing_file().unwrap().to_string().contains("work.dwo"));
    };
    assert_missing();
    // A pipe to which nobody writes is not read.
    folder.run("rm work.dwo && mkfifo work.dwo");
    assert_missing();
}

#[test]
fn separate_debug_files_have_names_and_lines() {
    let folder = Folder::new();
    let plain = folder.build("gcc", "plain", "-g");
    let (expected, functions) = (read_frames(&plain), read(&plain).functions().to_vec());
    let check = |program: &str| {
        let binary = read(&folder.path(program)).with_debug_symbols();
        assert_eq!(binary.functions(), functions, "{program}");
        assert!(frames(&binary, &open(&binary)) == expected, "{program}");
    };
    folder.run("objcopy --only-keep-debug plain plain.debug && strip -o linked plain && objcopy --add-gnu-debuglink=plain.debug linked");
    check("linked");
    // The last source is asked once for a binary, whatever is needed from it.
    folder.run("strip -o stripped plain && mv plain.debug elsewhere");
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let (file, build_id) = (folder.path("elsewhere"), read(&plain).build_id().unwrap().to_owned());
    set_debug_file_source(move |asked| {
        assert_eq!(asked, build_id);
        ASKED.fetch_add(1, Ordering::Relaxed);
        Some(file.clone())
    });
    check("stripped");
    check("stripped");
    assert_eq!(ASKED.load(Ordering::Relaxed), 1);
}

#[test]
fn debug_information_that_files_share_is_found() {
    let folder = Folder::new();
    let expected = read_frames(&folder.build("gcc", "plain", "-gdwarf-4"));
    folder.run("cp plain one && cp plain two && dwz --relative --multifile shared.debug one two");
    let sections = Command::new("readelf").args(["-SW", "one"]).current_dir(folder.path(".")).output().unwrap();
    assert!(String::from_utf8_lossy(&sections.stdout).contains(".gnu_debugaltlink"));
    for program in ["one", "two"] {
        assert_frames(&folder.path(program), &expected, program);
    }
}
