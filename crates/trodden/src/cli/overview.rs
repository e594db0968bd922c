//! `trodden --help`: commands by task, those of every day first.
//!
//! clap lists subcommands in one block. Here they are grouped; each keeps the first line of its own help.
//! `--help` is short everywhere, and fits on a screen; `trodden help COMMAND` explains each value as well.
//! Invariant, held by a test: every command that is not hidden is in exactly one group.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::fmt::Write;

/// Tasks, and the commands that serve them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Every day", &["build", "record", "report", "annotate", "diff"]),
    ("Building programs", &["cc", "c++", "instrument", "pgo", "drivers", "info", "cache"]),
    ("Runs and files", &["runs", "import", "merge", "export"]),
    ("Reading paths", &["find", "show", "segments", "patterns", "advise"]),
    ("Testing", &["coverage", "untested", "suite", "isolate", "fleet"]),
    ("Programs that were not built with trodden", &["trace", "simulate", "waits"]),
    ("trodden itself", &["doctor", "repeatable", "completions", "help"]),
];

/// Width of the column of names.
const NAMES: usize = 13;

/// The command line, with the grouped overview as its help.
pub fn command() -> Command {
    let command = Cli::command();
    let mut text = String::new();
    for (task, names) in GROUPS {
        let _ = writeln!(text, "{task}:");
        // One line for both.
        for name in names.iter().filter(|name| **name != "c++") {
            let about = match *name {
                "cc" => "Compile or link C (c++: C++) with clang, whose arguments it takes, with paths counted".to_owned(),
                "help" => "Explain a command with the meaning of every value".to_owned(),
                name => command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string).unwrap_or_default(),
            };
            let shown = if *name == "cc" { "cc, c++" } else { name };
            let _ = writeln!(text, "  {shown:NAMES$}{about}");
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
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let all = Cli::command();
        let mut there: Vec<&str> = all.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        there.push("help");
        there.sort_unstable();
        assert_eq!(grouped, there);
    }

    /// Lines of the help of a command and of those below it must fit on a page.
    fn assert_short(command: &mut Command) {
        const PAGE: usize = 60;
        let lines = command.render_help().to_string().lines().count();
        assert!(lines <= PAGE, "{}: {lines} lines", command.get_name());
        command.get_subcommands_mut().filter(|below| !below.is_hide_set()).for_each(assert_short);
    }

    #[test]
    fn help_fits_on_a_page() {
        let mut command = command();
        command.build();
        assert_short(&mut command);
    }

    #[test]
    fn the_overview_says_what_each_command_does() {
        let help = command().render_help().to_string();
        assert!(help.contains("Every day:\n  build        Run a build command"), "{help}");
        assert!(help.contains("Exit status"), "{help}");
    }

    const PLAN: &str = include_str!("../../../../docs/commands.md");

    /// Commands that have none below them and are not hidden, by their full names, with the options that are their own.
    fn leaves(command: &Command, name: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
        let below: Vec<&Command> = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help").collect();
        if below.is_empty() || name == "runs" {
            let longs = command.get_arguments().filter_map(Arg::get_long).filter(|long| !["color", "help"].contains(long));
            found.insert(name.to_owned(), longs.map(|long| format!("--{long}")).collect());
        }
        for below in below {
            let full = if name.is_empty() { below.get_name().to_owned() } else { format!("{name} {}", below.get_name()) };
            leaves(below, &full, found);
        }
    }

    /// The rows of the plan's tree: the command, and its options.
    fn planned() -> BTreeMap<String, BTreeSet<String>> {
        let tree = PLAN.split("## The tree").nth(1).and_then(|rest| rest.split("commands (70 before)").next()).unwrap();
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

    /// `docs/commands.md` is the plan: it has every command with every option, and no other.
    #[test]
    fn the_plan_is_the_tree() {
        let (mut there, mut planned) = (BTreeMap::new(), planned());
        leaves(&Cli::command(), "", &mut there);
        // Drivers take clang's arguments; their own option is `--trodden`.
        let drivers = ["cc", "c++"];
        let options = there.values().map(BTreeSet::len).sum::<usize>() + drivers.len();
        let heading = format!("\n{} commands (70 before), {options} options (483 before)", there.len());
        for driver in drivers {
            planned.remove(driver);
            there.remove(driver);
        }
        // The plan says "and what `build` counts".
        let of_build = there["build"].clone();
        there.get_mut("instrument").unwrap().retain(|option| planned["instrument"].contains(option) || !of_build.contains(option));
        assert_eq!(there, planned);
        assert!(PLAN.contains(&heading), "{heading}");
    }
}
