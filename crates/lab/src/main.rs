//! `trodden-lab`: tools for researchers and maintainers of trodden. One module per subcommand; `cli` defines the command line.
//! | `options_in_text.rs` | a test: options that messages and the guide name exist |
//! | `with.rs` | trodden commands with published methods instead of the built-in ones |
#![forbid(unsafe_code)]

mod cli;
mod convert;
mod experiments;
mod grammar;
mod graph;
mod loops;
#[cfg(test)]
mod options_in_text;
mod patterns;
mod plan;
mod sequence;
mod sweep;
mod untested;
mod with;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use cli::{Cli, Command};
use std::path::Path;
use std::process::ExitCode;
use trodden_command::laboratory::{end, read_variables};
use trodden_console::output::Color;
use trodden_console::{notes, output, program};

fn main() -> ExitCode {
    notes::show_log();
    end(match Cli::try_parse() {
        Ok(cli) => read_variables().and_then(|()| run(cli.command, cli.color)),
        // `--help` and `--version` are also reported as errors by clap.
        Err(error) => program::print_clap_output(&error),
    })
}

fn run(command: Command, color: Color) -> Result<ExitCode> {
    match command {
        Command::Graph(job) => graph::run(&job),
        Command::Plan(job) => plan::run(&job),
        Command::Loops(job) => loops::run(&job, color),
        Command::Simulate(job) => trodden_command::laboratory::simulate(&job.options, &job.model),
        Command::Sweep(job) => sweep::run(&job),
        Command::Convert(job) => convert::run(&job),
        Command::Grammar(job) => grammar::run(&job),
        Command::Sequence(job) => sequence::run(&job),
        Command::Patterns(job) => patterns::run(&job),
        Command::Schemes(job) => untested::schemes(&job, color),
        Command::HotPaths(job) => untested::hot_paths(&job, color),
        Command::With(job) => with::run(&job),
        Command::Experiment(job) => experiments::run(&job).map(|()| ExitCode::SUCCESS),
        Command::Measure { file, command } => experiments::measure(&file, &command),
        Command::Man { folder } => write_manual(&folder),
        Command::Completions { shell } => write_completions(shell),
    }
}

/// Prints the completion script of `trodden` for a shell.
fn write_completions(shell: Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut trodden_command::laboratory::definition(), "trodden", &mut text);
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn write_manual(folder: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
    for command in [Cli::command(), trodden_command::laboratory::definition()] {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        write_pages(&command, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: &clap::Command, folder: &Path) -> Result<()> {
    command.get_subcommands().filter(|child| !child.is_hide_set()).try_for_each(|child| write_pages(child, folder))?;
    let (page, mut text) = (clap_mangen::Man::new(command.clone()), Vec::new());
    page.render(&mut text)?;
    output::write_file(&folder.join(page.get_filename()), &text)
}
