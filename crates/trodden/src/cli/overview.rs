//! `trodden --help`: commands grouped by task, each with the first line of its own help.
//!
//! `--help` prints the short form for every command; `trodden help COMMAND` explains each value as well.
//! A test ensures that each visible command is in exactly one group.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::fmt::Write;

/// Headings in `trodden --help`, and the commands listed below each heading.
const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Every day", &["build", "record", "report", "annotate", "diff"]),
    ("Building programs", &["cc", "c++", "instrument", "pgo", "drivers", "info", "cache"]),
    ("Runs and files", &["runs", "import", "merge", "export"]),
    ("Reading paths", &["find", "show", "segments", "advise"]),
    ("Testing", &["coverage", "untested", "suite", "isolate", "fleet"]),
    ("Programs that were not built with trodden", &["trace", "simulate", "waits"]),
    ("trodden itself", &["doctor", "repeatable", "help"]),
];

/// Width of the column of command names.
const COMMAND_NAME_COLUMN_WIDTH: usize = 13;

/// Returns the definition of the command line, with the grouped overview as its help.
pub fn command_line() -> Command {
    let command = Cli::command();
    let mut text = String::new();
    for (task, names) in COMMAND_GROUPS {
        let _ = writeln!(text, "{task}:");
        // `cc` and `c++` share a line.
        for name in names.iter().filter(|name| **name != "c++") {
            let about = match *name {
                "cc" => "Compile or link C (c++: C++) with clang, and instrument it; takes clang's arguments".to_owned(),
                "help" => "Explain a command and all values of its options".to_owned(),
                name => command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string).unwrap_or_default(),
            };
            let shown = if *name == "cc" { "cc, c++" } else { name };
            let _ = writeln!(text, "  {shown:COMMAND_NAME_COLUMN_WIDTH$}{about}");
        }
        text.push('\n');
    }
    let template = format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}");
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).global(true).help("Print help");
    command.help_template(template).disable_help_flag(true).arg(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn each_command_is_in_exactly_one_group() {
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let all = Cli::command();
        let mut defined: Vec<&str> = all.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        defined.push("help");
        defined.sort_unstable();
        assert_eq!(grouped, defined);
    }

    /// Asserts that the help of a command and of its subcommands is short.
    fn assert_help_is_short(command: &mut Command) {
        const MAX_HELP_LINES: usize = 60;
        let lines = command.render_help().to_string().lines().count();
        assert!(lines <= MAX_HELP_LINES, "{}: {lines} lines", command.get_name());
        command.get_subcommands_mut().filter(|subcommand| !subcommand.is_hide_set()).for_each(assert_help_is_short);
    }

    #[test]
    fn help_has_at_most_60_lines() {
        let mut command = command_line();
        command.build();
        assert_help_is_short(&mut command);
    }

    #[test]
    fn overview_describes_each_command() {
        let help = command_line().render_help().to_string();
        assert!(help.contains("Every day:\n  build        Run a build command"), "{help}");
        assert!(help.contains("Exit status"), "{help}");
    }

    /// The documentation of all commands, in which a table lists their options.
    const DOCUMENTATION: &str = include_str!("../../../../docs/commands.md");

    /// Collects the visible commands without subcommands, by full name, with their own options.
    fn collect_options(command: &Command, name: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
        let subcommands: Vec<&Command> =
            command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help").collect();
        if subcommands.is_empty() || name == "runs" {
            let longs = command.get_arguments().filter_map(Arg::get_long).filter(|long| !["color", "help"].contains(long));
            found.insert(name.to_owned(), longs.map(|long| format!("--{long}")).collect());
        }
        for subcommand in subcommands {
            let full = if name.is_empty() { subcommand.get_name().to_owned() } else { format!("{name} {}", subcommand.get_name()) };
            collect_options(subcommand, &full, found);
        }
    }

    /// Reads the table of commands in `docs/commands.md`: each command with its options.
    fn read_documented_options() -> BTreeMap<String, BTreeSet<String>> {
        let tree = DOCUMENTATION.split("## The tree").nth(1).and_then(|rest| rest.split("commands (70 before)").next()).unwrap();
        let is_name = |word: &&str| !word.contains(|c: char| c.is_ascii_uppercase() || "[-".contains(c));
        let rows = tree.lines().filter(|line| line.starts_with("| `"));
        let row = |line: &str| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
            let name = cells[0].split('`').nth(1).unwrap();
            let options = cells[2].split(|c: char| c.is_whitespace() || "`;,".contains(c)).filter(|word| word.starts_with('-'));
            let options = options.map(|option| if option == "-o" { "--output".to_owned() } else { option.to_owned() });
            (name.split(' ').take_while(is_name).collect::<Vec<_>>().join(" "), options.collect())
        };
        rows.map(row).collect()
    }

    #[test]
    fn commands_md_lists_exactly_the_defined_commands_and_options() {
        let (mut defined, mut documented) = (BTreeMap::new(), read_documented_options());
        collect_options(&Cli::command(), "", &mut defined);
        // The drivers take clang's arguments; clap does not know their own option, `--trodden`.
        let drivers = ["cc", "c++"];
        let options = defined.values().map(BTreeSet::len).sum::<usize>() + drivers.len();
        let heading = format!("\n{} commands (70 before), {options} options (483 before)", defined.len());
        for driver in drivers {
            documented.remove(driver);
            defined.remove(driver);
        }
        // The table abbreviates the options that `instrument` shares with `build` as "and what `build` counts".
        let build_options = defined["build"].clone();
        let is_listed = |option: &String| documented["instrument"].contains(option) || !build_options.contains(option);
        defined.get_mut("instrument").unwrap().retain(is_listed);
        assert_eq!(defined, documented);
        assert!(DOCUMENTATION.contains(&heading), "{heading}");
    }
}
