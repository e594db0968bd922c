//! The syntax of commands that make programs: `trodden build`, `pgo`, `instrument`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::Parameters;
use trodden_console::arguments::times::an_hour_at_most;

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
    /// Stop at what counts of edges show: one training, and nothing changed by paths.
    #[arg(long)]
    pub edges: bool,
    /// Run the second training under QEMU, and take paths from the model of a hardware path profiler with this table (as
    /// `simulate --table`; `complete`: all paths that it detects), instead of counting them.
    #[arg(long, value_name = "TABLE", conflicts_with = "edges")]
    pub hot_paths: Option<String>,
    /// Least share of the program's executed instructions that a copied path must save. Branches are weighed by paths in any case.
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

/// `trodden instrument`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden instrument ./prog -o prog.plain-edges --chords off
  trodden instrument ./prog --residual tests -o prog.field     counts what tests have not taken
  trodden instrument ./prog --watch 'main: 12 .. 34' --on-match abort -o prog.watch

What a residual variant counts goes into the run store of this folder (or above), unless it runs elsewhere or TRODDEN_OUTPUT says where to.

The program must have been linked by trodden on this machine (or with this TRODDEN_CACHE), with its bitcode kept.")]
pub struct Instrument {
    /// The program or shared library.
    pub program: PathBuf,
    /// Where to write the variant.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Count only these paths, all others together: a profile, `top:N[:PROFILE]`, `share:99%[:PROFILE]`,
    /// `function:NAME`, `touch:FILE:LINES`, `through:FILE:LINE,..`, `paths:FILE`, or `diff:REVISION`. May be given
    /// several times.
    #[arg(long, value_name = "SET")]
    pub interesting: Vec<String>,
    /// Count interprocedural segments in the place of paths, without a trace: all that a run took (one recorded by `record
    /// --whole-program`, or by such a program), `top:N[:RUN]` or `share:99%[:RUN]` of them, or what follows the calls to
    /// which the paths of an ordinary run come, `calls:RUN`. `trodden segments` shows them.
    #[arg(long, value_name = "SET", group = "segments_to_count")]
    pub segments: Option<String>,
    /// With --segments RUN: only this segment, as in 'main:12 > parse:3'. May be given several times.
    #[arg(long, value_name = "SEGMENT", requires = "segments")]
    pub only: Vec<String>,
    /// Count every segment that begins with a tested path up to a call; `trodden segments --untested` shows those that this run of the
    /// tests did not take.
    #[arg(long, value_name = "RUN", group = "segments_to_count")]
    pub tested_segments: Option<String>,
    /// With --segments or --tested-segments: calls that a segment runs through at most.
    #[arg(long, value_name = "K", requires = "segments_to_count", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// With --segments or --tested-segments: by how many per cent the code of a unit may grow so that callees need not read their
    /// contexts: they are inlined where segments are executed most for their size, or copied for several calls; 0: none is.
    #[arg(long, value_name = "PERCENT", requires = "segments_to_count", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub growth: u32,
    /// How many seconds `--scheme ppp-optimal` may search for the numbers of one function.
    #[arg(long, value_name = "SECONDS", requires = "interesting", value_parser = an_hour_at_most)]
    pub time_limit: Option<u64>,
    /// Act at the end of each path that matches this expression (see `trodden find`), and count these paths alone; all
    /// others cost next to nothing. `call` cannot be watched.
    #[arg(long, value_name = "EXPRESSION")]
    pub watch: Option<String>,
    /// With --watch: what the program does when it takes such a path, besides counting it; the default is `report`. When the program
    /// starts, the variable TRODDEN_ON_UNTESTED overrides it.
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
    /// A line on standard error, the first time in each thread.
    Report,
    /// A line, then SIGABRT.
    Abort,
    /// Call the program's `trodden_untested(function, path, count)`.
    Callback,
}
