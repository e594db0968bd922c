//! The syntax of `trodden trace`.

use clap::builder::{ArgPredicate, RangedU64ValueParser};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_console::arguments::times::duration;
use trodden_distributed::recording::WeightsFrom;
use trodden_trace::CollectorKind;
use trodden_witness::DistributionStrategy;

/// `trodden trace`
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Run a program several times with few witnesses each, and merge the partial traces into its exact trace.
    Record(Box<TraceRecord>),
    /// Show a trace: calls as a tree with counts, or block by block.
    Show(TraceShow),
    /// Execute runs of `trace record` on another machine.
    #[command(hide = true)]
    Work {
        /// The collection's folder.
        folder: PathBuf,
        /// The machine's number.
        machine: usize,
    },
    /// Find where a function or a line is executed.
    Find(TraceFind),
    /// Say where two traces part, and what each did then.
    Diff(TraceDiff),
    /// Make a path profile of a trace, for report, diff and the like.
    Profile(TraceProfile),
    /// Write a trace in a form that other tools show.
    Export(TraceExport),
}

/// Ways to see that a program comes to a place.
fn collectors() -> Vec<Choice<CollectorKind>> {
    let choices = CollectorKind::ALL.into_iter().filter_map(|kind| {
        let about = match kind {
            CollectorKind::Trampolines => {
                "Jumps, written into the program in memory, to copies of blocks that record themselves; needs no privilege"
            }
            CollectorKind::Compiled => {
                "Jumps in sleds that were compiled into the program (`trodden build --witnesses`): no instruction is moved"
            }
            CollectorKind::Ptrace => "Breakpoints by ptrace, with displaced instructions; needs no privilege",
            CollectorKind::SingleStep => "Every instruction by ptrace: slow, for small inputs and as a check",
            // The laboratory's: `trodden-lab with --collector`.
            CollectorKind::Hardware | CollectorKind::Uprobes => return None,
        };
        Some((kind, kind.collector().name(), about))
    });
    choices.collect()
}

/// How witnesses are distributed over the runs.
const STRATEGIES: [Choice<DistributionStrategy>; 4] = [
    (DistributionStrategy::Fine, "fine", "Diamonds and cycles one by one, each to the run with the least load"),
    (DistributionStrategy::Function, "function", "Function by function"),
    (DistributionStrategy::Grouped, "grouped", "Diamonds that share a cycle or an edge together"),
    (DistributionStrategy::Weighted, "weighted", "By measured weights, best of all"),
];

/// A condition for distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Condition {
    /// For each branch and pair of successors some profile has disjoint sets of first witnesses.
    Pairwise,
    /// The two theorems of the paper.
    Paper,
}

/// What is made to repeat from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RepeatPart {
    /// Addresses: no randomisation.
    Addresses,
    /// Clocks.
    Time,
    /// Random numbers.
    Randomness,
    /// Process ids.
    Processes,
    /// The core that it runs on.
    Core,
}

/// Who executes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceEngine {
    /// This machine.
    Local,
    /// A job array of a Slurm cluster, whose machines see the working folder and the program, and are alike.
    Slurm,
}

/// `trodden trace record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace record --runs 4 --output t.trace -- bzip2 -k -c file
  trodden trace record --runs 1 -- ./server-with-threads      every block in one run
  trodden trace record --pid 1234 --for 5s --output now.trace
  trodden trace record --collector single-step -- ./prog
  trodden trace record --library libz -- ./prog               inside a shared library, too
  trodden trace record --weights earlier.trace --strategy weighted -- ./prog
  trodden trace record --plan --json -- ./prog > plan.json

Each run gets the same arguments, environment, folder and standard input; time, random numbers and process ids are those of the first \
run. Where two runs part,
that place is shown. The exit status is the program's; 128+N if signal N ended it.")]
pub struct TraceRecord {
    /// Runs that the witnesses are distributed over; 1 watches every block in one run, as programs with threads need.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 4, default_value_if("pid", ArgPredicate::IsPresent, "1"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub runs: u32,
    /// The file that the trace goes to.
    #[arg(short, long, value_name = "FILE", default_value = "out.trace")]
    pub output: PathBuf,
    /// How to see that the program comes to a place; default: trampolines where they work, else ptrace.
    #[arg(long, value_parser = one_of(collectors()))]
    pub collector: Option<CollectorKind>,
    /// How witnesses are distributed.
    #[arg(long, value_parser = one_of(STRATEGIES), default_value = "fine")]
    pub strategy: DistributionStrategy,
    /// At most this many witnesses in a run; there are more runs then.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Execute the runs on this many machines (here: one after the other on each of so many cores); they share the load evenly.
    #[arg(long, value_name = "M", conflicts_with = "pid", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub machines: Option<u32>,
    /// The condition that a distribution must meet before anything runs.
    #[arg(long, value_enum, default_value_t = Condition::Pairwise)]
    pub check: Condition,
    /// What a witness is taken to cost: `static` (estimates, and the frequencies of the compiler's map), `first-run` (a run that counts
    /// at entries and loop heads), or a trace of this build.
    #[arg(long, value_name = "static|first-run|TRACE", default_value = "static")]
    pub weights: WeightsFrom,
    /// Take the witnesses of each run from this file, as `--plan --json` writes it; --runs and --strategy then have no meaning.
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    pub distribution: Option<PathBuf>,
    /// Give each run but the first a copy of the working folder, in its place, as the folder was before the first run: for programs that
    /// make, change or remove files in it. The copies are removed afterwards.
    #[arg(long, conflicts_with = "pid")]
    pub fresh_folder: bool,
    /// Who executes the runs behind the first one.
    #[arg(long, value_enum, default_value_t = TraceEngine::Local, conflicts_with = "pid")]
    pub engine: TraceEngine,
    /// With --engine slurm: an option of sbatch; may be given several times.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub slurm_option: Vec<String>,
    /// At most this many runs at a time; default: one for each core.
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<u32>,
    /// Trace inside this shared library of the program, too: `libz`, `libz.so.1`, or a path, as one that is loaded later needs. May be
    /// given several times.
    #[arg(long, value_name = "NAME")]
    pub library: Vec<String>,
    /// Do not trace inside this function. May be given several times.
    #[arg(long, value_name = "FUNCTION")]
    pub opaque: Vec<String>,
    /// Do not fix this from run to run. May be given several times.
    #[arg(long, value_enum, value_name = "PART")]
    pub no_repeat: Vec<RepeatPart>,
    /// Trace a process that runs already, in one run, until it ends or the collection is interrupted.
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<i32>,
    /// End the trace when a run has written this many bytes of it (suffixes k, M, G).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// End the trace after this time, of several runs each.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Keep the partial traces in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Only list the functions that stay opaque, and the witnesses of each run with what they are predicted to cost.
    #[arg(long)]
    pub plan: bool,
    /// With --plan: print the distribution as JSON, to be given to --distribution.
    #[arg(long, requires = "plan")]
    pub json: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required_unless_present = "pid", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `trodden trace show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace show t.trace                          calls as a tree, with counts
  trodden trace show t.trace --blocks --from main --to '#200'
  trodden trace show t.trace --addresses --thread 1

A place is a function (its call), FILE:LINE, 0xADDRESS or #NUMBER of a block, with a number behind it for the nth time: 'parse 3'.")]
pub struct TraceShow {
    /// The trace.
    pub trace: PathBuf,
    /// One executed block per line: its address in the file.
    #[arg(long, conflicts_with = "blocks")]
    pub addresses: bool,
    /// Block by block, with source lines.
    #[arg(long)]
    pub blocks: bool,
    /// One thread only, by its number.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Begin at this place.
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// End at this place.
    #[arg(long, value_name = "PLACE")]
    pub to: Option<String>,
    /// Maximum depth of the calls that are shown (at most 400).
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = RangedU64ValueParser::<usize>::new().range(..=400))]
    pub depth: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden trace find`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace find 'BZ2_compressBlock' t.trace       all calls
  trodden trace find 'main.c:120 3' t.trace            the third time that line 120 is executed")]
pub struct TraceFind {
    /// FUNCTION, FILE:LINE or 0xADDRESS, with a number behind it for the nth time.
    pub place: String,
    /// The trace.
    pub trace: PathBuf,
    /// One thread only, by its number.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// At most this many places.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden trace diff`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace diff pass.trace fail.trace             what did the failing run do differently?
  trodden trace diff old.trace new.trace --ignore log  two builds, aligned by function and line

Exit status: 0 if they are equal, 1 if not.")]
pub struct TraceDiff {
    /// One trace.
    pub left: PathBuf,
    /// The other.
    pub right: PathBuf,
    /// Leave a function with all that it calls out. May be given several times.
    #[arg(long, value_name = "FUNCTION")]
    pub ignore: Vec<String>,
    /// Leave the functions of a source file out. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub ignore_file: Vec<String>,
    /// Compare this thread only.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// At most this many differences.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden trace profile`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace profile t.trace && trodden report
  trodden trace profile t.trace -o t.trodden --no-store")]
pub struct TraceProfile {
    /// The trace.
    pub trace: PathBuf,
    /// Where the profile goes.
    #[command(flatten)]
    pub destination: super::Destination,
}

/// Forms of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// Folded stacks, for flame graphs.
    Folded,
    /// Chrome's trace events, for Perfetto.
    Chrome,
    /// One self-contained HTML page: all calls in time, to be zoomed into and searched, with source and machine code beside them.
    Html,
}

/// `trodden trace export`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace export folded t.trace > t.folded
  trodden trace export chrome t.trace > t.json
  trodden trace export html t.trace > t.html
  trodden trace export html t.trace --ignore log_message --ignore-file alloc.c > t.html

Time is the number of blocks executed: a trace has no clock.")]
pub struct TraceExport {
    /// The form.
    #[arg(value_enum)]
    pub format: TraceFormat,
    /// The trace.
    pub trace: PathBuf,
    /// Leave a function with all that it calls out. May be given several times.
    #[arg(long, value_name = "FUNCTION")]
    pub ignore: Vec<String>,
    /// Leave the functions of a source file out. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub ignore_file: Vec<String>,
    /// This thread only.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
}

/// A number of bytes, with a suffix for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        other => return Err(format!("`{other}` is no unit: use k, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no number of bytes"))?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!((size("12"), size("3k"), size("2M"), size("1GiB")), (Ok(12), Ok(3072), Ok(2 << 20), Ok(1 << 30)));
        assert!(size("3x").is_err() && size("").is_err() && size("99999999999G").is_err());
    }
}
