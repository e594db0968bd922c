//! The syntax of commands that make programs: `trodden build`, `pgo`, `instrument`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::Parameters;
use trodden_console::arguments::laboratory::{GuidedChoices, VariantChoices};
use trodden_console::arguments::places::place;

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
    /// Optimise each program as a whole, then count its paths.
    #[arg(long)]
    pub lto: bool,
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
  trodden pgo --train 'make check' --program src/prog --clean 'make clean' -- make
  trodden pgo --train '$TRODDEN_PROGRAM typical input' -- cargo build --release --bin prog

The build runs twice, so it must start from scratch each time: by --clean, or by itself. Cargo builds in a folder of its own, \
target/trodden/pgo, which is emptied
before. What builds and trainings print is theirs.")]
pub struct Pgo {
    /// Shell command that runs the program as it is used, by `$TRODDEN_PROGRAM` or its own name (repeatable).
    #[arg(long, value_name = "COMMAND", required = true)]
    pub train: Vec<String>,
    /// Where the program goes (default: its name with `.fast`, in the current folder).
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub output: Option<PathBuf>,
    /// The program to make faster, if the build makes several.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Shell command that runs before each build, to remove what the previous one made.
    #[arg(long, value_name = "COMMAND")]
    pub clean: Option<String>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: GuidedChoices,
    /// The build command.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `trodden instrument`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden instrument ./prog -o prog.sampled --sample
  trodden instrument ./prog --residual tests -o prog.field     counts what tests have not taken
  trodden instrument ./prog --watch 'main: 12 .. 34' --action abort -o prog.watch

What a residual variant counts goes into the run store of this folder (or above), unless it runs elsewhere or TRODDEN_OUTPUT says where to.

The program must have been linked by trodden on this machine (or with this TRODDEN_CACHE), with its bitcode kept.")]
pub struct Instrument {
    /// The program or shared library.
    pub program: PathBuf,
    /// Where to write the variant.
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub output: PathBuf,
    /// Count only these paths: a profile, top:N[:PROFILE], share:99%[:PROFILE], function:NAME, touch:FILE:LINES,
    /// through:FILE:LINE,.., paths:FILE or diff:REVISION (repeatable).
    #[arg(long, value_name = "SET")]
    pub interesting: Vec<String>,
    /// Count segments across calls instead of paths: those of a run, top:N[:RUN], share:99%[:RUN] or calls:RUN; or tested:RUN, every
    /// segment that begins with a path of this run of the tests up to a call.
    #[arg(long, value_name = "SET")]
    pub segments: Option<String>,
    /// With --segments RUN: only this segment, such as 'main:12 > parse:3' (repeatable).
    #[arg(long, value_name = "SEGMENT", requires = "segments")]
    pub only: Vec<String>,
    /// With --segments: maximum number of calls in a segment.
    #[arg(long, value_name = "K", requires = "segments", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// Count only paths that match this expression (see `trodden find`; without `call`), and act at the end of each.
    #[arg(long, value_name = "EXPRESSION")]
    pub watch: Option<String>,
    /// With --watch (default: report) or --residual (default: count): what to do at such a path. TRODDEN_ON_UNTESTED overrides it.
    #[arg(long, value_enum, value_name = "ACTION")]
    pub action: Option<OnUntested>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: VariantChoices,
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
