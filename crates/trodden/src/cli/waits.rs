//! The syntax of `trodden waits`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_console::arguments::laboratory::WaitChoices;
use trodden_waits::ClassRule;

/// `trodden waits`
#[derive(Debug, Subcommand)]
pub enum Waits {
    /// Run a program and record who waits for whom, without rebuilding it.
    #[command(after_help = "\
Examples:
  trodden waits record --output app.waits -- mpirun -n 4 ./app
  trodden waits record --output service.waits -- ./service

The recording is a folder with files of each process. They are complete up to the moment at which a program crashes or is killed.
Programs must be linked with the shared C library, and MPI programs with a shared MPI library (Open MPI or MPICH).")]
    Record(WaitsRecord),
    /// Show which code causes waits: for each wait site the two paths whose difference it is.
    #[command(after_help = "\
Examples:
  trodden waits report app.waits
  trodden waits report app.waits --json
  trodden waits report app.waits --html app.html
  trodden waits report app.waits --what-if compute_forces=50

Exit status: 0, or 2 if the recording cannot be read.")]
    Report(Box<WaitsReport>),
}

/// `trodden waits record`
#[derive(Debug, Args)]
pub struct WaitsRecord {
    /// Folder of the recording (%p: process number, %h: host).
    #[arg(short, long, value_name = "FOLDER", default_value = "trodden.waits")]
    pub output: PathBuf,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: WaitChoices,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// `trodden waits report`
#[derive(Debug, Args)]
pub struct WaitsReport {
    /// The recording; or a trace of another tool: an OTF2 archive (.otf2), Chrome trace JSON, text of `perf script`
    /// with sched_switch and sched_waking.
    pub recording: PathBuf,
    /// Waits of one site are equivalent if the code on their paths takes the same part of the time, up to this sum of differences (0 to 2).
    #[arg(long, value_name = "DISTANCE", default_value_t = 0.5, value_parser = distance)]
    pub threshold: f64,
    /// How distances are measured.
    #[arg(long, value_parser = one_of(RULES), default_value = "union")]
    pub rule: ClassRule,
    /// How long would the run take if this function took so many per cent less? May be given several times.
    #[arg(long, value_name = "FUNCTION=PERCENT", value_parser = question)]
    pub what_if: Vec<(String, f64)>,
    /// Steps become paths: the run (`trodden runs`) or folder with the streams of the same execution, of a program that was built with
    /// --stream and recorded by `trodden record --whole-program -- trodden waits record -- PROGRAM`.
    #[arg(long, value_name = "RUN")]
    pub paths: Option<String>,
    /// At most this many causes and wait sites.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the time line as Chrome trace JSON, for Perfetto or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub chrome: Option<PathBuf>,
}

/// How the distance of two paths is measured.
const RULES: [Choice<ClassRule>; 2] = [
    (ClassRule::Union, "union", "Over the code of either path"),
    (
        ClassRule::Paper,
        "paper",
        "Over the code that both paths have, as the Carnival paper has it: paths without common code are equivalent",
    ),
];

fn distance(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=2.0).contains(&value) { Ok(value) } else { Err("a distance is between 0 and 2".into()) }
}

fn question(text: &str) -> Result<(String, f64), String> {
    let (function, percent) = text.rsplit_once('=').ok_or("expected FUNCTION=PERCENT")?;
    let percent: f64 = percent.trim_end_matches('%').parse().map_err(|_| "the part after = is not a number".to_owned())?;
    if function.is_empty() || !(0.0..=100.0).contains(&percent) {
        return Err("expected a function and a number between 0 and 100".into());
    }
    Ok((function.to_owned(), percent))
}
