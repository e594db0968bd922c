//! Checks sources against rules that the compiler does not enforce: module comments, lengths of files and functions, unique type names, no
//! unfinished work, no input or output in pure code, and dependencies between crates.
//!
//! The table in ARCHITECTURE.md divides the crates into groups, called *rooms*. A crate may depend only on crates in its own room and in
//! the rooms above it.

mod functions;
mod messages;
mod type_names;

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use trodden_corpus::steps;

/// Maximum number of lines in a file that states no reason for more. A file states a reason in a leading comment that starts with
/// [`REASON_PREFIX`].
const MAX_FILE_LINES_WITHOUT_REASON: usize = 500;
const MAX_FILE_LINES: usize = 700;
/// Maximum number of lines in a function that contains no comment with a reason for more. Comments and empty lines do not count.
const MAX_FUNCTION_LINES_WITHOUT_REASON: usize = 50;
/// Maximum number of lines in any function. Comments and empty lines do not count.
const MAX_FUNCTION_LINES: usize = 80;
/// Start of a comment with the reason why a file or a function is long.
const REASON_PREFIX: &str = "// Length: ";
const MAX_COLUMNS: usize = 140;
/// Maximum width of Markdown prose in columns. Tables are exempt.
const MAX_PROSE_COLUMNS: usize = 160;
/// Documents that newcomers read first. Each must fit on two screens.
const NEWCOMER_DOCUMENTS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];
/// Maximum number of lines in such a document, tables included.
const MAX_NEWCOMER_DOCUMENT_LINES: usize = 110;
/// Words that mark unfinished work. Each is written in two parts here, so that this file does not contain it.
const MARKS_OF_UNFINISHED_TEXT: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];
/// Starts of paths that exist on only one machine.
const PRIVATE_PATHS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
/// Extensions of files that are checked for trailing white space. No formatter removes it from these files.
const TRAILING_SPACE_EXTENSIONS: &[&str] = &[".sh", ".toml", ".c", ".js", ".css"];
const PURE_SOURCES: &[&str] = &[
    "crates/flow/src/",
    "crates/selective/src/",
    "crates/partition/src/",
    "crates/witness/src/",
    "crates/coding/src/",
    "crates/hardware/src/",
    "crates/sequence/src/",
    "crates/waits/src/",
];
const IMPURE_MODULES: &[&str] = &["std::fs", "std::env", "std::time", "std::process", "std::net", "std::io"];
const UNSAFE_CRATES: &[&str] = &["trodden-runtime", "trodden-instrument", "trodden-trace", "trodden-qemu-plugin", "trodden-waits-recorder"];
const ANYHOW_CRATES: &[&str] = &[
    "trodden",
    "trodden-analysis",
    "trodden-console",
    "trodden-coverage",
    "trodden-distributed",
    "trodden-corpus",
    "trodden-driver",
    "trodden-lab",
    "trodden-recording",
    "trodden-report",
    "trodden-trace",
    "trodden-stored",
    "trodden-waits-file",
    "xtask",
];

pub fn check() -> Result<Vec<String>> {
    let (mut findings, mut sources) = (Vec::new(), Vec::new());
    for file in tracked_files()? {
        let Ok(text) = std::fs::read_to_string(steps::checkout_root().join(&file)) else { continue };
        findings.extend(check_text(&file, &text));
        if file.ends_with(".rs") {
            findings.extend(check_rust(&file, &text));
            sources.push((file, text));
        }
    }
    findings.extend(messages::check(&sources)?);
    findings.extend(type_names::check(&sources));
    findings.extend(check_crates()?);
    Ok(findings)
}

/// Returns the paths of all files that git tracks, and of all untracked files that it does not ignore.
pub fn tracked_files() -> Result<Vec<String>> {
    let mut command = Command::new("git");
    // git would refuse to read a checkout that belongs to a different user.
    command.current_dir(steps::checkout_root()).args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]);
    Ok(steps::output(&mut command)?.lines().map(str::to_owned).collect())
}

const COMMAND_SOURCES: &str = "crates/trodden/src/";
/// Files of the crate `trodden` that may write directly to standard output. The names that they print cannot contain control sequences.
const FILES_WITH_DIRECT_OUTPUT: [&str; 3] = ["commands/manual.rs", "commands/trace/record.rs", "commands/copies.rs"];

/// Crates that may print and read environment variables: programs, code that runs inside the profiled program or the compiler, and
/// maintenance tools.
const OUTER_CRATES: &[&str] =
    &["console", "corpus", "fuzz", "instrument", "lab", "oracle", "qemu-plugin", "runtime", "testkit", "trodden", "waits-recorder"];
/// Functions and macros that all other crates must not use. Instead, they return values, write to a writer that the caller passes, report
/// through the crate `log`, and take the values of environment variables as arguments.
const FUNCTIONS_OF_OUTER_CRATES: &[&str] =
    &["println!", " print!(", "io::stdout()", "io::stderr()", "env::var", "env::temp_dir", "env::current_dir", "env::args"];
/// Files of other crates that may, as an exception, read `PATH` or the path of the temporary folder from the environment.
const ENVIRONMENT_READERS: &[&str] = &[
    "crates/profile/src/store.rs",
    "crates/profile/src/private.rs",
    "crates/trace/src/privileged.rs",
    "crates/analysis/src/field/aggregate.rs",
];

/// Crates whose temporary folders may be removed while they work. They must not call `create_dir_all`, which would create such a folder
/// again.
const TEMPORARY_FOLDER_CRATES: &[&str] = &["analysis", "coverage", "distributed", "driver", "recording", "trace"];

/// Modules that the sources of the command must not use, for each of its folders.
const FORBIDDEN_MODULES: [(&str, &[&str]); 1] = [("cli/", &["commands"])];

fn check_text(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut report = |what: String| findings.push(format!("{file}:{number}: {what}"));
        for word in MARKS_OF_UNFINISHED_TEXT.iter().filter(|w| line.contains(**w)) {
            report(format!("unfinished work: {word}"));
        }
        for path in PRIVATE_PATHS.iter().filter(|p| line.contains(**p)) {
            report(format!("a path that exists on one machine only: {path}"));
        }
        if line.starts_with(concat!("<<<<", "<<< ")) {
            report("an unresolved merge conflict".into());
        }
        if line.ends_with([' ', '\t']) && TRAILING_SPACE_EXTENSIONS.iter().any(|end| file.ends_with(end)) {
            report("white space at the end of the line".into());
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(format!("{file}: no line break at the end of the file"));
    }
    let is_source = [".rs", ".js", ".css", ".toml"].iter().any(|end| file.ends_with(end)) && !file.starts_with("corpus/");
    if is_source || NEWCOMER_DOCUMENTS.contains(&file) {
        let wide = (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > MAX_COLUMNS);
        findings.extend(wide.map(|(number, _)| format!("{file}:{number}: more than {MAX_COLUMNS} columns")));
    }
    let length = text.lines().count();
    if NEWCOMER_DOCUMENTS.contains(&file) && length > MAX_NEWCOMER_DOCUMENT_LINES {
        findings.push(format!("{file}: {length} lines, more than {MAX_NEWCOMER_DOCUMENT_LINES}. Shorten the file to two screens"));
    }
    if file.ends_with(".md") && !NEWCOMER_DOCUMENTS.contains(&file) && !file.starts_with("docs/benchmarks/") {
        findings.extend(find_wide_prose(text).into_iter().map(|line| format!("{file}:{line}: more than {MAX_PROSE_COLUMNS} columns")));
    }
    findings
}

/// Returns the line numbers of prose that is too wide. Tables and fenced blocks are exempt.
fn find_wide_prose(text: &str) -> Vec<usize> {
    let mut quoted = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        quoted ^= line.trim_start().starts_with("```");
        if !quoted && !line.starts_with('|') && line.chars().count() > MAX_PROSE_COLUMNS {
            found.push(number);
        }
    }
    found
}

fn check_rust(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{file}: missing `//!` comment. Start the file with a comment that says what the file is for"));
    }
    let length = text.lines().count();
    let has_reason = text.lines().take_while(|line| line.starts_with("//") || line.is_empty()).any(|line| line.starts_with(REASON_PREFIX));
    if length > if has_reason { MAX_FILE_LINES } else { MAX_FILE_LINES_WITHOUT_REASON } {
        findings.push(format!("{file}: {length} lines, more than {MAX_FILE_LINES_WITHOUT_REASON}. Split the file by meaning"));
    }
    let long = functions::measure_functions(text)
        .into_iter()
        .filter(|f| f.code > if f.has_reason { MAX_FUNCTION_LINES } else { MAX_FUNCTION_LINES_WITHOUT_REASON });
    findings.extend(long.map(|f| {
        let (line, name, code) = (f.line, f.name, f.code);
        format!("{file}:{line}: `{name}` has {code} lines, more than {MAX_FUNCTION_LINES_WITHOUT_REASON}. Extract functions for its steps")
    }));
    if PURE_SOURCES.iter().any(|folder| file.starts_with(folder)) {
        let impure = IMPURE_MODULES.iter().filter(|word| text.contains(**word));
        findings.extend(impure.map(|word| format!("{file}: uses {word}, but the core is pure (ARCHITECTURE.md, invariants)")));
    }
    let library = file.strip_prefix("crates/").and_then(|inner| inner.split_once("/src/")).map(|(name, _)| name);
    if library.is_some_and(|name| !OUTER_CRATES.contains(&name)) && !ENVIRONMENT_READERS.contains(&file) && !file.ends_with("_tests.rs") {
        let code = text.split("#[cfg(test)]").next().unwrap_or(text).lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code.flat_map(|line| FUNCTIONS_OF_OUTER_CRATES.iter().filter(move |word| line.contains(**word)));
        findings.extend(found.map(|word| format!("{file}: uses {word}, but libraries neither print nor read the environment")));
    }
    if library.is_some_and(|name| TEMPORARY_FOLDER_CRATES.contains(&name)) {
        let code = text.split("#[cfg(test)]").next().unwrap_or(text);
        if code.contains("create_dir_all") {
            findings.push(format!(
                "{file}: uses create_dir_all, which would recreate a removed temporary folder: use \
                 trodden_profile::temporary::create_folders"
            ));
        }
    }
    if file.starts_with(COMMAND_SOURCES) && !FILES_WITH_DIRECT_OUTPUT.contains(&&file[COMMAND_SOURCES.len()..]) {
        let raw = text.lines().filter(|line| ["stdout().lock()", "stdout().write", "println!"].iter().any(|word| line.contains(word)));
        findings.extend(
            raw.map(|line| format!("{file}: `{}` can write control sequences in names to the terminal: use `crate::output`", line.trim())),
        );
    }
    let own_path = file.strip_prefix(COMMAND_SOURCES).unwrap_or_default();
    for (folder, forbidden) in FORBIDDEN_MODULES.iter().filter(|(folder, _)| own_path.starts_with(folder)) {
        let used = forbidden.iter().filter(|other| text.contains(&format!("crate::{other}::")));
        findings.extend(used.map(|other| format!("{file}: `{folder}` must not use `{other}/`")));
    }
    findings
}

fn check_crates() -> Result<Vec<String>> {
    let metadata = steps::output(steps::cargo_command().args(["metadata", "--no-deps", "--format-version=1", "--offline"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cannot parse the output of `cargo metadata`")?;
    let map = std::fs::read_to_string(steps::checkout_root().join("ARCHITECTURE.md")).context("cannot read ARCHITECTURE.md")?;
    let rooms = parse_rooms(&map);
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        findings.extend(check_dependencies(name, package, &rooms));
        findings.extend(check_unsafe_code(name, package)?);
    }
    Ok(findings)
}

/// Reads the map in ARCHITECTURE.md and returns the number of each crate's room. The map is a table with rows of the form `| room | `crate`
/// | what |`, in which only the first row of a room contains its name.
fn parse_rooms(architecture: &str) -> BTreeMap<String, usize> {
    let mut rooms = BTreeMap::new();
    let mut room = 0;
    for line in architecture.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, own, _, ""] = cells[..] else { continue };
        if let Some(own) = own.strip_prefix('`').and_then(|own| own.strip_suffix('`')) {
            room += usize::from(!name.is_empty());
            rooms.insert(own.trim_start_matches("crates/").to_owned(), room);
        }
    }
    rooms
}

/// Returns a message for each dependency of a crate that is in a room below the crate's own, and for other forbidden dependencies.
fn check_dependencies(name: &str, package: &Value, rooms: &BTreeMap<String, usize>) -> Vec<String> {
    let short = |name: &str| name.strip_prefix("trodden-").unwrap_or(name).to_owned();
    let mut findings = Vec::new();
    // Dependencies of tests and build scripts are not checked.
    let normal = package["dependencies"].as_array().into_iter().flatten().filter(|d| d["kind"].is_null());
    for dependency in normal.filter_map(|d| d["name"].as_str()) {
        if dependency == "anyhow" && !ANYHOW_CRATES.contains(&name) {
            findings.push(format!("{name}: uses anyhow. Define error types, as libraries do"));
        }
        if !dependency.starts_with("trodden") {
            continue;
        }
        match (rooms.get(&short(name)), rooms.get(&short(dependency))) {
            (None, _) => findings.push(format!("{name}: missing in the map of ARCHITECTURE.md")),
            (Some(own), Some(other)) if other <= own => {}
            _ => findings.push(format!("{name}: depends on {dependency}, which the map of ARCHITECTURE.md does not allow")),
        }
    }
    findings
}

/// Checks that each target of a package forbids unsafe code, except in the packages that need it.
fn check_unsafe_code(name: &str, package: &Value) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    if UNSAFE_CRATES.contains(&name) {
        return Ok(findings);
    }
    for target in package["targets"].as_array().into_iter().flatten() {
        let kinds: Vec<&str> = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let path = target["src_path"].as_str().unwrap_or_default();
        if !kinds.contains(&"lib") && !kinds.contains(&"bin") {
            continue;
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        if !text.contains("#![forbid(unsafe_code)]") {
            let path = Path::new(path);
            findings.push(format!(
                "{}: `#![forbid(unsafe_code)]` is missing",
                path.strip_prefix(steps::checkout_root()).unwrap_or(path).display()
            ));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untidy_lines_are_found() {
        let text = format!("//! x\n// {} later\nlet a = 1; \n", MARKS_OF_UNFINISHED_TEXT[0]);
        let found = check_text("a.sh", &text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.sh:2: unfinished") && found[1].starts_with("a.sh:3: white space"));
        assert_eq!(check_text("a.rs", "//! x"), ["a.rs: no line break at the end of the file"]);
        assert_eq!(check_text("a.rs", "//! x\n"), Vec::<String>::new());
    }

    #[test]
    fn wide_prose_is_found_and_tables_and_quotations_are_not() {
        let wide = "x ".repeat(81);
        let text = format!("{wide}\n| {wide}|\n```text\n{wide}\n```\n- {wide}\n");
        assert_eq!(find_wide_prose(&text), [1, 6]);
        assert!(check_text("docs/guide/src/a.md", &text).iter().any(|f| f == "docs/guide/src/a.md:6: more than 160 columns"));
    }

    #[test]
    fn documents_read_first_fit_on_two_screens() {
        let row = format!("| {} |\n", "x".repeat(MAX_COLUMNS - 4));
        for file in NEWCOMER_DOCUMENTS {
            assert_eq!(check_text(file, &row.repeat(MAX_NEWCOMER_DOCUMENT_LINES)), Vec::<String>::new());
            assert_eq!(check_text(file, &row.repeat(MAX_NEWCOMER_DOCUMENT_LINES + 1)).len(), 1);
            assert_eq!(check_text(file, &row.replace("| x", "| xx")).len(), 1);
        }
        assert_eq!(check_text("CHANGELOG.md", &row.repeat(MAX_NEWCOMER_DOCUMENT_LINES + 1)), Vec::<String>::new());
    }

    #[test]
    fn direct_output_of_names_is_found() {
        let text = "//! x\nlet out = io::stdout().lock();\n";
        assert_eq!(check_rust("crates/trodden/src/commands/info.rs", text).len(), 1);
        assert_eq!(check_rust("crates/console/src/output.rs", text), Vec::<String>::new());
    }

    #[test]
    fn libraries_that_print_or_read_the_environment_are_found() {
        for line in ["println!(\"x\");", "let home = std::env::var_os(\"HOME\");", "let folder = std::env::temp_dir();"] {
            let text = format!("//! x\nfn f() {{\n    {line}\n}}\n");
            assert_eq!(check_rust("crates/report/src/a.rs", &text).len(), 1, "{line}");
            assert_eq!(check_rust("crates/lab/src/a.rs", &text), Vec::<String>::new(), "{line}");
            let tests = format!("//! x\n#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
            assert_eq!(check_rust("crates/report/src/a.rs", &tests), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn syntax_that_uses_commands_is_found() {
        let text = "//! Syntax.\nuse crate::commands::report;\n";
        assert_eq!(check_rust("crates/trodden/src/cli/report.rs", text).len(), 1);
        assert_eq!(check_rust("crates/trodden/src/commands/info.rs", text), Vec::<String>::new());
    }

    #[test]
    fn impure_modules_in_pure_crates_are_found() {
        assert_eq!(check_rust("crates/flow/src/a.rs", "//! x\nuse std::fs;\n").len(), 1);
        assert_eq!(check_rust("crates/unit/src/a.rs", "//! x\nuse std::fs;\n").len(), 0);
        assert_eq!(check_rust("crates/unit/src/a.rs", "use std::fs;\n").len(), 1);
    }

    #[test]
    fn wide_lines_are_found() {
        let line = format!("//! {}\n", "ä".repeat(MAX_COLUMNS - 4));
        let wider = line.replace("//!", "//!!");
        for file in ["crates/unit/src/a.rs", "crates/report/assets/a.js", "crates/report/assets/a.css", "crates/unit/Cargo.toml"] {
            assert_eq!([check_text(file, &line).len(), check_text(file, &wider).len()], [0, 1], "{file}");
        }
        assert_eq!(check_text("corpus/inputs/a.js", &wider).len(), 0);
    }

    #[test]
    fn dependencies_on_rooms_below_are_found() {
        let map = "| room | crate | what |\n|---|---|---|\n| pure | `crates/flow` | x |\n| | `crates/waits` | x |\n\
            | data | `crates/unit` | y |\n";
        let rooms = parse_rooms(map);
        assert_eq!((rooms["flow"], rooms["waits"], rooms["unit"]), (1, 1, 2));
        let package = serde_json::json!({"dependencies": [{"name": "trodden-unit", "kind": null}, {"name": "anyhow", "kind": null},
            {"name": "trodden-waits", "kind": null}, {"name": "trodden-unit", "kind": "dev"}]});
        assert_eq!(check_dependencies("trodden-flow", &package, &rooms).len(), 2);
        assert_eq!(check_dependencies("trodden-other", &package, &rooms).len(), 3);
    }
}
