//! A temporary folder with a unit cache of its own, in which tests build, run and record small programs with the real drivers.
#![allow(dead_code, reason = "each test file uses a part of it")]

mod disk;

#[allow(unused_imports, reason = "each test file uses a part of it")]
pub use disk::Disk;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;
use trodden_profile::{FunctionPaths, Profile};
use trodden_unit::InstrumentedImage;

pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        build_plugin();
        Place { folder: tempfile::Builder::new().prefix("trodden-test-").tempdir().unwrap() }
    }

    pub fn with(files: &[(&str, &str)]) -> Place {
        let place = Place::new();
        for (name, text) in files {
            place.write(name, text);
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Creates a command that runs in the test folder. If `TRODDEN_CLANG` names a version (`clang-19`), tools of LLVM 22 are replaced by
    /// those of this version.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(compiler_of_tested_version(program.as_ref()));
        command.current_dir(self.folder.path()).env("TRODDEN_CACHE", self.path("store"));
        for variable in [
            "TRODDEN_INSTRUMENT",
            "TRODDEN_EXPERIMENT",
            "TRODDEN_LTO",
            "TRODDEN_QUIET",
            "TRODDEN_OUTPUT",
            "TRODDEN_LOG",
            "TRODDEN_LABORATORY",
            "MAKEFLAGS",
            "CFLAGS",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs `trodden`, which must succeed. The arguments may contain options of `trodden-lab with`.
    pub fn trodden(&self, arguments: &str) -> Output {
        must(with_choices(&mut self.command(trodden()), arguments.split_whitespace()))
    }

    pub fn laboratory(&self, arguments: &str) -> Output {
        must(self.command(laboratory()).args(arguments.split_whitespace()))
    }

    pub fn cc(&self, arguments: &str) -> Output {
        must(self.command(trodden()).arg("cc").args(arguments.split_whitespace()))
    }

    pub fn cxx(&self, arguments: &str) -> Output {
        must(self.command(trodden()).arg("c++").args(arguments.split_whitespace()))
    }

    /// Runs a program in the test folder. It must succeed.
    pub fn tool(&self, program: &str, arguments: &str) -> Output {
        must(self.command(program).args(arguments.split_whitespace()))
    }

    /// Runs a shell script in which `$CC` and `$CXX` are trodden's compiler drivers.
    pub fn shell(&self, script: &str) -> Output {
        self.trodden("drivers bin");
        must(self.command("sh").args(["-ec", script]).env("CC", self.path("bin/trodden-cc")).env("CXX", self.path("bin/trodden-c++")))
    }

    /// Runs a program in the test folder and returns its standard output.
    pub fn output(&self, program: &str) -> String {
        let output = must(self.command(self.path(program)).env("LD_LIBRARY_PATH", self.folder.path()));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{program} prints to standard error");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Records a program. Returns its output and its profile.
    pub fn record(&self, program: &str) -> (String, Profile) {
        let mut command = self.command(trodden());
        command
            .args(["record", "--no-store", "-o", "run.trodden", "--"])
            .arg(self.path(program))
            .env("LD_LIBRARY_PATH", self.folder.path());
        let output = must(&mut command);
        let profile = Profile::read(&self.path("run.trodden")).unwrap();
        (String::from_utf8(output.stdout).unwrap(), profile)
    }

    /// Records a program. Checks that it prints `expected`, and that functions are called as often as `calls` says.
    pub fn check(&self, program: &str, expected: &str, calls: &[(&str, u64)]) {
        assert_eq!(self.output(program), expected, "output of {program}");
        let (output, profile) = self.record(program);
        assert_eq!(output, expected, "output of {program} when it is recorded");
        for (function, count) in calls {
            assert_eq!(executions(&profile, function), Some(*count), "calls of {function} in {program}");
        }
    }

    /// Returns the source file of each unit in an image.
    pub fn sources(&self, image: &str) -> Vec<String> {
        let image = self.image(image);
        let mut sources: Vec<String> = image.frames.iter().map(|f| f.map().unwrap().source).collect();
        sources.sort();
        sources
    }

    pub fn image(&self, name: &str) -> InstrumentedImage {
        InstrumentedImage::read(&fs::read(self.path(name)).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

/// Returns how often a function was entered, or `None` if no unit contains it.
pub fn executions(profile: &Profile, function: &str) -> Option<u64> {
    let mut sum = None;
    for (_, unit, map) in profile.functions().filter(|(_, _, f)| f.plain_name() == function) {
        *sum.get_or_insert(0) += FunctionPaths::decode(map, unit.counts_of(map)).unwrap().call_count();
    }
    sum
}

/// Returns the name of an LLVM tool, with the version that `TRODDEN_CLANG` selects.
fn compiler_of_tested_version(program: &OsStr) -> OsString {
    let version = std::env::var("TRODDEN_CLANG").ok().and_then(|clang| clang.strip_prefix("clang-").map(str::to_owned));
    match (program.to_str().and_then(|name| name.strip_suffix("-22")), version) {
        (Some(tool), Some(version)) => format!("{tool}-{version}").into(),
        _ => program.to_owned(),
    }
}

/// Runs a command that must succeed.
pub fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// Returns the path of `trodden`, which is in the same folder as `trodden-lab`.
pub fn trodden() -> &'static Path {
    program_file("trodden", option_env!("CARGO_BIN_EXE_trodden"))
}

/// Returns the path of `trodden-lab`, which is in the same folder as `trodden`.
pub fn laboratory() -> &'static Path {
    program_file("trodden-lab", option_env!("CARGO_BIN_EXE_trodden-lab"))
}

/// Returns the program (`trodden` or `trodden-lab`) that has a command starting with this word.
pub fn program_of(command: &str) -> &'static Path {
    match command.split(' ').next().unwrap() {
        "simulate" if command.contains(" --sequence ") || command.contains(" --format ") => laboratory(),
        "convert" | "grammar" | "graph" | "hot-paths" | "loops" | "patterns" | "plan" | "schemes" | "sequence" | "sweep" => laboratory(),
        _ => trodden(),
    }
}

/// Returns the path of `trodden` or `trodden-lab`. Cargo tells a test only the paths of programs in the test's own crate, so the other
/// program is looked up beside the test.
fn program_file(name: &str, own: Option<&'static str>) -> &'static Path {
    static OTHER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(own) = own {
        return Path::new(own);
    }
    OTHER.get_or_init(|| {
        let known = option_env!("CARGO_BIN_EXE_trodden").or(option_env!("CARGO_BIN_EXE_trodden-lab")).unwrap();
        let other = Path::new(known).with_file_name(name);
        assert!(other.is_file(), "{} is not built: cargo build --workspace --bins", other.display());
        other
    })
}

/// Moves those arguments before `--` that are options of `trodden-lab with` to the environment, as that command does.
pub fn with_choices<'a>(command: &mut Command, arguments: impl IntoIterator<Item = &'a str>) -> &mut Command {
    let mut choices = Vec::new();
    let mut words = arguments.into_iter().peekable();
    // Some commands have options with the same names. These must remain arguments.
    let first = command.get_args().next().map_or_else(|| words.peek().copied().unwrap_or(""), |word| word.to_str().unwrap_or(""));
    let is_coverage = first == "coverage";
    while let Some(word) = words.next() {
        match word {
            "--baseline" if is_coverage => _ = command.arg(word),
            "--scheme" | "--strategy" | "--max-probes" | "--max-callers" | "--threshold" | "--witness-strategy" | "--hits"
            | "--max-paths" | "--max-wait" | "--score" | "--table-slots" | "--chords" | "--reach" | "--growth" | "--tail-merging"
            | "--memory" | "--costs" | "--like" | "--path-equivalence" | "--min-share" | "--segment-depth" | "--iterations"
            | "--hot-paths" | "--keep-profile" => choices.extend([word, words.next().unwrap()]),
            "--all-procedures" | "--count-hits" | "--no-first-run" | "--baseline" | "--witnesses" => choices.push(word),
            "--" => _ = command.arg(word).args(words.by_ref()),
            other => _ = command.arg(other),
        }
    }
    command.env("TRODDEN_LABORATORY", choices.join(" "))
}

/// Returns the path of a link to `trodden` with the name `cargo-trodden`, under which cargo finds it.
pub fn cargo_trodden() -> &'static Path {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    LINKED.get_or_init(|| {
        must(Command::new(trodden()).arg("drivers"));
        trodden().with_file_name("cargo-trodden")
    })
}

/// Builds the plugin in the folder of `trodden`, where the drivers look for it. `cargo xtask test` has already built it, and sets a
/// variable to say so: another build with other features would compile the plugin's dependencies again.
fn build_plugin() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = trodden().parent().unwrap();
        if std::env::var_os("TRODDEN_TEST_PLUGIN").is_some_and(|value| value == "built") {
            return;
        }
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "trodden-instrument", "--target-dir"]).arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            command.arg("--release");
        }
        must(command.current_dir(env!("CARGO_MANIFEST_DIR")));
    });
}
