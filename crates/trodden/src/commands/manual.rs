//! `trodden completions` and `trodden drivers`.

use crate::cli::Cli;
use crate::context::context;
use crate::notes::note;
use anyhow::Result;
use clap::CommandFactory;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use trodden_driver::assets;

/// Prints the completion script for a shell.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "trodden", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Creates links to the drivers in a folder, by default that of trodden.
pub fn drivers(folder: Option<PathBuf>) -> Result<ExitCode> {
    let folder = match folder {
        Some(folder) => std::path::absolute(folder)?,
        None => context().own_folder()?.to_owned(),
    };
    assets::link_drivers(context(), &folder)?;
    note(format_args!("trodden-cc, trodden-c++ and cargo-trodden are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
