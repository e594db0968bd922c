//! The table of all ways to build a program of the corpus. Most entries measure a profiler.

use crate::input::CorpusInput;

#[derive(Debug)]
pub struct BuildKind {
    pub name: &'static str,
    /// Description of the variant in tables of results.
    pub about: &'static str,
    pub compiler: BenchCompiler,
    /// Flags for compiling and linking C and C++ programs, in addition to the flags that all variants have.
    pub flags: &'static str,
    /// Settings for trodden's instrumentation, separated by spaces.
    pub options: &'static str,
    /// The runs whose profile is available to the build; `None` if the build uses no profile.
    pub training_runs: Option<TrainingRuns>,
    /// If set, the variant is made from trodden's default build, and counts only the paths that the short run executes. The value is the
    /// name of the scheme that numbers these paths.
    pub scheme: Option<&'static str>,
    /// Name of the variant with which this variant is compared; `None` if it is itself such a baseline.
    pub base: Option<&'static str>,
    pub rust: RustSupport,
    /// C source file with the functions that the instrumented code calls.
    pub callbacks: Option<&'static str>,
    pub build_variables: &'static [(&'static str, &'static str)],
    /// Environment variables for a run. Each value is the name of a file in the folder for the run's counts, or empty for the folder
    /// itself.
    pub run_variables: &'static [(&'static str, &'static str)],
    /// Name of the variant whose executable this variant runs; `None` if this variant has an executable of its own.
    pub build_of: Option<&'static str>,
    /// Command line of a simulator. The program is run only once in it, on the short input.
    pub simulator: Option<&'static str>,
    pub sampled: bool,
    /// Debian packages that contain the tools that the variant needs.
    pub packages: &'static [&'static str],
}

/// Runs whose profile is available when a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingRuns {
    /// The short run.
    Train,
    /// The short run, and all runs of the program's test suite.
    TrainAndSuite,
}

impl TrainingRuns {
    /// Returns the name of the format to which the runs' profile is exported. The setting of the instrumentation that reads the exported
    /// file has the same name.
    pub fn export_format(self) -> &'static str {
        match self {
            TrainingRuns::Train | TrainingRuns::TrainAndSuite => "known",
        }
    }

    /// Returns the part that names these runs in the file name of their profile.
    pub fn file_name_part(self) -> &'static str {
        match self {
            TrainingRuns::Train => CorpusInput::Train.name(),
            TrainingRuns::TrainAndSuite => "tests",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchCompiler {
    Clang,
    Trodden,
    /// Names of a C compiler and a C++ compiler, in this order.
    Named(&'static str, &'static str),
    /// The version of clang that AFL++ was built with.
    AflClang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RustSupport {
    Flags(&'static str),
    Trodden,
    /// Rust programs are not supported, for this reason.
    No(&'static str),
}

const NO_RUST_REASON: &str = "not available for Rust programs";

const PLAIN_BUILD: BuildKind = BuildKind {
    name: "plain",
    about: "clang -O2 or rustc, nothing counted",
    compiler: BenchCompiler::Clang,
    flags: "",
    options: "",
    training_runs: None,
    scheme: None,
    base: None,
    rust: RustSupport::Flags(""),
    callbacks: None,
    build_variables: &[],
    run_variables: &[],
    build_of: None,
    simulator: None,
    sampled: false,
    packages: &[],
};

/// The common values for other profilers: they do not support Rust, and are compared with the plain build.
const OTHER_PROFILER_BUILD: BuildKind = BuildKind { base: Some("plain"), rust: RustSupport::No(NO_RUST_REASON), ..PLAIN_BUILD };

const TRODDEN_BUILD: BuildKind = BuildKind {
    name: "trodden",
    about: "trodden: every path, exactly",
    compiler: BenchCompiler::Trodden,
    rust: RustSupport::Trodden,
    run_variables: &[("TRODDEN_OUTPUT", "%m.raw")],
    ..OTHER_PROFILER_BUILD
};

/// All ways to build a program. [`crate::CorpusVariant`] expects the plain build first and trodden's default build second.
pub static BUILD_KINDS: &[BuildKind] = &[
    PLAIN_BUILD,
    TRODDEN_BUILD,
    BuildKind {
        name: "thesis",
        about: "arrays up to 2,500 paths, else tables of 700 slots (Vaswani)",
        options: "array-paths=2500 table-slots=700",
        ..TRODDEN_BUILD
    },
    BuildKind { name: "table", about: "tables of 262,144 slots instead of cutting paths", options: "table-slots=262144", ..TRODDEN_BUILD },
    BuildKind { name: "atomic", about: "one region for all threads, atomic increments", options: "threads=atomic", ..TRODDEN_BUILD },
    BuildKind {
        name: "ppp",
        about: "the short run's paths, preferentially numbered; all others in one counter",
        scheme: Some("ppp"),
        ..TRODDEN_BUILD
    },
    BuildKind {
        name: "known-table",
        about: "the short run's paths, looked up in tables; all others in one counter",
        scheme: Some("known-table"),
        ..TRODDEN_BUILD
    },
    BuildKind {
        name: "pspp",
        about: "paths over the short run's edges, exactly; all others in one counter",
        scheme: Some("pspp"),
        ..TRODDEN_BUILD
    },
    BuildKind { name: "sample-off", about: "built for sampling, while sampling is off", options: "when=bursts", ..TRODDEN_BUILD },
    BuildKind {
        name: "sample",
        about: "the same program, sampled by `trodden record`; the recorder's own time is not included",
        options: "when=bursts",
        build_of: Some("sample-off"),
        sampled: true,
        run_variables: &[],
        ..TRODDEN_BUILD
    },
    BuildKind {
        name: "residual",
        about: "only paths that the short run did not take",
        training_runs: Some(TrainingRuns::Train),
        ..TRODDEN_BUILD
    },
    BuildKind {
        name: "residual-suite",
        about: "only paths that neither the short run nor the suite of tests took",
        training_runs: Some(TrainingRuns::TrainAndSuite),
        ..TRODDEN_BUILD
    },
    BuildKind {
        name: "clang-edges",
        about: "clang -fprofile-generate: edges, counted by the optimiser",
        flags: "-fprofile-generate",
        rust: RustSupport::Flags("-Cprofile-generate"),
        // The build runs instrumented programs itself; their profiles are discarded.
        build_variables: &[("LLVM_PROFILE_FILE", "/dev/null")],
        run_variables: &[("LLVM_PROFILE_FILE", "%m.profraw")],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "clang-regions",
        about: "clang -fprofile-instr-generate: regions of the source, counted by the front end",
        flags: "-fprofile-instr-generate",
        build_variables: &[("LLVM_PROFILE_FILE", "/dev/null")],
        run_variables: &[("LLVM_PROFILE_FILE", "%m.profraw")],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "sancov-guard",
        about: "clang -fsanitize-coverage=trace-pc-guard, with a callback that counts in a table",
        flags: "-fsanitize-coverage=trace-pc-guard",
        callbacks: Some("guard.c"),
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "sancov-counters",
        about: "clang -fsanitize-coverage=inline-8bit-counters",
        flags: "-fsanitize-coverage=inline-8bit-counters",
        callbacks: Some("counters.c"),
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "gcc",
        about: "gcc -O2, nothing counted",
        compiler: BenchCompiler::Named("gcc", "g++"),
        base: None,
        packages: &["gcc", "g++"],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "gcc-coverage",
        about: "gcc --coverage: edges; compared with gcc",
        compiler: BenchCompiler::Named("gcc", "g++"),
        flags: "--coverage",
        base: Some("gcc"),
        run_variables: &[("GCOV_PREFIX", "")],
        packages: &["gcc", "g++"],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "gcc-15",
        about: "gcc 15 -O2, nothing counted",
        compiler: BenchCompiler::Named("gcc-15", "g++-15"),
        base: None,
        packages: &["gcc-15", "g++-15"],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "gcc-15-paths",
        about: "gcc 15 -fpath-coverage: which prime paths were taken (not how often); compared with gcc-15",
        compiler: BenchCompiler::Named("gcc-15", "g++-15"),
        flags: "-fpath-coverage --coverage",
        base: Some("gcc-15"),
        run_variables: &[("GCOV_PREFIX", "")],
        packages: &["gcc-15", "g++-15"],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "afl-base",
        about: "the clang that AFL++ uses, -O2, nothing counted",
        compiler: BenchCompiler::AflClang,
        base: None,
        packages: &["afl++"],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "afl",
        about: "AFL++'s afl-clang-fast: 8-bit edge counters; compared with afl-base",
        compiler: BenchCompiler::Named("afl-clang-fast", "afl-clang-fast++"),
        base: Some("afl-base"),
        // Without this variable, AFL++ would replace the optimisation level that all variants have.
        build_variables: &[("AFL_DONT_OPTIMIZE", "1"), ("AFL_QUIET", "1")],
        packages: &["afl++"],
        ..OTHER_PROFILER_BUILD
    },
    BuildKind {
        name: "callgrind",
        about: "the plain build under valgrind --tool=callgrind, one short run",
        rust: RustSupport::Flags(""),
        build_of: Some("plain"),
        simulator: Some("valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/null"),
        packages: &["valgrind"],
        ..OTHER_PROFILER_BUILD
    },
];
