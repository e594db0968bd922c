//! `trodden --help`: commands by task, those of every day first.
//!
//! clap lists subcommands in one block. Here they are grouped; each keeps the first line of its own help.
//! Invariant, held by a test: every command that is not hidden is in exactly one group.

use super::Cli;
use clap::{Command, CommandFactory};
use std::fmt::Write;

/// Tasks, and the commands that serve them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Every day", &["build", "record", "report", "diff"]),
    ("Building programs", &["cc", "c++", "instrument", "pgo", "drivers", "info", "store"]),
    ("Runs and profiles", &["runs", "import", "merge", "export"]),
    ("Reading paths", &["annotate", "find", "show", "segments", "patterns", "advise"]),
    ("Testing", &["coverage", "residual", "suite", "isolate"]),
    ("Production and many users", &["sample", "field"]),
    ("Programs that were not built for it", &["trace", "simulate"]),
    ("Waiting time", &["waits"]),
    ("trodden itself", &["doctor", "completions", "man", "help"]),
];

/// Width of the column of names.
const NAMES: usize = 13;

/// The command line, with the grouped overview as its help.
pub fn command() -> Command {
    let command = Cli::command();
    let mut text = String::new();
    for (task, names) in GROUPS {
        let _ = writeln!(text, "{task}:");
        for name in *names {
            let about = match *name {
                "help" => "Print this overview, or the help of a command".to_owned(),
                name => command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string).unwrap_or_default(),
            };
            let _ = writeln!(text, "  {name:NAMES$}{about}");
        }
        text.push('\n');
    }
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let all = Cli::command();
        let mut there: Vec<&str> = all.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        there.push("help");
        there.sort_unstable();
        assert_eq!(grouped, there);
    }

    #[test]
    fn the_overview_says_what_each_command_does() {
        let help = command().render_help().to_string();
        assert!(help.contains("Every day:\n  build        Run a build command"), "{help}");
        assert!(help.contains("Exit status"), "{help}");
    }
}
