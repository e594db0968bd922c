//! Syntax of the commands that produce programs: `trodden build`, `pgo`, `instrument`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::CountingArguments;
use trodden_console::arguments::laboratory::{GuidedChoices, VariantChoices};
use trodden_console::arguments::places::output_path;

/// `trodden build`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden build -- make -j8
  trodden build -- sh -c './configure && make'
  trodden build -- sh -c 'cmake -B out && cmake --build out'      with a new folder `out`
  trodden build --lto -- make              optimise each program as a whole
  trodden build --pgo -- make              for `trodden export profdata`
  trodden build --coverage -- make         for `trodden coverage`
  trodden build --events tsc -- make       add up the time spent on each path

CC, CXX and PATH point to the drivers, so builds may also call cc, gcc, clang, c++, g++ or clang++
by name. Rust packages are built by `cargo trodden build`.")]
pub struct BuildArguments {
    /// Optimise each program as a whole (LTO), then instrument it.
    #[arg(long)]
    pub lto: bool,
    /// Counting options.
    #[command(flatten)]
    pub parameters: CountingArguments,
    /// Build command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `trodden pgo`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden pgo --train './prog typical input' --clean 'make clean' -- make
  trodden pgo --train './prog a' --train './prog b' -o prog.fast -- \\
      sh -c 'rm -rf out && cmake -B out && cmake --build out'
  trodden pgo --train 'make check' --program src/prog --clean 'make clean' -- make
  trodden pgo --train '$TRODDEN_PROGRAM typical input' -- cargo build --release --bin prog

The build runs twice and must start from scratch each time, by itself or by --clean. Cargo builds in
its own folder, target/trodden/pgo, which is emptied before each build. To use counts of other runs,
build with `trodden build --pgo`, and pass `trodden export profdata` to clang's -fprofile-use.")]
pub struct PgoArguments {
    /// Shell command that runs $TRODDEN_PROGRAM on typical input (repeatable).
    #[arg(long, value_name = "COMMAND", required = true)]
    pub train: Vec<String>,
    /// File for the optimised program [default: NAME.fast in the current folder].
    #[arg(short, long, value_name = "FILE", value_parser = output_path())]
    pub output: Option<PathBuf>,
    /// Program to optimise, if the build produces several.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Shell command that removes the results of a build, run before each build.
    #[arg(long, value_name = "COMMAND")]
    pub clean: Option<String>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: GuidedChoices,
    /// Build command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Forms of the sets of paths that [`InstrumentArguments::interesting`] accepts.
const INTERESTING_PATHS_HELP: &str = "Count only these paths (repeatable): a profile, top:N[:PROFILE],
share:99%[:PROFILE], function:NAME, touch:FILE:LINES,
through:FILE:LINE,.., paths:FILE or diff:REVISION";

/// Forms of the sets of segments that [`InstrumentArguments::segments`] accepts.
const SEGMENTS_HELP: &str = "Count segments across calls: those of RUN, top:N[:RUN],
share:99%[:RUN], calls:RUN, or tested:RUN (all that start with
a path of RUN up to a call)";

/// `trodden instrument`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden instrument ./prog -o prog.sampled --sample
  trodden instrument ./prog --residual tests -o prog.field     count only untested paths
  trodden instrument ./prog --watch 'main: 12 .. 34' --action abort -o prog.watch

A residual variant writes its counts to the run store of the current folder, or to TRODDEN_OUTPUT.
trodden must have linked the program with this unit cache (TRODDEN_CACHE) and kept its bitcode.")]
pub struct InstrumentArguments {
    /// Program or shared library.
    pub program: PathBuf,
    /// File for the variant.
    #[arg(short, long, value_name = "FILE", value_parser = output_path())]
    pub output: PathBuf,
    /// Sets of paths to count; [`INTERESTING_PATHS_HELP`] lists the forms.
    #[arg(long, value_name = "SET", help = INTERESTING_PATHS_HELP)]
    pub interesting: Vec<String>,
    /// Set of segments to count; [`SEGMENTS_HELP`] lists the forms.
    #[arg(long, value_name = "SET", help = SEGMENTS_HELP)]
    pub segments: Option<String>,
    /// With --segments: count only this segment, as 'f:12 > g:3' (repeatable).
    #[arg(long, value_name = "SEGMENT", requires = "segments")]
    pub only: Vec<String>,
    /// With --segments: maximum number of calls in a segment.
    #[arg(long, value_name = "K", requires = "segments", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// Count only paths matching this expression (as in `trodden find`).
    #[arg(long, value_name = "EXPRESSION")]
    pub watch: Option<String>,
    /// Action when a counted path is taken [default: count; --watch: report].
    #[arg(long, value_enum, value_name = "ACTION")]
    pub action: Option<PathAction>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: VariantChoices,
    /// Counting options.
    #[command(flatten)]
    pub parameters: CountingArguments,
}

/// What a program does after an untested or a watched path; the variable TRODDEN_ON_UNTESTED overrides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathAction {
    /// Count it.
    Count,
    /// Print a line on standard error, the first time in each thread.
    Report,
    /// Print a line, then raise SIGABRT.
    Abort,
    /// Call the program's `trodden_untested(function, path, count)`.
    Callback,
}
