//! Ends programs: prints errors, and determines exit statuses.

use crate::{notes, output};
use anyhow::{Context, Result};
use std::io;
use std::process::ExitCode;

/// The exit status for a failure of trodden itself, not of a program that it runs.
pub const FAILED: u8 = 2;

/// Ends a program: flushes standard output, prints an error, and returns the exit status.
pub fn finish(ended: Result<ExitCode>) -> ExitCode {
    let ended = ended.and_then(|status| {
        output::finish()?;
        Ok(status)
    });
    match ended {
        Ok(status) => status,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            notes::fail(notes::reasons(&error));
            ExitCode::from(FAILED)
        }
    }
}

/// Prints clap's output for a command line: help, the version, or an error.
pub fn print_clap_output(output: &clap::Error) -> Result<ExitCode> {
    let status = ExitCode::from(u8::try_from(output.exit_code()).unwrap_or(FAILED));
    match output.print() {
        // A closed pipe does not change the exit status.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        printed => printed.context("cannot write to standard output").map(|()| status),
    }
}

/// Returns true if an error means that the reader of standard output closed the pipe.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = |e: &(dyn std::error::Error + 'static)| {
        let of_json = e.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        e.downcast_ref::<io::Error>().map(io::Error::kind).or(of_json)
    };
    error.chain().filter_map(kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}
