//! Command-line syntax of `trodden`. `--help`, shell completions and manual pages are generated from these definitions.

mod branches;
mod building;
mod copies;
mod coverage;
mod find;
mod fleet;
mod isolate;
mod laboratory;
mod overview;
mod recording;
mod runs;
mod segments;
mod show;
mod showing;
mod simulate;
mod suite;
mod trace;
mod untested;
mod waits;

pub use branches::PerfBranchSelection;
pub use building::{BuildArguments, InstrumentArguments, PathAction, PgoArguments};
pub use copies::{CopyDivision, RecordCopiesArguments};
pub use coverage::{
    CoverageCommand, CoverageFileSelection, CoverageInputArguments, CoverageMeasure, CoverageReportArguments, CoverageShowArguments,
    CoverageThreshold,
};
pub use find::FindArguments;
pub use fleet::{FleetAggregateArguments, FleetCommand, FleetCopiesArguments, FleetPackArguments};
pub use isolate::IsolateArguments;
pub use overview::command_line;
pub use recording::{BurstScheduleArguments, ImportArguments, RecordArguments};
pub use runs::{CacheArguments, DiffArguments, InfoArguments, MergeArguments, RunsArguments, RunsCommand};
pub use segments::SegmentsArguments;
pub use show::ShowArguments;
pub use showing::{AdviseArguments, AnnotateArguments, ExportArguments, ExportFormat, ReportArguments};
pub use simulate::SimulateArguments;
pub use suite::{SuiteCommand, SuiteFunctionSelection, SuiteListArguments, SuiteOrderArguments, SuiteRunArguments, TestOrderCriterion};
pub use trace::{RepeatedRunProperty, TraceCommand, TraceRecordArguments};
pub use trodden_console::arguments::CountingArguments;
pub use trodden_console::arguments::choices::{word, word_of_choice};
pub use trodden_console::arguments::partition::{COPY_STRATEGY_CHOICES, HIT_MEASURE_CHOICES};
pub use trodden_console::output::Color;
pub use untested::UntestedArguments;
pub use waits::{WaitsCommand, WaitsRecordArguments};

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Counts every acyclic path through every function of a native program, and shows which were taken.
#[derive(Debug, Parser)]
#[command(name = "trodden", version, about = "Show which execution paths native programs really \
    take", max_term_width = 100, after_help = TOP_LEVEL_HELP_EXAMPLES)]
pub struct Cli {
    /// Colour the output: auto, always or never.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, hide_possible_values = true)]
    pub color: Color,
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

const TOP_LEVEL_HELP_EXAMPLES: &str = "\
Examples:
  trodden build -- make            build an instrumented program (Rust: cargo trodden build)
  trodden record -- ./prog args    run it
  trodden report                   show the paths it took
Exit status: the program's (128+N for signal N), else 0; 1 if a check failed, 2 if trodden failed.";

const COMPILER_DRIVER_HELP: &str = "\
Environment:
  TRODDEN_CACHE       folder of the unit cache; default $XDG_DATA_HOME/trodden or
                      ~/.local/share/trodden
  TRODDEN_INSTRUMENT  instrumentation settings, such as max-paths=1000 chords=off keep=map
                      when=bursts events=tsc
  TRODDEN_LTO=1       optimise each program as a whole (as --trodden=lto)
  TRODDEN_QUIET=1     print no notes on standard error
  TRODDEN_PLUGIN      path of the plugin, if it is neither beside trodden nor in ../lib/trodden
  TRODDEN_CLANG       clang, by path or name; default $CC if it is a clang, else the newest one

`trodden-cc --help` prints clang's options.

ccache notices neither a new plugin nor a change of TRODDEN_INSTRUMENT: set CCACHE_EXTRAFILES to the
plugin's path (`trodden doctor` prints it), and use another CCACHE_DIR (or `ccache -C`) for other
settings.";

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile or link C with clang, and instrument it; takes clang's arguments.
    #[command(disable_help_flag = true, after_help = COMPILER_DRIVER_HELP)]
    Cc {
        /// Arguments of clang, and --trodden=WORDS (options of `trodden build`, separated by commas).
        ///
        /// The words are `lto`, `sample`, `stream`, `addresses`, `pgo`, `coverage`, `coverage=mcdc` and `events=EVENT`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Compile or link C++ with clang++, and instrument it; takes clang++'s arguments.
    #[command(name = "c++", disable_help_flag = true, after_help = COMPILER_DRIVER_HELP)]
    Cxx {
        /// Arguments of clang++, and --trodden=WORDS (options of `trodden build`, separated by commas).
        ///
        /// The words are `lto`, `sample`, `stream`, `addresses`, `pgo`, `coverage`, `coverage=mcdc` and `events=EVENT`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a build command with trodden's drivers as its C and C++ compilers.
    Build(BuildArguments),
    /// Run an instrumented program, or attach to one, and store its profile.
    Record(Box<RecordArguments>),
    /// Build, train and rebuild a program: optimise it by the paths of training runs.
    Pgo(PgoArguments),
    /// Find the hot paths of an unmodified program with a model of a hardware path profiler.
    Simulate(Box<SimulateArguments>),
    /// Store what was recorded without `record` as a run: raw files, streams, traces, branches.
    Import(ImportArguments),
    /// Show the hottest paths of a profile, the call tree of a trace, or the causes of waits.
    Report(ReportArguments),
    /// Show the source of a function with one of its paths marked.
    Annotate(AnnotateArguments),
    /// Suggest optimisations based on a run's paths.
    Advise(AdviseArguments),
    /// Find where lines, blocks or calls were executed in a given order.
    Find(FindArguments),
    /// Show what a thread executed, in order; before a crash if built with --flight-recorder.
    Show(ShowArguments),
    /// Show path segments across calls: a caller's path up to a call, then the callee's.
    Segments(SegmentsArguments),
    /// Rank the paths that distinguish failing runs from passing ones.
    Isolate(IsolateArguments),
    /// Show the paths that a program took in production (in the field) but in no test.
    Untested(UntestedArguments),
    /// Collect untested paths from many users' machines; for complete profiles, use merge.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden fleet pack -o report.field          on each machine: untested paths, without names
  trodden fleet aggregate inbox               merge the reports in a folder
  trodden fleet copies ./prog -k 8 -o parts   copies with low overhead: each counts a part"
    )]
    Fleet(FleetCommand),
    /// Export data for other tools: flame graphs, pprof, lcov, Perfetto, clang.
    Export(ExportArguments),
    /// Report source coverage (lines, branches, MC/DC), and untested combinations of lines.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden build --coverage -- make && trodden record --suite tests -- make check
  trodden coverage report tests
  trodden coverage report tests --combinations 5   covered lines that no test executed together
  trodden coverage show tests --html pages         pages as genhtml and llvm-cov write them
  trodden export lcov tests -o tests.info"
    )]
    Coverage(CoverageCommand),
    /// Run test suites; find redundant tests, and the tests that a change affects.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden suite run tests --commands tests.txt
  trodden suite list tests --function parse        tests that execute this function
  trodden suite list tests --redundant             tests that can be left out
  trodden suite order tests --changed-since HEAD   tests that execute changed code first"
    )]
    Suite(SuiteCommand),
    /// Record which MPI ranks or threads wait for which; `trodden report` shows the cause.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden waits record -- mpirun -n 4 ./app && trodden report trodden.waits"
    )]
    Waits(WaitsCommand),
    /// List, remove and group recorded runs.
    Runs(RunsArguments),
    /// Merge the profiles of several runs or machines.
    Merge(MergeArguments),
    /// Compare two profiles, traces or streams: what appeared, vanished, or changed.
    Diff(DiffArguments),
    /// Make a differently instrumented variant of a trodden-built program; needs no sources.
    Instrument(InstrumentArguments),
    /// Describe a program, profile or run; without FILE, show where data is stored.
    Info(InfoArguments),
    /// Record the exact trace of an unmodified, even stripped program: each block, in order.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden trace record -- /usr/bin/gzip -k file
  trodden report out.trace      show the call tree
  trodden show out.trace        show the blocks in order"
    )]
    Trace(TraceCommand),
    /// Show or prune the unit cache.
    Cache(CacheArguments),
    /// Check that everything trodden needs is installed.
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check that a program behaves the same in each run, as `record --copies` requires.
    #[command(after_help = "\
Example:
  trodden repeatable --runs 3 -- ./prog args")]
    Repeatable {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Number of runs at fixed addresses; an extra run uses other addresses.
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=100))]
        runs: u32,
        /// Instrumented program and its arguments.
        #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Run one copy of a job of `trodden record --copies`.
    #[command(hide = true)]
    Copy {
        /// Folder of the job.
        folder: PathBuf,
        /// Number of the copy.
        copy: usize,
    },
    /// Create the links trodden-cc, trodden-c++ and cargo-trodden in a folder.
    #[command(after_help = "\
Examples:
  trodden drivers && make CC=trodden-cc
  trodden drivers ~/bin && cargo trodden test --coverage

Packages have these links. `trodden build` needs none.")]
    Drivers {
        /// Folder for the links [default: the folder that contains trodden].
        folder: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn recorded_command_starts_at_first_argument_or_after_two_dashes() {
        for words in [vec!["-o", "x", "./prog", "-o", "y"], vec!["-o", "x", "--", "./prog", "-o", "y"]] {
            let Command::Record(record) = Cli::try_parse_from(["trodden", "record"].into_iter().chain(words)).unwrap().command else {
                panic!("not the command `record`");
            };
            assert_eq!(record.destination.output, Some(PathBuf::from("x")));
            assert_eq!(record.command, ["./prog", "-o", "y"]);
        }
        assert!(Cli::try_parse_from(["trodden", "record", "--no-such-option", "./prog"]).is_err());
        assert!(Cli::try_parse_from(["trodden", "record"]).is_err());
    }

    #[test]
    fn definition_passes_claps_checks() {
        Cli::command().debug_assert();
    }
}
