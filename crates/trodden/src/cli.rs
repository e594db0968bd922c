//! The syntax of the command line; what commands do is elsewhere. Man pages, completions and `--help` all come from here.

mod branches;
mod copies;
mod coverage;
mod extract;
mod field;
mod find;
mod graph;
mod isolate;
mod numbering;
mod overview;
mod parameters;
mod partition;
mod residual;
mod segments;
mod sequences;
mod showing;
mod simulate;
mod stream;
mod suite;
mod times;
mod trace;
mod waits;
mod witnesses;

pub use branches::{BranchKind, Branches};
pub use copies::{Copies, EngineKind};
pub use coverage::{
    Coverage, CoverageDiff, CoverageExport, CoverageFormat, CoverageLeast, CoverageReport, CoverageShow, Covered, CoveredFiles,
};
pub use extract::{Extract, GraphFormat};
pub use field::{Aggregate, Field, Pack};
pub use find::Find;
pub use graph::Graph;
pub use isolate::{Isolate, SuspectScore};
pub use numbering::{Interesting, ModelScheme, NumberJob};
pub use overview::command as command_line;
pub use parameters::Parameters;
pub use partition::{CopyStrategy, HitsCounted, Plan};
pub use residual::{Residual, ResidualFormat, ResidualOrder};
pub use segments::{SegmentFormat, Segments};
pub use sequences::{
    StreamAnalysis, StreamDiff, StreamFind, StreamGrammar, StreamHot, StreamInput, StreamIterations, StreamMethod, StreamPhases,
    StreamSegments,
};
pub use showing::{Advise, Annotate, Export, FindingKind, Format, Report, Shown};
pub use simulate::{EventKind, ModelKind, PathKind, ProfileKind, Simulate, SimulateAction, SourceFormat, StackOverflow, Sweep};
pub use stream::{Last, RecordStream, Stream, StreamCollect, StreamShow, StreamStatistics};
pub use suite::{Order, Redundant, Suite, SuiteCost, SuiteCoverage, SuiteFunctions, SuiteRun, SuiteWorth};
pub use trace::{
    CollectorKind, RepeatPart, Trace, TraceDiff, TraceEngine, TraceExport, TraceFind, TraceFormat, TraceProfile, TraceRecord, TraceShow,
    TraceStrategy, WeightsFrom,
};
pub use waits::{DistanceRule, Waits, WaitsRecord, WaitsReport};
pub use witnesses::{Condition, Reconstruct, Witnesses};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use times::{an_hour_at_most, duration};

/// The run that is meant when none is named.
pub const LAST: &str = "last";

/// Counts every acyclic path through every function of a native program, and shows which it trod.
#[derive(Debug, Parser)]
#[command(name = "trodden", version, about = "Shows which execution paths native programs really \
    take", max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// When to colour output.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  CC=\"trodden cc\" CXX=\"trodden c++\" ./configure && make    build a program so that its paths are counted
  trodden build -- make                                    the same for a build that needs no configure
  cargo trodden build --release                            the same for a Rust program
  trodden record -- ./prog args                            run it
  trodden report                                           show the paths it trod
  trodden doctor                                           check that everything needed is there

Exit status: of a recorded program its own (128+N if signal N ended it); else 0 if all is well, 1 if a threshold was exceeded or a
check failed, 2 if trodden itself failed.";

const DRIVER_HELP: &str = "\
Environment:
  TRODDEN_STORE       where units and link recipes are kept; default $XDG_DATA_HOME/trodden or ~/.local/share/trodden
  TRODDEN_INSTRUMENT  how drivers count: settings such as max-paths=1000 chords=off keep=map when=bursts events=tsc
  TRODDEN_LTO=1       optimise programs as a whole (as --trodden-lto)
  TRODDEN_QUIET=1     no notes on standard error
  TRODDEN_PLUGIN      the plugin's file, if it is neither beside trodden nor in ../lib/trodden
  TRODDEN_LLVM        the folder of an LLVM 22 that is not installed by packages

With ccache, set CCACHE_EXTRAFILES to the plugin's file (`trodden doctor` names it), and another CCACHE_DIR (or `ccache -C`) for other \
words in
TRODDEN_INSTRUMENT: ccache sees neither.";

/// Output in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile or link C: clang, with paths counted. All arguments are clang's.
    #[command(disable_help_flag = true, after_help = DRIVER_HELP)]
    Cc {
        /// Arguments of clang; `--trodden-lto` asks for link-time optimisation, `--trodden-sample` for counting in
        /// bursts, `--trodden-addresses` for addresses of blocks instead of counters, `--trodden-pgo` for an edge
        /// profile as well, `--trodden-coverage` (with conditions: `--trodden-coverage=mcdc`) for coverage as well,
        /// `--trodden-events=tsc` for the time of each path, `--trodden-tables` for tables where paths would be cut,
        /// `--trodden-threads=atomic` for counters that threads share.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Compile or link C++: clang++, with paths counted. All arguments are clang++'s.
    #[command(name = "c++", disable_help_flag = true, after_help = DRIVER_HELP)]
    Cxx {
        /// Arguments of clang++; `--trodden-lto` asks for link-time optimisation, `--trodden-sample` for counting in
        /// bursts, `--trodden-addresses` for addresses of blocks instead of counters, `--trodden-pgo` for an edge
        /// profile as well, `--trodden-coverage` (with conditions: `--trodden-coverage=mcdc`) for coverage as well,
        /// `--trodden-events=tsc` for the time of each path, `--trodden-tables` for tables where paths would be cut,
        /// `--trodden-threads=atomic` for counters that threads share.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a build command with the drivers as its C and C++ compilers.
    Build(Build),
    /// Run an instrumented program and store the profile.
    Record(Box<Record>),
    /// Count programs of the sample tier that run already, in bursts.
    Sample(Sample),
    /// Show what each thread of a program built with --stream did before the end.
    Last(Last),
    /// The sequence of paths and calls of each thread of a run: what it holds, from any place on.
    #[command(subcommand)]
    Stream(Stream),
    /// Make a profile of raw files that a program wrote by TRODDEN_OUTPUT, without `trodden record`.
    Collect(Collect),
    /// Make a program faster by what its own runs tell: builds, trains, builds again.
    Pgo(Pgo),
    /// Find the hot paths of an unmodified program with a model of a hardware path profiler.
    Simulate(Box<Simulate>),
    /// Make a profile of branches that hardware recorded.
    Import(Import),
    /// Show the hottest paths of a recorded run.
    Report(Report),
    /// Show the source of a function with a path laid over it.
    Annotate(Annotate),
    /// Say what the paths of a run suggest to change in the program.
    Advise(Advise),
    /// Find the paths that run through given lines, blocks and inlined functions.
    Find(Find),
    /// Show a caller's path and the callee's path behind it, counted together: interprocedural segments.
    Segments(Segments),
    /// Rank the paths by which failing runs differ from passing ones.
    Isolate(Isolate),
    /// Show which paths the field takes that no test has taken.
    Residual(Residual),
    /// Reports of untested paths from many machines: making them, adding them up.
    #[command(subcommand)]
    Field(Field),
    /// Write a profile in a form that other tools read.
    Export(Export),
    /// Coverage of lines, regions, branches, functions and paths, of a program built with --coverage.
    #[command(subcommand)]
    Coverage(Coverage),
    /// Run test suites; find redundant tests; order tests.
    #[command(subcommand)]
    Suite(Suite),
    /// Which code on which process makes others wait: recording, reporting.
    #[command(subcommand)]
    Waits(Waits),
    /// List recorded runs, remove them, put them into suites.
    Runs(Runs),
    /// Add profiles up.
    Merge(Merge),
    /// Compare two profiles: which paths appeared, vanished, or changed their share.
    Diff(Diff),
    /// Make another variant of an instrumented program, without its sources.
    Instrument(Instrument),
    /// Show the hottest loops' machine code without and with counting, side by side.
    Loops(Loops),
    /// Say what is known of an instrumented program, shared library, or profile.
    Info(Info),
    /// Number the paths of a graph from a file; show a function's graph.
    #[command(subcommand)]
    Graph(Graph),
    /// Divide the counting of a program among copies of it, with the cost of each, without running them.
    Plan(Plan),
    /// Record the exact trace of an unmodified program; show, search and compare traces.
    #[command(subcommand)]
    Trace(Trace),
    /// Say how large the unit store is, and make it smaller.
    Store(Store),
    /// Check that everything trodden needs is there; or that a program does the same each time it runs.
    #[command(after_help = "\
Examples:
  trodden doctor
  trodden doctor --runs 3 -- ./prog args     does it do the same each time? (else copies cannot share its counting)")]
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// How often the program runs.
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=100), requires = "command")]
        runs: u32,
        /// An instrumented program and its arguments.
        #[arg(trailing_var_arg = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Run one copy of a job of `trodden record --copies`.
    #[command(hide = true)]
    Copy {
        /// The job's folder.
        folder: PathBuf,
        /// The copy's number.
        copy: usize,
    },
    /// Write links named trodden-cc, trodden-c++ and cargo-trodden into a folder.
    Drivers {
        /// The folder; by default where trodden is.
        folder: Option<PathBuf>,
    },
    /// Print a script that completes trodden's arguments in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder.
    Man {
        /// The folder, made if it is not there.
        folder: PathBuf,
    },
}

/// `trodden build`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden build -- make -j8
  trodden build -- sh -c './configure && make'
  trodden build --lto -- cmake --build out
  trodden build --pgo -- make              collects for `trodden export profdata`
  trodden build --coverage -- make         counts what `trodden coverage` shows as well
  trodden build --events tsc -- make       sums up the time of each path

CC and CXX name the drivers; builds that call cc, gcc, clang, c++, g++ or clang++ by name reach them by the search path.")]
pub struct Build {
    /// Optimise each program as a whole, and count its paths then.
    #[arg(long)]
    pub lto: bool,
    /// Set CC and CXX only; leave the search path alone.
    #[arg(long)]
    pub only_variables: bool,
    /// How to count.
    #[command(flatten)]
    pub parameters: Parameters,
    /// The build command.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `trodden pgo`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden pgo --train './prog typical input' --clean 'make clean' -- make
  trodden pgo --train './prog a' --train './prog b' -o prog.fast -- sh -c 'rm -rf out && cmake -B out && cmake --build out'
  trodden pgo --edges --train 'make check' --program src/prog --clean 'make clean' -- make
  trodden pgo --train '$TRODDEN_PROGRAM typical input' -- cargo build --release --bin prog

The build runs twice, so it must start from scratch each time: by --clean, or by itself. Cargo builds in a folder of its own, \
target/trodden/pgo, which is emptied
before. What builds and trainings print is theirs.")]
pub struct Pgo {
    /// A command of the shell that runs the program as it is used; may be given several times. `$TRODDEN_PROGRAM` is
    /// the program's path in it.
    #[arg(long, value_name = "COMMAND", required = true)]
    pub train: Vec<String>,
    /// Where the program goes; default: its name with `.fast`, in the current folder.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program that is meant, if the build makes several.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// A command of the shell that runs before each build and removes what the one before made.
    #[arg(long, value_name = "COMMAND")]
    pub clean: Option<String>,
    /// Stop at what counts of edges tell: one training, and nothing changed by paths.
    #[arg(long)]
    pub edges: bool,
    /// Run the second training under QEMU, and take paths from the model of a hardware path profiler with this table (as
    /// `simulate --table`; `complete`: all paths that it detects), instead of counting them.
    #[arg(long, value_name = "TABLE", conflicts_with = "edges")]
    pub hot_paths: Option<String>,
    /// Least share of the program's executed instructions that a copied way must save. Branches are weighed by the paths taken in any case.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.05)]
    pub min_share: f64,
    /// Write the edge profile, in LLVM's form, to this file as well.
    #[arg(long, value_name = "FILE")]
    pub keep_profile: Option<PathBuf>,
    /// Set CC and CXX only; leave the search path alone.
    #[arg(long)]
    pub only_variables: bool,
    /// The build command.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Where the profile of a run goes.
#[derive(Debug, Args)]
pub struct Destination {
    /// Count the run to a suite of runs.
    #[arg(long, value_name = "SUITE")]
    pub suite: Option<String>,
    /// Write the profile to this file as well.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Do not enter the run in the run store (needs --output).
    #[arg(long, requires = "output")]
    pub no_store: bool,
}

/// `trodden record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden record -- ./prog args
  trodden record --suite nightly -- make check             a run for each program it runs
  trodden record -o one.trodden --no-store -- ./prog
  trodden record --burst 1ms --every 100ms -- ./sampled-prog
  trodden record --branches -- ./prog                      built with --addresses
  trodden record --copies 4 --weights last -- ./prog args  four copies of the program count a part each

Programs built with --sample are counted in bursts (see `trodden sample`). All processes of the command are counted, those it starts \
too. The exit status is the command's; 128+N if signal N ended it.

With --suite, each program that the command runs is a run of its own, with its own command, status and duration; a script names its \
tests by the variable TRODDEN_TEST. That follows
the processes by ptrace, as a debugger does.")]
pub struct Record {
    /// Where its profile goes.
    #[command(flatten)]
    pub destination: Destination,
    /// With --suite: make one run of all processes, without following them. So it is also with --sample, --branches and --no-store.
    #[arg(long, requires = "suite")]
    pub together: bool,
    /// Only in bursts: fail if nothing that runs was built with --sample.
    #[arg(long)]
    pub sample: bool,
    /// When to count programs of the sample tier.
    #[command(flatten)]
    pub bursts: Bursts,
    /// Branches instead of counts.
    #[command(flatten)]
    pub branches: Branches,
    /// Streams besides counts.
    #[command(flatten)]
    pub stream: RecordStream,
    /// Several copies that share the counting.
    #[command(flatten)]
    pub copies: Copies,
    /// The command to run.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// When a sampled program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct Bursts {
    /// How long a burst is: 100us, 1ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = duration)]
    pub burst: Duration,
    /// From one burst to the next, on average.
    #[arg(long, value_name = "TIME", default_value = "1250us", value_parser = duration)]
    pub every: Duration,
}

/// `trodden sample`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  TRODDEN_OUTPUT=/var/tmp/counts/%m.raw ./server &     a program built with --sample: costs next to nothing
  trodden sample /var/tmp/counts --for 30s             half a minute of it, as a profile
  trodden sample 4711 --burst 1ms --every 100ms        the process of that number, until Ctrl-C

Switches the counting of programs on and off that run already; they are neither stopped nor changed. The profile has what was counted \
while this
command ran. Such programs must have been started with TRODDEN_OUTPUT.")]
pub struct Sample {
    /// Raw files, folders of them, or numbers of processes.
    #[arg(required = true, value_name = "RAW|FOLDER|PID")]
    pub subjects: Vec<PathBuf>,
    /// How long; by default until Ctrl-C, or until all processes given by number have ended.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// When to count.
    #[command(flatten)]
    pub bursts: Bursts,
    /// Where the profile goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// `trodden runs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden runs
  trodden runs suite nightly 3 4 last
  trodden runs remove 7
  trodden runs clean")]
pub struct Runs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What to do; by default the runs are listed.
    #[command(subcommand)]
    pub command: Option<RunsCommand>,
}

/// What to do with runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Remove runs and their profiles.
    Remove {
        /// The runs.
        #[arg(required = true)]
        runs: Vec<String>,
    },
    /// Remove what recordings left that were killed: raw counts, and profiles half written.
    Clean,
    /// Put runs into a suite.
    Suite {
        /// The suite.
        suite: String,
        /// The runs.
        #[arg(required = true)]
        runs: Vec<String>,
    },
}

/// `trodden merge`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden merge -o all.trodden a.trodden b.trodden
  trodden merge -o nightly.trodden nightly")]
pub struct Merge {
    /// The result.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Keep different builds of one program side by side instead of leaving the later ones out.
    #[arg(long)]
    pub separate_builds: bool,
    /// Profiles: files, runs, suites.
    #[arg(required = true)]
    pub profiles: Vec<String>,
}

/// `trodden diff`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden diff last~1 last
  trodden diff --fail --min-change 5 good.trodden now.trodden")]
pub struct Diff {
    /// The profile before: a file, a run, a suite.
    pub before: String,
    /// The profile after.
    pub after: String,
    /// Compare functions that are the same in two builds.
    #[arg(long)]
    pub across_builds: bool,
    /// Only paths whose share of their function changed by this many points of a per cent.
    #[arg(long, value_name = "POINTS", default_value_t = 0.0)]
    pub min_change: f64,
    /// Only paths that one side executed at least this often.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub min_count: u64,
    /// Also tell paths whose count changed, but not their share.
    #[arg(long)]
    pub counts: bool,
    /// At most this many paths of each function; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Exit with status 1 if there is a difference.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden instrument`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden instrument ./prog -o prog.plain-edges --chords off
  trodden instrument ./prog --residual tests -o prog.field     counts what tests have not taken
  trodden instrument ./prog --watch 'main: 12 .. 34' --on-match abort -o prog.watch

What a residual variant counts goes into the run store of this folder (or above), unless it runs elsewhere or TRODDEN_OUTPUT says where to.

The program must have been linked by trodden on this machine (or with this TRODDEN_STORE), with its bitcode kept.")]
pub struct Instrument {
    /// The program or shared library.
    pub program: PathBuf,
    /// Where to write the variant.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Count only these paths, all others together: a profile, `top:N[:PROFILE]`, `share:99%[:PROFILE]`,
    /// `function:NAME`, `touch:FILE:LINES`, `through:FILE:LINE,..`, `paths:FILE`, or `diff:REVISION`. May be given
    /// several times.
    #[arg(long, value_name = "SET", conflicts_with_all = ["addresses", "pgo", "sample", "events", "residual", "table_slots"])]
    pub interesting: Vec<String>,
    /// Count interprocedural segments in the place of paths, without a trace: all that a run took (one recorded by `record
    /// --whole-program`, or by such a program), `top:N[:RUN]` or `share:99%[:RUN]` of them, or what follows the calls to
    /// which the paths of an ordinary run come, `calls:RUN`. `trodden segments` shows them.
    #[arg(long, value_name = "SET", conflicts_with_all = ["interesting", "watch", "tested_segments"])]
    pub segments: Option<String>,
    /// With --segments RUN: only this segment, as in 'main:12 > parse:3'. May be given several times.
    #[arg(long, value_name = "SEGMENT", requires = "segments")]
    pub only: Vec<String>,
    /// Count every segment that begins with a tested path up to a call; `trodden segments --untested` shows those that this run of the
    /// tests did not take.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["interesting", "watch"])]
    pub tested_segments: Option<String>,
    /// Calls that a segment runs through at most.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// How many seconds `--scheme ppp-optimal` may search for the numbers of one function.
    #[arg(long, value_name = "SECONDS", requires = "interesting", value_parser = an_hour_at_most)]
    pub time_limit: Option<u64>,
    /// Act at the end of each path that matches this expression (see `trodden find`), and count these paths alone; all
    /// others cost next to nothing. `call` cannot be watched.
    #[arg(long, value_name = "EXPRESSION")]
    pub watch: Option<String>,
    /// With --watch: what the program does when it takes such a path, besides counting it; `report` if nothing is said.
    /// TRODDEN_ON_UNTESTED goes before it.
    #[arg(long, value_enum, requires = "watch")]
    pub on_match: Option<OnUntested>,
    /// With --residual: what the program does when it takes an untested path, besides counting it, unless
    /// TRODDEN_ON_UNTESTED says otherwise.
    #[arg(long, value_enum, requires = "residual")]
    pub on_untested: Option<OnUntested>,
    /// How to count.
    #[command(flatten)]
    pub parameters: Parameters,
}

/// What a program does at an untested path, or at one that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnUntested {
    /// Count it, and nothing else.
    Count,
    /// A line on standard error, the first time.
    Report,
    /// A line, then SIGABRT.
    Abort,
    /// Call the program's `trodden_untested(function, path, count)`.
    Callback,
}

/// `trodden loops`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden loops ./prog                          of its last recorded run
  trodden loops ./prog last~1 --top 1
  trodden loops ./prog --function parse --max-paths 64

The program's bitcode must have been kept. What counting adds is marked by +; LLVM's `opt` must be installed (package llvm-22).
A build with --residual is refused: it counts no known paths, so its iterations are not known.")]
pub struct Loops {
    /// The program or shared library.
    pub program: PathBuf,
    /// A profile of it: a file, or a run (12, last, last~1), or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// At most this many loops; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub top: usize,
    /// At most this many blocks of each, those that execute most.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub blocks: usize,
    /// Only loops of this function.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// How to count; by default as the program does.
    #[command(flatten)]
    pub parameters: Parameters,
}

/// `trodden info`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden info ./prog
  trodden info --json one.trodden")]
pub struct Info {
    /// An instrumented program, a shared library, or a stored profile.
    pub file: PathBuf,
    /// List every unit and every function that is not instrumented.
    #[arg(long)]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden collect`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  TRODDEN_OUTPUT=/var/tmp/counts/%m.raw ./server
  trodden collect /var/tmp/counts")]
pub struct Collect {
    /// Where the profile goes.
    #[command(flatten)]
    pub destination: Destination,
    /// Raw files, or folders of them.
    #[arg(required = true, value_name = "RAW")]
    pub files: Vec<PathBuf>,
}

/// `trodden import`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden build --addresses -- make
  perf record -b -e branches:u -o branches.data -- ./prog
  perf script -i branches.data -F pid,tid,ip,brstack --show-mmap-events | trodden import --perf - --program ./prog
  perf script -i trace.data --itrace=b -F pid,tid,ip,addr --show-mmap-events --show-task-events | trodden import --perf - --program ./prog

Counts of branch stacks are estimates, and reports say so.")]
pub struct Import {
    /// What `perf script` printed; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub perf: PathBuf,
    /// An executable or shared library, built with `--addresses`, as it was when it ran. May be given several times.
    #[arg(long, value_name = "FILE", required = true)]
    pub program: Vec<PathBuf>,
    /// Where the profile goes.
    #[command(flatten)]
    pub destination: Destination,
}

/// `trodden store`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden store
  trodden store --prune 90

Programs carry the maps and the bitcode of their units; the store has them for stripped programs, and what `trodden instrument` links \
again.")]
pub struct Store {
    /// Remove what was neither read nor written for so many days.
    #[arg(long, value_name = "DAYS")]
    pub prune: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_begins_at_its_first_word_or_behind_two_dashes() {
        for words in [vec!["-o", "x", "./prog", "-o", "y"], vec!["-o", "x", "--", "./prog", "-o", "y"]] {
            let Command::Record(record) = Cli::try_parse_from(["trodden", "record"].into_iter().chain(words)).unwrap().command else {
                panic!("another command");
            };
            assert_eq!(record.destination.output, Some(PathBuf::from("x")));
            assert_eq!(record.command, ["./prog", "-o", "y"]);
        }
        assert!(Cli::try_parse_from(["trodden", "record", "--no-such-option", "./prog"]).is_err());
        assert!(Cli::try_parse_from(["trodden", "record"]).is_err());
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
