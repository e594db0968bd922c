//! Tests that options named in messages, help texts, the guide and the handbook exist, according to the definitions of both command lines:
//! either in the command that precedes the option, or in a command that the page names.

use crate::cli::Cli;
use clap::{Command, CommandFactory};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Options of other programs that texts mention: `xtask`, examples, test programs, cargo and its subcommands (including `cargo trodden`),
/// clang, rustc, git, perf, linkers, MPI, Slurm, podman and valgrind.
const FOREIGN_OPTIONS: &str = "apart args bin bind-to branch-coverage branch-sim clock-seconds compile config dependency-file draw emit \
    emit-static-lib enable-plugins example features force gc-sections header hostfile include-ignored itrace kernel language ld-path lib \
    lto-emit-llvm no-default-features output-directory oversubscribe package package-path print-file-name release relocatable requeue rr \
    show-mmap-events show-task-events size target target-dir target-list test-threads to-ctf tool trodden undefined-version wait wd \
    git window workspace all-targets basic-block-address-map compress-debug-sections locked offline build rebuild \
    cache-sim cfg dependencies no-clean std tag";

fn options_of_other_programs() -> BTreeSet<&'static str> {
    FOREIGN_OPTIONS.split_whitespace().collect()
}

/// Options by command, such as `trodden report`.
struct KnownCommandOptions(BTreeMap<String, BTreeSet<String>>);

impl KnownCommandOptions {
    fn new() -> KnownCommandOptions {
        let mut all = KnownCommandOptions(BTreeMap::new());
        for mut command in [Cli::command(), trodden_command::laboratory::command_line_definition()] {
            command.build();
            let name = command.get_name().to_owned();
            all.add(&command, &name);
        }
        all
    }

    fn add(&mut self, command: &Command, words: &str) {
        let own = command.get_arguments().flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default());
        self.0.insert(words.to_owned(), own.map(str::to_owned).collect());
        command.get_subcommands().for_each(|below| self.add(below, &format!("{words} {}", below.get_name())));
    }

    fn has_option(&self, option: &str) -> bool {
        self.0.values().any(|own| own.contains(option))
    }

    /// Returns the longest command that the words begin with.
    fn longest_command<'a>(&self, program: &str, words: impl Iterator<Item = &'a str>) -> String {
        let mut command = program.to_owned();
        for word in words {
            let longer = format!("{command} {word}");
            if !self.0.contains_key(&longer) {
                break;
            }
            command = longer;
        }
        command
    }
}

fn extract_options(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.match_indices("--").filter_map(move |(at, _)| {
        let begins = text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '_');
        let rest = &text[at + 2..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        // An arrow in DOT, such as `--a->`, is not an option.
        (begins && name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-')).then_some(name)
    })
}

fn extract_commands(text: &str) -> Vec<(&'static str, &str)> {
    let ends = |c: char| "`;|&\n\"(".contains(c);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("trodden") {
        let rest = &text[at + "trodden".len()..];
        let (program, rest) = rest.strip_prefix("-lab").map_or(("trodden", rest), |rest| ("trodden-lab", rest));
        // `cargo trodden` also takes cargo's options, and the drivers take clang's, so these commands are not checked.
        let is_cargo = text[..at].ends_with("cargo ");
        let Some(typed) = rest.strip_prefix(' ').filter(|typed| !is_cargo && !typed.starts_with("cc ") && !typed.starts_with("c++ "))
        else {
            continue;
        };
        let typed = &typed[..typed.find(ends).unwrap_or(typed.len())];
        let mut parts = typed.split(" -- ").map(|part| part.split("  ").next().unwrap_or(part));
        let own = parts.next().unwrap_or_default();
        found.push((program, own));
        // `trodden-lab with CHOICES --` is followed by a command of trodden.
        if program == "trodden-lab" && own.starts_with("with ") {
            found.extend(parts.next().map(|below| ("trodden", below)));
        }
    }
    found
}

fn find_wrong_options(text: &str, known: &KnownCommandOptions) -> Vec<String> {
    let others = options_of_other_programs();
    let unknown =
        extract_options(text).filter(|option| !known.has_option(option) && !others.contains(option)).map(|option| format!("--{option}"));
    let mut all: Vec<String> = unknown.collect();
    for (program, typed) in extract_commands(text) {
        let command = known.longest_command(program, typed.split(' ').take_while(|word| !word.starts_with('-')));
        let own = &known.0[&command];
        if command != program {
            all.extend(extract_options(typed).filter(|option| !own.contains(*option)).map(|option| format!("`{command}` --{option}")));
        }
    }
    all
}

/// Returns the doc comments and the string literals of more than one word in Rust code, without its tests.
fn extract_texts(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or(code);
    let (mut texts, mut rest) = (Vec::new(), code);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let after = &rest[at + 1..];
        rest = match rest.as_bytes()[at] {
            b'"' => {
                let end = length_of_string_literal(after);
                texts.push(join_lines(&after[..end]));
                after.get(end + 1..).unwrap_or_default()
            }
            b'/' if after.starts_with('/') => {
                let end = after.find('\n').unwrap_or(after.len());
                if after.starts_with("//") || after.starts_with("/!") {
                    texts.push(after[2..end].to_owned());
                }
                &after[end..]
            }
            // Skips character literals that contain a quote, and lifetimes.
            b'\'' if after.starts_with("\"'") => &after[2..],
            b'\'' if after.starts_with("\\\"'") => &after[3..],
            _ => after,
        };
    }
    // A text of a single word is an argument of another program. Style sheets contain variables that look like options.
    texts.retain(|text| text.trim().contains(' ') && !text.contains("{color-scheme:"));
    texts
}

fn length_of_string_literal(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(text.len())
}

/// Joins each line of a literal that ends with a backslash to the next line.
fn join_lines(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start())
}

fn find_files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => find_files(&entry, extension, found),
            false => found.extend(Some(entry).filter(|file| file.extension().is_some_and(|e| e == extension))),
        }
    }
}

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn options_in_messages_and_help_exist() {
    let (known, mut sources) = (KnownCommandOptions::new(), Vec::new());
    for member in fs::read_dir(repository_root().join("crates")).unwrap() {
        let folder = member.unwrap().path().join("src");
        // These crates call other programs, or are for maintainers.
        if !["corpus", "oracle"].iter().any(|name| folder.ends_with(format!("{name}/src"))) {
            find_files(&folder, "rs", &mut sources);
        }
    }
    assert!(sources.len() > 300, "{}", sources.len());
    let own = Path::new(file!()).file_name();
    sources.retain(|file| file.file_name() != own && !file.to_string_lossy().contains("/lab/src/experiments/"));
    let mut all = Vec::new();
    for file in sources {
        for text in extract_texts(&fs::read_to_string(&file).unwrap()) {
            all.extend(find_wrong_options(&text, &known).into_iter().map(|option| format!("{}: {option} in: {text}", file.display())));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn options_in_the_guide_exist() {
    let (known, others, mut pages) = (KnownCommandOptions::new(), options_of_other_programs(), Vec::new());
    find_files(&repository_root().join("docs/guide/src"), "md", &mut pages);
    let mut all = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let about = find_named_commands(&text, &known);
        for line in text.lines() {
            // bzip2 is an example program with options of its own.
            if line.contains("./bzip2") {
                continue;
            }
            let is_about = |option: &str| about.iter().any(|command| known.0[command].contains(option));
            let foreign = extract_options(line).filter(|option| known.has_option(option) && !others.contains(option) && !is_about(option));
            let foreign = foreign.map(|option| format!("--{option} of no command that the page names"));
            all.extend(
                find_wrong_options(line, &known)
                    .into_iter()
                    .chain(foreign)
                    .map(|option| format!("{}: {option} in: {line}", page.display())),
            );
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn pages_of_the_handbook_name_options_that_exist() {
    let (known, mut pages) = (KnownCommandOptions::new(), Vec::new());
    find_files(&repository_root().join("docs/handbook/src"), "md", &mut pages);
    assert!(pages.len() > 20, "{}", pages.len());
    let mut all = Vec::new();
    for page in pages {
        // The page about the papers abbreviates `trodden-lab` to `lab`.
        let text = fs::read_to_string(&page).unwrap().replace("`lab ", "`trodden-lab ");
        for line in text.lines() {
            all.extend(find_wrong_options(line, &known).into_iter().map(|wrong| format!("{}: {wrong} in: {line}", page.display())));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

fn find_named_commands(page: &str, known: &KnownCommandOptions) -> BTreeSet<String> {
    let words = |typed: &str| typed.split(' ').filter(|word| !word.starts_with('-')).map(str::to_owned).collect::<Vec<_>>();
    let named =
        |(program, typed): (&str, &str)| known.longest_command(program, words(typed).iter().map(|w| w.trim_end_matches(['.', ',', ':'])));
    extract_commands(page).into_iter().map(named).collect()
}

#[test]
fn wrong_options_are_found() {
    let known = KnownCommandOptions::new();
    let found = |text: &str| find_wrong_options(text, &known);
    assert_eq!(found("take --no-such-thing, or `trodden report --top 3`"), ["--no-such-thing"]);
    assert_eq!(found("`trodden report --machines 2`"), ["`trodden report` --machines"]);
    assert_eq!(found("trodden-lab with --machines 2 -- trace record --plan -- ./prog"), ["`trodden trace record` --plan"]);
    assert_eq!(found("trodden-lab with --machines 2 -- trace record --runs 2 -- ./prog"), [""; 0]);
    let code = "fn f() { let quote = '\"'; note(\"give \\\"--one\\\" \\\n    --two now\"); } // no --three\n/// A --four\n\
        #[cfg(test)]\nmod tests { const A: &str = \"a --five\"; }";
    assert_eq!(extract_texts(code), ["give \\\"--one\\\" --two now", " A --four"]);
}
