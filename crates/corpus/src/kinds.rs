//! A table of the ways to build a program of the corpus.

use crate::input::Input;

#[derive(Debug)]
pub struct BuildKind {
    pub name: &'static str,
    /// Description in tables of results.
    pub about: &'static str,
    pub compiler: BenchCompiler,
    /// Flags for compiling and linking C and C++, in addition to the flags that all variants share.
    pub flags: &'static str,
    /// Settings for trodden's instrumentation.
    pub options: &'static str,
    /// Runs whose profile the build uses.
    pub trained: Option<TrainingRuns>,
    /// If set, the default build is re-instrumented to count only the paths that the short run executes; this scheme numbers the paths.
    pub scheme: Option<&'static str>,
    /// Name of the variant that serves as the baseline.
    pub base: Option<&'static str>,
    pub rust: RustSupport,
    /// Source file with callbacks that the instrumented code calls.
    pub callbacks: Option<&'static str>,
    pub build: &'static [(&'static str, &'static str)],
    /// Environment variables for runs. Each value is a file name in the folder for the run's counts; an empty value means the folder
    /// itself.
    pub counts: &'static [(&'static str, &'static str)],
    /// Name of the variant whose executable is run, if this variant has no build of its own.
    pub build_of: Option<&'static str>,
    /// Command line of a simulator. The program runs under it once, on the short input.
    pub simulator: Option<&'static str>,
    pub sampled: bool,
    /// Debian packages that provide the variant's tools.
    pub packages: &'static [&'static str],
}

/// The runs that a build is trained on: their paths are known when the program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingRuns {
    /// The short run.
    Train,
    /// The short run and the program's test suite.
    TrainAndSuite,
}

impl TrainingRuns {
    /// The name of the export format and of the setting for the exported file; both are the same.
    pub fn name(self) -> &'static str {
        match self {
            TrainingRuns::Train | TrainingRuns::TrainAndSuite => "known",
        }
    }

    /// The part of the profile's file name that identifies these runs.
    pub fn runs(self) -> &'static str {
        match self {
            TrainingRuns::Train => Input::Train.name(),
            TrainingRuns::TrainAndSuite => "tests",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchCompiler {
    Clang,
    Trodden,
    /// A C compiler and a C++ compiler with these names.
    Named(&'static str, &'static str),
    /// The clang that AFL++ was built with.
    AflClang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RustSupport {
    Flags(&'static str),
    Trodden,
    /// Rust programs are not supported. The text states the reason.
    No(&'static str),
}

const NOT_RUST: &str = "not available for Rust programs";

const PLAIN: BuildKind = BuildKind {
    name: "plain",
    about: "clang -O2 or rustc, nothing counted",
    compiler: BenchCompiler::Clang,
    flags: "",
    options: "",
    trained: None,
    scheme: None,
    base: None,
    rust: RustSupport::Flags(""),
    callbacks: None,
    build: &[],
    counts: &[],
    build_of: None,
    simulator: None,
    sampled: false,
    packages: &[],
};

/// Base of the entries for other profilers. They do not support Rust, and are compared with the plain build by clang.
const OTHER_PROFILER: BuildKind = BuildKind { base: Some("plain"), rust: RustSupport::No(NOT_RUST), ..PLAIN };

const TRODDEN: BuildKind = BuildKind {
    name: "trodden",
    about: "trodden: every path, exactly",
    compiler: BenchCompiler::Trodden,
    rust: RustSupport::Trodden,
    counts: &[("TRODDEN_OUTPUT", "%m.raw")],
    ..OTHER_PROFILER
};

/// All ways to build a program. [`crate::Variant`] relies on the order of the first two.
pub static BUILD_KINDS: &[BuildKind] = &[
    PLAIN,
    TRODDEN,
    BuildKind {
        name: "thesis",
        about: "arrays up to 2,500 paths, else tables of 700 slots (Vaswani)",
        options: "array-paths=2500 table-slots=700",
        ..TRODDEN
    },
    BuildKind { name: "table", about: "tables of 262,144 slots instead of cutting paths", options: "table-slots=262144", ..TRODDEN },
    BuildKind { name: "atomic", about: "one region for all threads, atomic increments", options: "threads=atomic", ..TRODDEN },
    BuildKind {
        name: "ppp",
        about: "the short run's paths, preferentially numbered; all others in one counter",
        scheme: Some("ppp"),
        ..TRODDEN
    },
    BuildKind {
        name: "known-table",
        about: "the short run's paths, looked up in tables; all others in one counter",
        scheme: Some("known-table"),
        ..TRODDEN
    },
    BuildKind {
        name: "pspp",
        about: "paths over the short run's edges, exactly; all others in one counter",
        scheme: Some("pspp"),
        ..TRODDEN
    },
    BuildKind { name: "sample-off", about: "built for sampling, while sampling is off", options: "when=bursts", ..TRODDEN },
    BuildKind {
        name: "sample",
        about: "the same program, sampled by `trodden record`; the recorder's own time is not included",
        options: "when=bursts",
        build_of: Some("sample-off"),
        sampled: true,
        counts: &[],
        ..TRODDEN
    },
    BuildKind { name: "residual", about: "only paths that the short run did not take", trained: Some(TrainingRuns::Train), ..TRODDEN },
    BuildKind {
        name: "residual-suite",
        about: "only paths that neither the short run nor the suite of tests took",
        trained: Some(TrainingRuns::TrainAndSuite),
        ..TRODDEN
    },
    BuildKind {
        name: "clang-edges",
        about: "clang -fprofile-generate: edges, counted by the optimiser",
        flags: "-fprofile-generate",
        rust: RustSupport::Flags("-Cprofile-generate"),
        // Discards the profiles of instrumented programs that the build itself runs.
        build: &[("LLVM_PROFILE_FILE", "/dev/null")],
        counts: &[("LLVM_PROFILE_FILE", "%m.profraw")],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "clang-regions",
        about: "clang -fprofile-instr-generate: regions of the source, counted by the front end",
        flags: "-fprofile-instr-generate",
        build: &[("LLVM_PROFILE_FILE", "/dev/null")],
        counts: &[("LLVM_PROFILE_FILE", "%m.profraw")],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "sancov-guard",
        about: "clang -fsanitize-coverage=trace-pc-guard, with a callback that counts in a table",
        flags: "-fsanitize-coverage=trace-pc-guard",
        callbacks: Some("guard.c"),
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "sancov-counters",
        about: "clang -fsanitize-coverage=inline-8bit-counters",
        flags: "-fsanitize-coverage=inline-8bit-counters",
        callbacks: Some("counters.c"),
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "gcc",
        about: "gcc -O2, nothing counted",
        compiler: BenchCompiler::Named("gcc", "g++"),
        base: None,
        packages: &["gcc", "g++"],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "gcc-coverage",
        about: "gcc --coverage: edges; compared with gcc",
        compiler: BenchCompiler::Named("gcc", "g++"),
        flags: "--coverage",
        base: Some("gcc"),
        counts: &[("GCOV_PREFIX", "")],
        packages: &["gcc", "g++"],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "gcc-15",
        about: "gcc 15 -O2, nothing counted",
        compiler: BenchCompiler::Named("gcc-15", "g++-15"),
        base: None,
        packages: &["gcc-15", "g++-15"],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "gcc-15-paths",
        about: "gcc 15 -fpath-coverage: which prime paths were taken (not how often); compared with gcc-15",
        compiler: BenchCompiler::Named("gcc-15", "g++-15"),
        flags: "-fpath-coverage --coverage",
        base: Some("gcc-15"),
        counts: &[("GCOV_PREFIX", "")],
        packages: &["gcc-15", "g++-15"],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "afl-base",
        about: "the clang that AFL++ uses, -O2, nothing counted",
        compiler: BenchCompiler::AflClang,
        base: None,
        packages: &["afl++"],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "afl",
        about: "AFL++'s afl-clang-fast: 8-bit edge counters; compared with afl-base",
        compiler: BenchCompiler::Named("afl-clang-fast", "afl-clang-fast++"),
        base: Some("afl-base"),
        // Keeps the optimisation level that all variants share.
        build: &[("AFL_DONT_OPTIMIZE", "1"), ("AFL_QUIET", "1")],
        packages: &["afl++"],
        ..OTHER_PROFILER
    },
    BuildKind {
        name: "callgrind",
        about: "the plain build under valgrind --tool=callgrind, one short run",
        rust: RustSupport::Flags(""),
        build_of: Some("plain"),
        simulator: Some("valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/null"),
        packages: &["valgrind"],
        ..OTHER_PROFILER
    },
];
