//! The syntax of `trodden waits`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::laboratory::WaitChoices;
use trodden_console::arguments::places::place;

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
}

/// `trodden waits record`
#[derive(Debug, Args)]
pub struct WaitsRecord {
    /// Folder of the recording (%p: process number, %h: host).
    #[arg(short, long, value_name = "FOLDER", default_value = "trodden.waits", value_parser = place())]
    pub output: PathBuf,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: WaitChoices,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}
