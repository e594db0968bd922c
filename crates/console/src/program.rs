//! Exit statuses of trodden's programs.

use crate::{notes, output};
use anyhow::{Context, Result};
use std::io;
use std::process::ExitCode;

/// Exit status if trodden itself fails. If a program that trodden runs fails, trodden ends with that program's status.
pub const FAILURE_EXIT_STATUS: u8 = 2;

/// Flushes standard output, prints the error if there is one, and returns the exit status.
pub fn print_error_and_exit_code(ended: Result<ExitCode>) -> ExitCode {
    let ended = ended.and_then(|status| {
        output::flush_standard_output()?;
        Ok(status)
    });
    match ended {
        Ok(status) => status,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            notes::fail(notes::reasons(&error));
            ExitCode::from(FAILURE_EXIT_STATUS)
        }
    }
}

/// Prints what clap reports for a command line: help, the version, or an error.
pub fn print_clap_output(output: &clap::Error) -> Result<ExitCode> {
    let status = ExitCode::from(u8::try_from(output.exit_code()).unwrap_or(FAILURE_EXIT_STATUS));
    match output.print() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        printed => printed.context("cannot write to standard output").map(|()| status),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = |e: &(dyn std::error::Error + 'static)| {
        let of_json = e.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        e.downcast_ref::<io::Error>().map(io::Error::kind).or(of_json)
    };
    error.chain().filter_map(kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}
