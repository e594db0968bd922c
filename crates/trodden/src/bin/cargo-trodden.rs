//! `cargo trodden`: cargo runs this program for the subcommand `trodden`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    trodden_command::main_as("cargo-trodden")
}
