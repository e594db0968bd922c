//! Manual pages, completions and links, all from the definition of the command line.

use crate::cli::Cli;
use crate::driver::assets;
use crate::notes::note;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `trodden completions SHELL`
///
/// # Errors
/// Standard output is closed.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "trodden", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// `trodden man FOLDER`
///
/// # Errors
/// The folder cannot be written.
pub fn pages(folder: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
    note(format_args!("manual pages are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// `trodden drivers [FOLDER]`
///
/// # Errors
/// The folder cannot be written.
pub fn drivers(folder: Option<PathBuf>) -> Result<ExitCode> {
    let folder = match folder {
        Some(folder) => std::path::absolute(folder)?,
        None => assets::own_folder()?,
    };
    assets::link_drivers(&assets::own_program()?, &folder)?;
    note(format_args!("trodden-cc, trodden-c++ and cargo-trodden are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
