//! Syntax of `trodden waits`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::laboratory::WaitChoices;
use trodden_console::arguments::places::output_path;

/// `trodden waits`
#[derive(Debug, Subcommand)]
pub enum WaitsCommand {
    /// Run an unmodified program and record which ranks or threads wait for which.
    #[command(after_help = "\
Examples:
  trodden waits record --output app.waits -- mpirun -n 4 ./app
  trodden waits record --output service.waits -- ./service

The recording is a folder with files for each process; if a process crashes or is killed, its files
are complete up to that moment. Programs must use the shared C library, and MPI programs a shared
MPI library (Open MPI or MPICH).")]
    Record(WaitsRecordArguments),
}

/// `trodden waits record`
#[derive(Debug, Args)]
pub struct WaitsRecordArguments {
    /// Folder for the recording (%p: PID, %h: host).
    #[arg(short, long, value_name = "FOLDER", default_value = "trodden.waits", value_parser = output_path())]
    pub output: PathBuf,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: WaitChoices,
    /// Program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}
