//! `trodden-lab`: tools for researchers and maintainers of trodden. There is one module per subcommand. `cli` defines the command line, and
//! `options_in_text` tests that the options which messages and the guide name exist.
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
use cli::{Cli, LabCommand};
use std::path::Path;
use std::process::ExitCode;
use trodden_command::laboratory::{print_error_and_suggest_store, read_environment_variables};
use trodden_console::output::Color;
use trodden_console::{notes, output, program};

fn main() -> ExitCode {
    notes::install_logger();
    print_error_and_suggest_store(match Cli::try_parse() {
        Ok(cli) => read_environment_variables().and_then(|()| run(cli.command, cli.color)),
        // clap also reports `--help` and `--version` as errors.
        Err(error) => program::print_clap_output(&error),
    })
}

fn run(command: LabCommand, color: Color) -> Result<ExitCode> {
    match command {
        LabCommand::Graph(job) => graph::run(&job),
        LabCommand::Plan(job) => plan::run(&job),
        LabCommand::Loops(job) => loops::run(&job, color),
        LabCommand::Simulate(job) => trodden_command::laboratory::simulate(&job.options, &job.model),
        LabCommand::Sweep(job) => sweep::run(&job),
        LabCommand::Convert(job) => convert::run(&job),
        LabCommand::Grammar(job) => grammar::run(&job),
        LabCommand::Sequence(job) => sequence::run(&job),
        LabCommand::Patterns(job) => patterns::run(&job),
        LabCommand::Schemes(job) => untested::schemes(&job, color),
        LabCommand::HotPaths(job) => untested::hot_paths(&job, color),
        LabCommand::With(job) => with::run(&job),
        LabCommand::Experiment(job) => experiments::run(&job).map(|()| ExitCode::SUCCESS),
        LabCommand::Measure { file, command } => experiments::measure(&file, &command),
        LabCommand::Man { folder } => write_manual(&folder),
        LabCommand::Completions { shell } => write_completions(shell),
    }
}

fn write_completions(shell: Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut trodden_command::laboratory::command_line_definition(), "trodden", &mut text);
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn write_manual(folder: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
    for command in [Cli::command(), trodden_command::laboratory::command_line_definition()] {
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
