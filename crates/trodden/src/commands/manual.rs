//! Manual pages, completions and links, all from the definition of the command line.

use crate::cli::Cli;
use crate::context::context;
use crate::notes::note;
use crate::output::write_file;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_driver::assets;

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
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder)?;
    note(format_args!("manual pages are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of those below it.
fn write_pages(command: &clap::Command, folder: &Path) -> Result<()> {
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| write_pages(below, folder))?;
    let (page, mut text) = (clap_mangen::Man::new(command.clone()), Vec::new());
    page.render(&mut text)?;
    write_file(&folder.join(page.get_filename()), &text)
}

/// `trodden drivers [FOLDER]`
///
/// # Errors
/// The folder cannot be written.
pub fn drivers(folder: Option<PathBuf>) -> Result<ExitCode> {
    let folder = match folder {
        Some(folder) => std::path::absolute(folder)?,
        None => context().own_folder()?.to_owned(),
    };
    assets::link_drivers(context(), &folder)?;
    note(format_args!("trodden-cc, trodden-c++ and cargo-trodden are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}
