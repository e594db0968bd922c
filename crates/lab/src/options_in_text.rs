//! Options that messages, help texts, the guide and the handbook name exist: in the command after which they are written, or, in the guide,
//! in one that the page is about. The definitions of both command lines say which options there are.

use crate::cli::Cli;
use clap::{Command, CommandFactory};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Options of other programs: cargo, clang, rustc, git, perf, linkers, MPI, Slurm, valgrind; and of `xtask`, examples and test programs.
const OF_OTHERS: &str = "apart args bin bind-to branch-coverage branch-sim clock-seconds compile config dependency-file draw emit \
    emit-static-lib enable-plugins example features force gc-sections header hostfile include-ignored itrace kernel language ld-path lib \
    lto-emit-llvm no-default-features output-directory oversubscribe package package-path print-file-name release relocatable requeue rr \
    show-mmap-events show-task-events size target target-dir target-list test-threads to-ctf tool trodden undefined-version wait wd \
    git window workspace all-targets basic-block-address-map compress-debug-sections locked offline build rebuild \
    cache-sim";

fn others() -> BTreeSet<&'static str> {
    OF_OTHERS.split_whitespace().collect()
}

/// Options by command, as it is typed.
struct CommandLines(BTreeMap<String, BTreeSet<String>>);

impl CommandLines {
    fn new() -> CommandLines {
        let mut all = CommandLines(BTreeMap::new());
        for mut command in [Cli::command(), trodden_command::laboratory::definition()] {
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

    fn has(&self, option: &str) -> bool {
        self.0.values().any(|own| own.contains(option))
    }

    /// The longest command that words begin with.
    fn command<'a>(&self, program: &str, words: impl Iterator<Item = &'a str>) -> String {
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

/// The options in a text, without their dashes.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.match_indices("--").filter_map(move |(at, _)| {
        let begins = text[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '_');
        let rest = &text[at + 2..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        // Arrows with words are none.
        (begins && name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-')).then_some(name)
    })
}

/// Commands in a text: each with its program, and what is typed behind that.
fn commands(text: &str) -> Vec<(&'static str, &str)> {
    let ends = |c: char| "`;|&\n\"(".contains(c);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("trodden") {
        let rest = &text[at + "trodden".len()..];
        let (program, rest) = rest.strip_prefix("-lab").map_or(("trodden", rest), |rest| ("trodden-lab", rest));
        // `cargo trodden` takes cargo's options, too, and drivers take clang's.
        let is_cargo = text[..at].ends_with("cargo ");
        let Some(typed) = rest.strip_prefix(' ').filter(|typed| !is_cargo && !typed.starts_with("cc ") && !typed.starts_with("c++ "))
        else {
            continue;
        };
        let typed = &typed[..typed.find(ends).unwrap_or(typed.len())];
        let mut parts = typed.split(" -- ").map(|part| part.split("  ").next().unwrap_or(part));
        let own = parts.next().unwrap_or_default();
        found.push((program, own));
        // Behind `trodden-lab with CHOICES --` comes a command of trodden.
        if program == "trodden-lab" && own.starts_with("with ") {
            found.extend(parts.next().map(|below| ("trodden", below)));
        }
    }
    found
}

/// What is wrong with the options of a text.
fn wrong(text: &str, known: &CommandLines) -> Vec<String> {
    let others = others();
    let unknown = options(text).filter(|option| !known.has(option) && !others.contains(option)).map(|option| format!("--{option}"));
    let mut all: Vec<String> = unknown.collect();
    for (program, typed) in commands(text) {
        let command = known.command(program, typed.split(' ').take_while(|word| !word.starts_with('-')));
        let own = &known.0[&command];
        if command != program {
            all.extend(options(typed).filter(|option| !own.contains(*option)).map(|option| format!("`{command}` --{option}")));
        }
    }
    all
}

/// The string literals with more than one word, and the doc comments, of Rust; without those of its tests.
fn texts_of_code(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or(code);
    let (mut texts, mut rest) = (Vec::new(), code);
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let after = &rest[at + 1..];
        rest = match rest.as_bytes()[at] {
            b'"' => {
                let end = end_of_literal(after);
                texts.push(joined(&after[..end]));
                after.get(end + 1..).unwrap_or_default()
            }
            b'/' if after.starts_with('/') => {
                let end = after.find('\n').unwrap_or(after.len());
                if after.starts_with("//") || after.starts_with("/!") {
                    texts.push(after[2..end].to_owned());
                }
                &after[end..]
            }
            // A character, which may be a quote; or a lifetime.
            b'\'' if after.starts_with("\"'") => &after[2..],
            b'\'' if after.starts_with("\\\"'") => &after[3..],
            _ => after,
        };
    }
    // One word is an argument of a command; style sheets have variables with such names.
    texts.retain(|text| text.trim().contains(' ') && !text.contains("{color-scheme:"));
    texts
}

fn end_of_literal(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(text.len())
}

/// A literal without the breaks of its lines that end with a backslash.
fn joined(literal: &str) -> String {
    let mut parts = literal.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start())
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => files(&entry, extension, found),
            false => found.extend(Some(entry).filter(|file| file.extension().is_some_and(|e| e == extension))),
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn messages_and_help_name_options_that_exist() {
    let (known, mut sources) = (CommandLines::new(), Vec::new());
    for member in fs::read_dir(root().join("crates")).unwrap() {
        let folder = member.unwrap().path().join("src");
        // These run other programs, or are run by maintainers.
        if !["corpus", "oracle"].iter().any(|name| folder.ends_with(format!("{name}/src"))) {
            files(&folder, "rs", &mut sources);
        }
    }
    assert!(sources.len() > 300, "{}", sources.len());
    let own = Path::new(file!()).file_name();
    sources.retain(|file| file.file_name() != own && !file.to_string_lossy().contains("/lab/src/experiments/"));
    let mut all = Vec::new();
    for file in sources {
        for text in texts_of_code(&fs::read_to_string(&file).unwrap()) {
            all.extend(wrong(&text, &known).into_iter().map(|wrong| format!("{}: {wrong} in: {text}", file.display())));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn pages_of_the_guide_name_options_that_exist() {
    let (known, others, mut pages) = (CommandLines::new(), others(), Vec::new());
    files(&root().join("docs/guide/src"), "md", &mut pages);
    let mut all = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let about = about(&text, &known);
        for line in text.lines() {
            // A program of the corpus, with its own options.
            if line.contains("./bzip2") {
                continue;
            }
            let is_about = |option: &str| about.iter().any(|command| known.0[command].contains(option));
            let foreign = options(line).filter(|option| known.has(option) && !others.contains(option) && !is_about(option));
            let foreign = foreign.map(|option| format!("--{option} of no command that the page names"));
            all.extend(wrong(line, &known).into_iter().chain(foreign).map(|wrong| format!("{}: {wrong} in: {line}", page.display())));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn pages_of_the_handbook_name_options_that_exist() {
    let (known, mut pages) = (CommandLines::new(), Vec::new());
    files(&root().join("docs/handbook/src"), "md", &mut pages);
    assert!(pages.len() > 20, "{}", pages.len());
    let mut all = Vec::new();
    for page in pages {
        // The page on the papers shortens the name of the laboratory.
        let text = fs::read_to_string(&page).unwrap().replace("`lab ", "`trodden-lab ");
        for line in text.lines() {
            all.extend(wrong(line, &known).into_iter().map(|wrong| format!("{}: {wrong} in: {line}", page.display())));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The commands that a page names.
fn about(page: &str, known: &CommandLines) -> BTreeSet<String> {
    let words = |typed: &str| typed.split(' ').filter(|word| !word.starts_with('-')).map(str::to_owned).collect::<Vec<_>>();
    let named = |(program, typed): (&str, &str)| known.command(program, words(typed).iter().map(|w| w.trim_end_matches(['.', ',', ':'])));
    commands(page).into_iter().map(named).collect()
}

#[test]
fn wrong_options_are_found() {
    let known = CommandLines::new();
    let found = |text: &str| wrong(text, &known);
    assert_eq!(found("take --no-such-thing, or `trodden report --top 3`"), ["--no-such-thing"]);
    assert_eq!(found("`trodden report --machines 2`"), ["`trodden report` --machines"]);
    assert_eq!(found("trodden-lab with --machines 2 -- trace record --plan -- ./prog"), ["`trodden trace record` --plan"]);
    assert_eq!(found("trodden-lab with --machines 2 -- trace record --runs 2 -- ./prog"), [""; 0]);
    let code = "fn f() { let quote = '\"'; note(\"give \\\"--one\\\" \\\n    --two now\"); } // no --three\n/// A --four\n\
        #[cfg(test)]\nmod tests { const A: &str = \"a --five\"; }";
    assert_eq!(texts_of_code(code), ["give \\\"--one\\\" --two now", " A --four"]);
}
