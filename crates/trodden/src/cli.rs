//! The syntax of the command line; what commands do is elsewhere. Manual pages, completions and `--help` all come from here.

mod branches;
mod building;
mod copies;
mod coverage;
mod find;
mod fleet;
mod isolate;
mod laboratory;
mod overview;
mod patterns;
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

pub use branches::Branches;
pub use building::{Build, Instrument, OnUntested, Pgo};
pub use copies::{Copies, Division};
pub use coverage::{Coverage, CoverageMeasure, CoverageReport, CoverageShow, CoverageThreshold, Covered, CoveredFiles};
pub use find::Find;
pub use fleet::{Aggregate, Fleet, FleetCopies, Pack};
pub use isolate::Isolate;
pub use overview::command as command_line;
pub use patterns::{Length, PatternKind, Patterns};
pub use recording::{Import, Record};
pub use runs::{Cache, Diff, Info, Merge, Runs, RunsCommand};
pub use segments::Segments;
pub use show::Show;
pub use showing::{Advise, Annotate, Export, Format, Report};
pub use simulate::Simulate;
pub use suite::{Order, Redundant, Suite, SuiteCoverage, SuiteFunctions, SuiteRun};
pub use trace::{RepeatPart, Trace, TraceRecord};
pub use trodden_console::arguments::Parameters;
pub use trodden_console::arguments::choices::{word, word_for};
pub use trodden_console::arguments::partition::{COPY_STRATEGIES, HITS};
pub use trodden_console::output::Color;
pub use untested::{Untested, UntestedFormat};
pub use waits::{Waits, WaitsRecord};

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Counts every acyclic path through every function of a native program, and shows which were taken.
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
  trodden build -- make            build a program so that its paths are counted (or: make CC=\"trodden cc\"; cargo trodden build)
  trodden record -- ./prog args    run it
  trodden report                   show the paths it took
Exit status: a recorded program's own (128+N if signal N ended it); else 0, 1 if a check failed, 2 if trodden failed.";

const DRIVER_HELP: &str = "\
Environment:
  TRODDEN_CACHE       where units and link recipes are kept; default $XDG_DATA_HOME/trodden or ~/.local/share/trodden
  TRODDEN_INSTRUMENT  how drivers count: settings such as max-paths=1000 chords=off keep=map when=bursts events=tsc
  TRODDEN_LTO=1       optimise programs as a whole (as --trodden=lto)
  TRODDEN_QUIET=1     no notes on standard error
  TRODDEN_PLUGIN      the plugin's file, if it is neither beside trodden nor in ../lib/trodden
  TRODDEN_LLVM        the folder of an LLVM 22 that is not installed by packages

`trodden-cc --help` prints clang's options.

With ccache, set CCACHE_EXTRAFILES to the plugin's file (`trodden doctor` names it), and another CCACHE_DIR (or `ccache -C`) for other \
words in
TRODDEN_INSTRUMENT: ccache sees neither.";

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile or link C: clang, with paths counted. All arguments are clang's.
    #[command(disable_help_flag = true, after_help = DRIVER_HELP)]
    Cc {
        /// Arguments of clang. `--trodden=WORDS` says how to count: `lto`, `sample`, `stream`, `addresses`, `pgo`,
        /// `coverage`, `coverage=mcdc`, `events=EVENT`, divided by commas, with the meaning of the options of `trodden build`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Compile or link C++: clang++, with paths counted. All arguments are clang++'s.
    #[command(name = "c++", disable_help_flag = true, after_help = DRIVER_HELP)]
    Cxx {
        /// Arguments of clang++. `--trodden=WORDS` says how to count: `lto`, `sample`, `stream`, `addresses`, `pgo`,
        /// `coverage`, `coverage=mcdc`, `events=EVENT`, divided by commas, with the meaning of the options of `trodden build`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a build command with the drivers as its C and C++ compilers.
    Build(Build),
    /// Run an instrumented program, or attach to one, and store the profile.
    Record(Box<Record>),
    /// Make a program faster by profiles of its own runs: build, train, build again.
    Pgo(Pgo),
    /// Find the hot paths of an unmodified program with a model of a hardware path profiler.
    Simulate(Box<Simulate>),
    /// Make a run of what was written without `trodden record`: raw files, stream files, traces, branches from `perf script`.
    Import(Import),
    /// Show what a file is and what matters most in it: hottest paths, calls of a trace, causes of waits.
    Report(Report),
    /// Show the source of a function with a path laid over it.
    Annotate(Annotate),
    /// Suggest optimisations based on a run's paths.
    Advise(Advise),
    /// Find where lines, blocks or calls were executed in a given order.
    Find(Find),
    /// Show what a thread did, in order, from any place on; the last steps before a crash.
    Show(Show),
    /// Find what repeats in a sequence of paths: hot subpaths, iterations, phases.
    Patterns(Patterns),
    /// Show paths across calls: a caller's path and the callee's path after it, counted together.
    Segments(Segments),
    /// Rank the paths by which failing runs differ from passing ones.
    Isolate(Isolate),
    /// Show paths that a program takes in use (the field) and no test has taken.
    Untested(Untested),
    /// Collect untested paths from many machines.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden fleet pack -o report.field          on each machine: what `trodden untested` would show, without names
  trodden fleet aggregate inbox               of all that came in
  trodden fleet copies ./prog -k 8 -o parts   copies that count a part each, and cost their users little"
    )]
    Fleet(Fleet),
    /// Write a profile, trace or recording of waits for other tools: flame graphs, pprof, lcov, Perfetto, clang.
    Export(Export),
    /// Report source coverage as llvm-cov does (lines, branches, MC/DC), and the combinations of lines that tests leave out.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden build --coverage -- make && trodden record --suite tests -- make check
  trodden coverage report tests
  trodden coverage report tests --combinations 5     lines that are covered, but that no test executed together
  trodden coverage show tests --html pages           as genhtml and llvm-cov write them
  trodden export lcov tests -o tests.info"
    )]
    Coverage(Coverage),
    /// Run test suites, find redundant tests, order tests.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden suite run tests --commands tests.txt
  trodden suite list tests --function parse     which tests execute it
  trodden suite redundant tests
  trodden suite order tests --changed-since HEAD   those that a change concerns first"
    )]
    Suite(Suite),
    /// Record who waits for whom (MPI ranks, threads); `trodden report` shows the code that causes it.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden waits record -- mpirun -n 4 ./app && trodden report trodden.waits"
    )]
    Waits(Waits),
    /// List, remove and group recorded runs.
    Runs(Runs),
    /// Merge profiles, also those of several machines.
    Merge(Merge),
    /// Compare two profiles, traces or streams: what appeared, vanished, or changed.
    Diff(Diff),
    /// Make another variant of an instrumented program, without its sources.
    Instrument(Instrument),
    /// Describe an instrumented program, a shared library, a profile or a run; say where runs and units are kept.
    Info(Info),
    /// Record which blocks an unmodified program executes, in order: its exact trace.
    #[command(
        subcommand,
        after_help = "\
Examples:
  trodden trace record -- /usr/bin/gzip -k file
  trodden report out.trace      the calls
  trodden show out.trace        block by block"
    )]
    Trace(Trace),
    /// Show or prune the unit cache.
    Cache(Cache),
    /// Check that everything trodden needs is installed.
    Doctor {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check that a program does the same each time it runs, as copies and repeated traces require.
    #[command(after_help = "\
Example:
  trodden repeatable --runs 3 -- ./prog args")]
    Repeatable {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Number of runs; one more has its memory at other addresses.
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=100))]
        runs: u32,
        /// An instrumented program and its arguments.
        #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_begins_at_its_first_argument_or_behind_two_dashes() {
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
