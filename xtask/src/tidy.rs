//! Checks of sources that no compiler makes: headers, unfinished work, terms, purity of the core, dependencies of crates.
//!
//! The map in ARCHITECTURE.md has the crates by rooms, in the order in which they may depend on each other, and is held to here.

mod functions;
mod messages;
mod terms;

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use trodden_corpus::steps;

/// Longer files need a reason: a line of their head that starts with [`REASON`].
const LONG: usize = 500;
/// Longer files are several.
const MAX_LENGTH: usize = 700;
/// Longer functions need a reason, in a comment of their own: lines of code, without comments and empty lines.
const LONG_FUNCTION: usize = 50;
/// Longer functions are several.
const MAX_FUNCTION: usize = 80;
/// How the reason for a length starts.
const REASON: &str = "// Length: ";
/// Longer lines are not read to their end.
const WIDE: usize = 140;
/// Longer lines of prose are several; a row of a table is one line.
const WIDE_PROSE: usize = 160;
/// What newcomers read first fits two screens: [`TWO_SCREENS`] lines of [`WIDE`] columns, tables and all.
const FIRST_READ: [&str; 2] = ["README.md", "ARCHITECTURE.md"];
const TWO_SCREENS: usize = 110;
/// Signs of unfinished work. Spelled apart, or this file would have them.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];
/// Paths that exist on one machine only.
const PRIVATE_PATHS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
/// Files in which white space at the end of a line means nothing, and that no formatter cares for.
const STRIPPED: &[&str] = &[".sh", ".toml", ".c", ".js", ".css"];
/// Crates that are pure.
const PURE: &[&str] = &[
    "crates/flow/src/",
    "crates/selective/src/",
    "crates/partition/src/",
    "crates/witness/src/",
    "crates/coding/src/",
    "crates/hardware/src/",
    "crates/sequence/src/",
    "crates/waits/src/",
];
/// What the pure core must not use.
const IMPURE: &[&str] = &["std::fs", "std::env", "std::time", "std::process", "std::net", "std::io"];
/// Crates whose work needs unsafe code.
const UNSAFE: &[&str] = &["trodden-runtime", "trodden-instrument", "trodden-trace", "trodden-qemu-plugin", "trodden-waits-recorder"];
/// Crates that may hide errors' kinds.
const ANYHOW: &[&str] = &[
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

/// All findings, a line each.
///
/// # Errors
/// git or cargo cannot be asked, or a file not be read.
pub fn check() -> Result<Vec<String>> {
    let (mut findings, mut sources) = (Vec::new(), Vec::new());
    for file in files()? {
        let Ok(text) = std::fs::read_to_string(steps::root().join(&file)) else { continue };
        findings.extend(check_text(&file, &text));
        findings.extend(terms::check(&file, &text));
        if file.ends_with(".rs") {
            findings.extend(check_rust(&file, &text));
            sources.push((file, text));
        }
    }
    findings.extend(messages::check(&sources)?);
    findings.extend(check_crates()?);
    Ok(findings)
}

/// Files that git has or would add.
///
/// # Errors
/// git failed.
pub fn files() -> Result<Vec<String>> {
    let mut command = Command::new("git");
    // A fresh checkout may belong to another user.
    command.current_dir(steps::root()).args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]);
    Ok(steps::output(&mut command)?.lines().map(str::to_owned).collect())
}

/// The command's sources, and those of them that print what may pass as it is: bytes of files, what programs print, our own words.
const COMMAND: &str = "crates/trodden/src/";
const OWN_OUTPUT: [&str; 3] = ["commands/manual.rs", "commands/trace/record.rs", "commands/copies.rs"];

/// Crates that may print and ask the environment: programs, code in the subject and in the compiler, tools of maintainers.
const OUTER: &[&str] =
    &["console", "corpus", "fuzz", "instrument", "lab", "oracle", "qemu-plugin", "runtime", "testkit", "trodden", "waits-recorder"];
/// What the other crates must not use: they return values, write to writers that they are given, report through `log`, and are handed
/// what they need of the environment.
const OUTER_ONLY: &[&str] =
    &["println!", " print!(", "io::stdout()", "io::stderr()", "env::var", "env::temp_dir", "env::current_dir", "env::args"];
/// Files that still take the folder of temporary files, or PATH, from the environment.
const ASKING: &[&str] = &[
    "crates/profile/src/store.rs",
    "crates/profile/src/private.rs",
    "crates/trace/src/programs.rs",
    "crates/analysis/src/field/aggregate.rs",
];

/// Crates that create folders within temporary ones.
const WITH_TEMPORARY_FOLDERS: &[&str] = &["analysis", "coverage", "distributed", "driver", "recording", "trace"];

/// Rooms of the command, and the rooms that they know nothing of.
const CLOSED: [(&str, &[&str]); 1] = [("cli/", &["commands"])];

fn check_text(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut say = |what: String| findings.push(format!("{file}:{number}: {what}"));
        for word in UNFINISHED.iter().filter(|w| line.contains(**w)) {
            say(format!("unfinished work: {word}"));
        }
        for path in PRIVATE_PATHS.iter().filter(|p| line.contains(**p)) {
            say(format!("a path of one machine: {path}"));
        }
        if line.starts_with(concat!("<<<<", "<<< ")) {
            say("a merge that was not finished".into());
        }
        if line.ends_with([' ', '\t']) && STRIPPED.iter().any(|end| file.ends_with(end)) {
            say("white space at the end of the line".into());
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(format!("{file}: the last line has no end"));
    }
    let is_source = [".rs", ".js", ".css", ".toml"].iter().any(|end| file.ends_with(end)) && !file.starts_with("corpus/");
    if is_source || FIRST_READ.contains(&file) {
        let wide = (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > WIDE);
        findings.extend(wide.map(|(number, _)| format!("{file}:{number}: more than {WIDE} columns")));
    }
    let length = text.lines().count();
    if FIRST_READ.contains(&file) && length > TWO_SCREENS {
        findings.push(format!("{file}: {length} lines, more than the {TWO_SCREENS} of two screens"));
    }
    if file.ends_with(".md") && !FIRST_READ.contains(&file) && !file.starts_with("docs/benchmarks/") {
        findings.extend(wide_prose(text).into_iter().map(|line| format!("{file}:{line}: more than {WIDE_PROSE} columns")));
    }
    findings
}

/// Numbers of the lines of Markdown that are too wide, but of tables and of what is quoted from elsewhere.
fn wide_prose(text: &str) -> Vec<usize> {
    let mut quoted = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        quoted ^= line.trim_start().starts_with("```");
        if !quoted && !line.starts_with('|') && line.chars().count() > WIDE_PROSE {
            found.push(number);
        }
    }
    found
}

fn check_rust(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{file}: begin it with `//!` and what it is for"));
    }
    let length = text.lines().count();
    let has_reason = text.lines().take_while(|line| line.starts_with("//") || line.is_empty()).any(|line| line.starts_with(REASON));
    if length > if has_reason { MAX_LENGTH } else { LONG } {
        findings.push(format!("{file}: {length} lines, more than {LONG}: split it by meaning"));
    }
    let long = functions::lengths(text).into_iter().filter(|f| f.code > if f.has_reason { MAX_FUNCTION } else { LONG_FUNCTION });
    findings
        .extend(long.map(|f| format!("{file}:{}: `{}` has {} lines, more than {LONG_FUNCTION}: name its steps", f.line, f.name, f.code)));
    if PURE.iter().any(|folder| file.starts_with(folder)) {
        let impure = IMPURE.iter().filter(|word| text.contains(**word));
        findings.extend(impure.map(|word| format!("{file}: uses {word}, but the core is pure (ARCHITECTURE.md, invariants)")));
    }
    let library = file.strip_prefix("crates/").and_then(|inner| inner.split_once("/src/")).map(|(name, _)| name);
    if library.is_some_and(|name| !OUTER.contains(&name)) && !ASKING.contains(&file) && !file.ends_with("_tests.rs") {
        let code = text.split("#[cfg(test)]").next().unwrap_or(text).lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code.flat_map(|line| OUTER_ONLY.iter().filter(move |word| line.contains(**word)));
        findings.extend(found.map(|word| format!("{file}: uses {word}, but libraries neither print nor ask the environment")));
    }
    if library.is_some_and(|name| WITH_TEMPORARY_FOLDERS.contains(&name)) {
        let code = text.split("#[cfg(test)]").next().unwrap_or(text);
        if code.contains("create_dir_all") {
            findings.push(format!("{file}: take trodden_profile::temporary::create_folders, which does not create removed folders again"));
        }
    }
    if file.starts_with(COMMAND) && !OWN_OUTPUT.contains(&&file[COMMAND.len()..]) {
        let raw = text.lines().filter(|line| ["stdout().lock()", "stdout().write", "println!"].iter().any(|word| line.contains(word)));
        findings.extend(raw.map(|line| format!("{file}: `{}` lets names steer the terminal: take `crate::output`", line.trim())));
    }
    for (room, closed) in CLOSED.iter().filter(|(room, _)| file.strip_prefix(COMMAND).is_some_and(|inner| inner.starts_with(room))) {
        let used = closed.iter().filter(|other| text.contains(&format!("crate::{other}::")));
        findings.extend(used.map(|other| format!("{file}: `{room}` must not know `{other}/`")));
    }
    findings
}

fn check_crates() -> Result<Vec<String>> {
    let metadata = steps::output(steps::cargo().args(["metadata", "--no-deps", "--format-version=1", "--offline"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let map = std::fs::read_to_string(steps::root().join("ARCHITECTURE.md")).context("cannot read ARCHITECTURE.md")?;
    let rooms = rooms(&map);
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        findings.extend(check_dependencies(name, package, &rooms));
        findings.extend(check_roots(name, package)?);
    }
    Ok(findings)
}

/// Crates by the number of their room: the rows `| room | `crate` | what |` of the map, in which a room's name stands once.
fn rooms(architecture: &str) -> BTreeMap<String, usize> {
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

/// A crate depends only on crates of its own room, or of rooms above it.
fn check_dependencies(name: &str, package: &Value, rooms: &BTreeMap<String, usize>) -> Vec<String> {
    let short = |name: &str| name.strip_prefix("trodden-").unwrap_or(name).to_owned();
    let mut findings = Vec::new();
    // Tests and build scripts may use more.
    let normal = package["dependencies"].as_array().into_iter().flatten().filter(|d| d["kind"].is_null());
    for dependency in normal.filter_map(|d| d["name"].as_str()) {
        if dependency == "anyhow" && !ANYHOW.contains(&name) {
            findings.push(format!("{name}: uses anyhow; libraries name their errors"));
        }
        if !dependency.starts_with("trodden") {
            continue;
        }
        match (rooms.get(&short(name)), rooms.get(&short(dependency))) {
            (None, _) => findings.push(format!("{name}: is not in the map of ARCHITECTURE.md")),
            (Some(own), Some(other)) if other <= own => {}
            _ => findings.push(format!("{name}: depends on {dependency}, which the rooms of ARCHITECTURE.md do not allow")),
        }
    }
    findings
}

/// Crates that need no unsafe code forbid it.
fn check_roots(name: &str, package: &Value) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    if UNSAFE.contains(&name) {
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
            findings.push(format!("{}: lacks #![forbid(unsafe_code)]", path.strip_prefix(steps::root()).unwrap_or(path).display()));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untidy_lines_are_found() {
        let text = format!("//! x\n// {} later\nlet a = 1; \n", UNFINISHED[0]);
        let found = check_text("a.sh", &text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.sh:2: unfinished") && found[1].starts_with("a.sh:3: white space"));
        assert_eq!(check_text("a.rs", "//! x"), ["a.rs: the last line has no end"]);
        assert_eq!(check_text("a.rs", "//! x\n"), Vec::<String>::new());
    }

    #[test]
    fn wide_prose_is_found_and_tables_and_quotations_are_not() {
        let wide = "x ".repeat(81);
        let text = format!("{wide}\n| {wide}|\n```text\n{wide}\n```\n- {wide}\n");
        assert_eq!(wide_prose(&text), [1, 6]);
        assert!(check_text("docs/book/src/a.md", &text).iter().any(|f| f == "docs/book/src/a.md:6: more than 160 columns"));
    }

    #[test]
    fn what_is_read_first_fits_two_screens() {
        let row = format!("| {} |\n", "x".repeat(WIDE - 4));
        for file in FIRST_READ {
            assert_eq!(check_text(file, &row.repeat(TWO_SCREENS)), Vec::<String>::new());
            assert_eq!(check_text(file, &row.repeat(TWO_SCREENS + 1)).len(), 1);
            assert_eq!(check_text(file, &row.replace("| x", "| xx")).len(), 1);
        }
        assert_eq!(check_text("CHANGELOG.md", &row.repeat(TWO_SCREENS + 1)), Vec::<String>::new());
    }

    #[test]
    fn names_are_printed_through_one_filter() {
        let text = "//! x\nlet out = io::stdout().lock();\n";
        assert_eq!(check_rust("crates/trodden/src/commands/info.rs", text).len(), 1);
        assert_eq!(check_rust("crates/console/src/output.rs", text), Vec::<String>::new());
    }

    #[test]
    fn libraries_neither_print_nor_ask_the_environment() {
        for line in ["println!(\"x\");", "let home = std::env::var_os(\"HOME\");", "let folder = std::env::temp_dir();"] {
            let text = format!("//! x\nfn f() {{\n    {line}\n}}\n");
            assert_eq!(check_rust("crates/report/src/a.rs", &text).len(), 1, "{line}");
            assert_eq!(check_rust("crates/lab/src/a.rs", &text), Vec::<String>::new(), "{line}");
            let tests = format!("//! x\n#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
            assert_eq!(check_rust("crates/report/src/a.rs", &tests), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn syntax_knows_no_commands() {
        let text = "//! Syntax.\nuse crate::commands::report;\n";
        assert_eq!(check_rust("crates/trodden/src/cli/report.rs", text).len(), 1);
        assert_eq!(check_rust("crates/trodden/src/commands/info.rs", text), Vec::<String>::new());
    }

    #[test]
    fn the_core_is_kept_pure() {
        assert_eq!(check_rust("crates/flow/src/a.rs", "//! x\nuse std::fs;\n").len(), 1);
        assert_eq!(check_rust("crates/unit/src/a.rs", "//! x\nuse std::fs;\n").len(), 0);
        assert_eq!(check_rust("crates/unit/src/a.rs", "use std::fs;\n").len(), 1);
    }

    #[test]
    fn wide_lines_are_found() {
        let line = format!("//! {}\n", "ä".repeat(WIDE - 4));
        let wider = line.replace("//!", "//!!");
        for file in ["crates/unit/src/a.rs", "crates/report/assets/a.js", "crates/report/assets/a.css", "crates/unit/Cargo.toml"] {
            assert_eq!([check_text(file, &line).len(), check_text(file, &wider).len()], [0, 1], "{file}");
        }
        assert_eq!(check_text("corpus/inputs/a.js", &wider).len(), 0);
    }

    #[test]
    fn crates_depend_on_their_room_and_those_above() {
        let map = "| room | crate | what |\n|---|---|---|\n| pure | `crates/flow` | x |\n| | `crates/waits` | x |\n\
            | data | `crates/unit` | y |\n";
        let rooms = rooms(map);
        assert_eq!((rooms["flow"], rooms["waits"], rooms["unit"]), (1, 1, 2));
        let package = serde_json::json!({"dependencies": [{"name": "trodden-unit", "kind": null}, {"name": "anyhow", "kind": null},
            {"name": "trodden-waits", "kind": null}, {"name": "trodden-unit", "kind": "dev"}]});
        assert_eq!(check_dependencies("trodden-flow", &package, &rooms).len(), 2);
        assert_eq!(check_dependencies("trodden-other", &package, &rooms).len(), 3);
    }
}
