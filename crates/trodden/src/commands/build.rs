//! `trodden build -- COMMAND`: runs a build with the drivers as its compilers.

use crate::cli::BuildArguments;
use crate::context::driver_context;
use anyhow::Result;
use std::process::ExitCode;
use trodden_driver::build::{self, BuildJob};
use trodden_launch::process::exit_code;

pub fn run(build: &BuildArguments) -> Result<ExitCode> {
    let job = BuildJob {
        lto: build.lto,
        only_variables: false,
        settings: build.parameters.settings(),
        command: build.command.clone(),
        variables: Vec::new(),
    };
    Ok(exit_code(build::run(driver_context(), &job)?.status))
}
