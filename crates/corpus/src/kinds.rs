//! The table of ways to build a program of the corpus, one entry a way.

use crate::input::Input;

/// An entry of the table.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it is, for tables.
    pub about: &'static str,
    /// Who compiles.
    pub compiler: BenchCompiler,
    /// Flags of C and C++ compilations and of links, beside those of all variants.
    pub flags: &'static str,
    /// Settings that the variant stands for.
    pub options: &'static str,
    /// What it takes of a profile of earlier runs.
    pub trained: Option<Trained>,
    /// It is trodden's build rebuilt to count the paths of the short run by this scheme.
    pub scheme: Option<&'static str>,
    /// The variant that it is compared with.
    pub base: Option<&'static str>,
    /// How Rust programs are built.
    pub rust: Rust,
    /// A source file with functions that the instrumented code calls.
    pub callbacks: Option<&'static str>,
    /// Variables for builds.
    pub build: &'static [(&'static str, &'static str)],
    /// Variables for runs: a file in the folder of a run's counts, or that folder.
    pub counts: &'static [(&'static str, &'static str)],
    /// The variant whose build it runs, if it has none of its own.
    pub build_of: Option<&'static str>,
    /// What runs it, if the machine does not: once, on the short input.
    pub under: Option<&'static str>,
    /// A recorder samples its runs.
    pub recorded: bool,
    /// Debian packages that bring what it takes.
    pub packages: &'static [&'static str],
}

/// What a build takes of the counts of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trained {
    /// Which paths were.
    Known,
    /// Which paths were in that run or in the program's suite.
    KnownWithSuite,
}

impl Trained {
    /// The name of the export that has it, and of the setting for its file.
    pub fn name(self) -> &'static str {
        match self {
            Trained::Known | Trained::KnownWithSuite => "known",
        }
    }

    /// Of which runs the counts are, as the name of their profile.
    pub fn runs(self) -> &'static str {
        match self {
            Trained::Known => Input::Train.name(),
            Trained::KnownWithSuite => "tests",
        }
    }
}

/// Who compiles C and C++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchCompiler {
    /// clang.
    Clang,
    /// trodden's drivers.
    Trodden,
    /// The C and the C++ compiler of these names.
    Named(&'static str, &'static str),
    /// The clang that AFL++ was built with.
    AflsClang,
}

/// How Rust programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rust {
    /// rustc with these flags.
    Flags(&'static str),
    /// `cargo trodden`.
    Trodden,
    /// Not at all, for this reason.
    No(&'static str),
}

/// Why a rival is not built for Rust.
const NOT_RUST: &str = "there is none for Rust programs";

const PLAIN: Kind = Kind {
    name: "plain",
    about: "clang -O2 or rustc, nothing counted",
    compiler: BenchCompiler::Clang,
    flags: "",
    options: "",
    trained: None,
    scheme: None,
    base: None,
    rust: Rust::Flags(""),
    callbacks: None,
    build: &[],
    counts: &[],
    build_of: None,
    under: None,
    recorded: false,
    packages: &[],
};

/// A rival: nothing for Rust, compared with the plain build by clang.
const RIVAL: Kind = Kind { base: Some("plain"), rust: Rust::No(NOT_RUST), ..PLAIN };

const TRODDEN: Kind = Kind {
    name: "trodden",
    about: "trodden: every path, exactly",
    compiler: BenchCompiler::Trodden,
    rust: Rust::Trodden,
    counts: &[("TRODDEN_OUTPUT", "%m.raw")],
    ..RIVAL
};

/// All ways.
pub static KINDS: &[Kind] = &[
    PLAIN,
    TRODDEN,
    Kind {
        name: "thesis",
        about: "arrays up to 2,500 paths, else tables of 700 slots (Vaswani)",
        options: "array-paths=2500 table-slots=700",
        ..TRODDEN
    },
    Kind { name: "table", about: "tables of 262,144 slots instead of cutting paths", options: "table-slots=262144", ..TRODDEN },
    Kind { name: "atomic", about: "one region for all threads, atomic increments", options: "threads=atomic", ..TRODDEN },
    Kind { name: "ppp", about: "the short run's paths, preferentially numbered; others together", scheme: Some("ppp"), ..TRODDEN },
    Kind {
        name: "known-table",
        about: "the short run's paths, looked up in tables; others together",
        scheme: Some("known-table"),
        ..TRODDEN
    },
    Kind { name: "pspp", about: "paths over the short run's edges, precisely; others together", scheme: Some("pspp"), ..TRODDEN },
    Kind { name: "sample-off", about: "built for sampling, while sampling is off", options: "when=bursts", ..TRODDEN },
    Kind {
        name: "sample",
        about: "the same program, sampled by `trodden record`; the recorder's own time is not in it",
        options: "when=bursts",
        build_of: Some("sample-off"),
        recorded: true,
        counts: &[],
        ..TRODDEN
    },
    Kind { name: "residual", about: "only paths that the short run did not take", trained: Some(Trained::Known), ..TRODDEN },
    Kind {
        name: "residual-suite",
        about: "only paths that neither the short run nor the suite of tests took",
        trained: Some(Trained::KnownWithSuite),
        ..TRODDEN
    },
    Kind {
        name: "clang-edges",
        about: "clang -fprofile-generate: edges, counted by the optimiser",
        flags: "-fprofile-generate",
        rust: Rust::Flags("-Cprofile-generate"),
        // Programs that a build runs are not of interest.
        build: &[("LLVM_PROFILE_FILE", "/dev/null")],
        counts: &[("LLVM_PROFILE_FILE", "%m.profraw")],
        ..RIVAL
    },
    Kind {
        name: "clang-regions",
        about: "clang -fprofile-instr-generate: regions of the source, counted by the front end",
        flags: "-fprofile-instr-generate",
        build: &[("LLVM_PROFILE_FILE", "/dev/null")],
        counts: &[("LLVM_PROFILE_FILE", "%m.profraw")],
        ..RIVAL
    },
    Kind {
        name: "sancov-guard",
        about: "clang -fsanitize-coverage=trace-pc-guard, each call counted in a table",
        flags: "-fsanitize-coverage=trace-pc-guard",
        callbacks: Some("guard.c"),
        ..RIVAL
    },
    Kind {
        name: "sancov-counters",
        about: "clang -fsanitize-coverage=inline-8bit-counters",
        flags: "-fsanitize-coverage=inline-8bit-counters",
        callbacks: Some("counters.c"),
        ..RIVAL
    },
    Kind {
        name: "gcc",
        about: "gcc -O2, nothing counted",
        compiler: BenchCompiler::Named("gcc", "g++"),
        base: None,
        packages: &["gcc", "g++"],
        ..RIVAL
    },
    Kind {
        name: "gcc-coverage",
        about: "gcc --coverage: edges; compared with gcc",
        compiler: BenchCompiler::Named("gcc", "g++"),
        flags: "--coverage",
        base: Some("gcc"),
        counts: &[("GCOV_PREFIX", "")],
        packages: &["gcc", "g++"],
        ..RIVAL
    },
    Kind {
        name: "gcc-15",
        about: "gcc 15 -O2, nothing counted",
        compiler: BenchCompiler::Named("gcc-15", "g++-15"),
        base: None,
        packages: &["gcc-15", "g++-15"],
        ..RIVAL
    },
    Kind {
        name: "gcc-15-paths",
        about: "gcc 15 -fpath-coverage: which prime paths were taken (not how often); compared with gcc-15",
        compiler: BenchCompiler::Named("gcc-15", "g++-15"),
        flags: "-fpath-coverage --coverage",
        base: Some("gcc-15"),
        counts: &[("GCOV_PREFIX", "")],
        packages: &["gcc-15", "g++-15"],
        ..RIVAL
    },
    Kind {
        name: "afl-base",
        about: "the clang that AFL++ takes, -O2, nothing counted",
        compiler: BenchCompiler::AflsClang,
        base: None,
        packages: &["afl++"],
        ..RIVAL
    },
    Kind {
        name: "afl",
        about: "AFL++'s afl-clang-fast: edges, 8 bits; compared with afl-base",
        compiler: BenchCompiler::Named("afl-clang-fast", "afl-clang-fast++"),
        base: Some("afl-base"),
        // The same optimisation as all others, and silence.
        build: &[("AFL_DONT_OPTIMIZE", "1"), ("AFL_QUIET", "1")],
        packages: &["afl++"],
        ..RIVAL
    },
    Kind {
        name: "callgrind",
        about: "the plain build under valgrind --tool=callgrind, one short run",
        rust: Rust::Flags(""),
        build_of: Some("plain"),
        under: Some("valgrind --quiet --tool=callgrind --callgrind-out-file=/dev/null"),
        packages: &["valgrind"],
        ..RIVAL
    },
];
