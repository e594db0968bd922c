//! Checks the documentation: links work, quoted messages exist, each book's summary lists all of its pages, the guide is not too long,
//! commands in shell blocks exist, and console sessions print what the pages show.

pub mod sessions;

use crate::tidy;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use trodden_corpus::steps;

const GUIDE_FOLDER: &str = "docs/guide/src";
const HANDBOOK_FOLDER: &str = "docs/handbook/src";
/// Maximum number of pages in the guide. The summary does not count.
const MAX_GUIDE_PAGES: usize = 18;
const MAX_GUIDE_WORDS: usize = 25_000;
const MESSAGES_FILE: &str = "docs/messages.txt";
const COMMANDS_WITH_SUBCOMMANDS: &[&str] = &["coverage", "experiment", "fleet", "graph", "runs", "sequence", "suite", "trace", "waits"];
const PROGRAMS: [&str; 2] = ["trodden", "trodden-lab"];

/// Returns a message for each broken link, for each page that its book's summary lacks, and for each other fault in the pages.
pub fn check() -> Result<Vec<String>> {
    let pages = read_pages()?;
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages.iter().map(|(file, text)| (file.as_str(), heading_anchors(text))).collect();
    let mut findings = Vec::new();
    for (file, text) in &pages {
        for (line, link) in parse_links(text) {
            if let Some(problem) = find_link_problem(file, &link, &anchors) {
                findings.push(format!("{file}:{line}: {problem}"));
            }
        }
    }
    for book in [GUIDE_FOLDER, HANDBOOK_FOLDER] {
        findings.extend(check_summary(book, &pages));
    }
    findings.extend(check_guide_size(&pages));
    let messages = steps::checkout_root().join(MESSAGES_FILE);
    let messages = std::fs::read_to_string(&messages).with_context(|| format!("cannot read {}", messages.display()))?;
    findings.extend(check_messages(&pages, &messages));
    Ok(findings)
}

/// Returns a message for each unknown command or option in the pages' shell blocks. `trodden` is the path of the built program;
/// `trodden-lab` must be in the same folder.
pub fn check_commands(trodden: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut help: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (file, text) in read_pages()? {
        for (line, words) in
            parse_shell_lines(&text).into_iter().flat_map(|(line, text)| parse_invocations(&text).into_iter().map(move |w| (line, w)))
        {
            let [program, words @ ..] = &words[..] else { continue };
            let has_subcommand =
                COMMANDS_WITH_SUBCOMMANDS.contains(&words[0].as_str()) && words.get(1).is_some_and(|w| !w.starts_with('-'));
            let verb = words[..if has_subcommand { 2 } else { 1 }].join(" ");
            let named = format!("{program} {verb}");
            let known = help.entry(named.clone()).or_insert_with(|| help_text(&trodden.with_file_name(program), &verb));
            let Some(known) = known else {
                findings.push(format!("{file}:{line}: unknown command `{named}`"));
                continue;
            };
            // Arguments after `--` belong to the program that trodden starts, and the options of `cc` and `c++` are clang's.
            let own = words[1..].iter().take_while(|w| *w != "--").filter(|w| w.starts_with("--") && verb != "cc" && verb != "c++");
            let unknown = own.map(|w| w.split('=').next().unwrap_or(w)).filter(|w| !known.contains(*w));
            findings.extend(unknown.map(|option| format!("{file}:{line}: `{named}` has no option {option}")));
        }
    }
    Ok(findings)
}

fn help_text(trodden: &Path, verb: &str) -> Option<String> {
    if verb.starts_with('-') || verb == "cc" || verb == "c++" || verb == "help" {
        return Some("--help --version".into());
    }
    steps::output(Command::new(trodden).args(verb.split(' ')).arg("--help")).ok()
}

fn read_pages() -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for file in tidy::tracked_files()?.into_iter().filter(|f| f.ends_with(".md")) {
        let path = steps::checkout_root().join(&file);
        if path.is_file() {
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            pages.push((file, text));
        }
    }
    Ok(pages)
}

/// Returns all lines that are not in a fenced block, with their line numbers.
fn lines_outside_blocks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn parse_links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in lines_outside_blocks(text) {
        // `](` between backquotes is code and not a link.
        let outside: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for rest in outside.split("](").skip(1) {
            found.extend(rest.split_once(')').map(|(link, _)| (number, link.to_owned())));
        }
    }
    found
}

/// Returns the anchors by which links refer to the page's headings, as Markdown renderers generate them.
fn heading_anchors(text: &str) -> BTreeSet<String> {
    let headings = lines_outside_blocks(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| heading_anchor(line.trim_start_matches('#').trim())).collect()
}

fn heading_anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
    kept.replace(' ', "-")
}

fn find_link_problem(file: &str, link: &str, anchors: &BTreeMap<&str, BTreeSet<String>>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { file.to_owned() } else { resolve_link(Path::new(file).parent().unwrap_or(Path::new("")), path) };
    if !steps::checkout_root().join(&target).exists() {
        return Some(format!("broken link {link}: {target} does not exist"));
    }
    let is_missing = anchor.is_some_and(|anchor| anchors.get(target.as_str()).is_some_and(|known| !known.contains(anchor)));
    is_missing.then(|| format!("broken link {link}: {target} does not have this heading"))
}

fn resolve_link(folder: &Path, link: &str) -> String {
    let mut out = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out.to_string_lossy().into_owned()
}

fn check_guide_size(pages: &[(String, String)]) -> Vec<String> {
    let guide = || pages.iter().filter(|(file, _)| file.starts_with(GUIDE_FOLDER) && !file.ends_with("/SUMMARY.md"));
    let (count, words) = (guide().count(), guide().map(|(_, text)| text.split_whitespace().count()).sum::<usize>());
    let mut findings = Vec::new();
    if count > MAX_GUIDE_PAGES {
        findings.push(format!("{GUIDE_FOLDER}: the guide has {count} pages, more than {MAX_GUIDE_PAGES}. Merge some"));
    }
    if words > MAX_GUIDE_WORDS {
        findings.push(format!(
            "{GUIDE_FOLDER}: the guide has {words} words, more than {MAX_GUIDE_WORDS}. Move text that users do not need to \
            {HANDBOOK_FOLDER}"
        ));
    }
    findings
}

/// Checks the messages that the guide quotes in tables whose first column is "message": some message of the project must contain each part
/// between numbers and `...` of the quoted text. Rows that name another program, such as "(from the linker)", are exempt.
fn check_messages(pages: &[(String, String)], messages: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, text) in pages.iter().filter(|(file, _)| file.starts_with(GUIDE_FOLDER)) {
        let mut is_in_table = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_in_table = line.starts_with("| message |") || is_in_table && line.starts_with('|');
            let Some(cell) = line.split('|').nth(1).filter(|cell| is_in_table && !cell.contains("(from ")) else { continue };
            for quoted in cell.split('`').skip(1).step_by(2) {
                let parts = || quoted.split("...").flat_map(|part| part.split(|c: char| c.is_ascii_digit())).map(str::trim);
                if !messages.lines().any(|message| parts().all(|part| message.contains(part))) {
                    findings.push(format!("{file}:{number}: {MESSAGES_FILE} has no message `{quoted}`"));
                }
            }
        }
    }
    findings
}

fn check_summary(book: &str, pages: &[(String, String)]) -> Vec<String> {
    let summary_file = format!("{book}/SUMMARY.md");
    let Some((_, summary)) = pages.iter().find(|(file, _)| *file == summary_file) else {
        return vec![format!("{summary_file} is missing")];
    };
    let listed: BTreeSet<String> = parse_links(summary).into_iter().map(|(_, link)| resolve_link(Path::new(book), &link)).collect();
    let own = pages.iter().map(|(file, _)| file).filter(|file| file.starts_with(book) && **file != summary_file);
    own.filter(|file| !listed.contains(*file)).map(|file| format!("{file}: SUMMARY.md does not list it")).collect()
}

/// Returns the lines in blocks marked `sh` and the commands in blocks marked `console`, with their line numbers.
fn parse_shell_lines(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut kind = "";
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            kind = if kind.is_empty() { if mark.is_empty() { "other" } else { mark } } else { "" };
            continue;
        }
        let command = match kind {
            "sh" => Some(line),
            "console" => line.strip_prefix("$ "),
            _ => None,
        };
        found.extend(command.map(|c| (number, c.split(" #").next().unwrap_or(c).to_owned())));
    }
    found
}

/// Finds the invocations of `trodden` and `trodden-lab` in a command line, and splits each into words. Invocations of `cargo trodden` are
/// ignored, because their options are cargo's.
fn parse_invocations(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for part in line.split(['&', ';', '|', '"', '(', ')']) {
        let words: Vec<&str> = part.split_whitespace().collect();
        let Some(at) = words.iter().position(|w| PROGRAMS.contains(w)) else { continue };
        let follows_cargo = at > 0 && words[at - 1] == "cargo";
        let is_command = words[..at].iter().all(|w| w.contains('=') || *w == "sudo" || *w == "time");
        if is_command && !follows_cargo && at + 1 < words.len() {
            found.push(words[at..].iter().map(|w| (*w).to_owned()).collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_ignored() {
        assert_eq!(parse_links("a [b](c.md#d) `[x](y)`\n```\n[e](f)\n```\n"), [(1, "c.md#d".to_owned())]);
        assert_eq!(heading_anchors("# Two words: `x`\n"), BTreeSet::from(["two-words-x".to_owned()]));
        assert_eq!(resolve_link(Path::new("docs/guide/src"), "../../commands.md"), "docs/commands.md");
    }

    #[test]
    fn long_guide_is_reported() {
        let page = |number: usize, words: usize| (format!("{GUIDE_FOLDER}/{number}.md"), "word ".repeat(words));
        let pages = |count: usize, words: usize| (0..count).map(|number| page(number, words)).collect::<Vec<_>>();
        assert_eq!(check_guide_size(&pages(MAX_GUIDE_PAGES, 10)), [""; 0]);
        assert!(check_guide_size(&pages(MAX_GUIDE_PAGES + 1, 10))[0].contains("19 pages"));
        assert!(check_guide_size(&pages(1, MAX_GUIDE_WORDS + 1))[0].contains("25001 words"));
    }

    #[test]
    fn messages_that_do_not_exist_are_found() {
        let table =
            "| message | remedy |\n|---|---|\n| `{}` | x |\n| `of a linker` (from the linker) | |\n\n| else | |\n| `no message` | |\n";
        let check = |quoted: &str| {
            check_messages(
                &[(format!("{GUIDE_FOLDER}/a.md"), table.replace("{}", quoted))],
                "== crate\n{} of its {units} units have no map ({})\n",
            )
        };
        assert_eq!(check("2 of its 2 units have no map"), [""; 0]);
        assert_eq!(check("of its ... map"), [""; 0]);
        let finding = format!("{GUIDE_FOLDER}/a.md:3: {MESSAGES_FILE} has no message `2 of its maps`");
        assert_eq!(check("2 of its maps"), [finding]);
    }

    #[test]
    fn broken_links_are_found() {
        let anchors = BTreeMap::from([("ARCHITECTURE.md", BTreeSet::from(["limits".to_owned()]))]);
        assert_eq!(find_link_problem("ARCHITECTURE.md", "#limits", &anchors), None);
        assert!(find_link_problem("ARCHITECTURE.md", "#others", &anchors).is_some());
        assert!(find_link_problem("ARCHITECTURE.md", "no/such/page.md", &anchors).is_some());
        assert_eq!(find_link_problem("ARCHITECTURE.md", "https://example.org", &anchors), None);
    }

    #[test]
    fn commands_are_read_from_shell_blocks() {
        let page = "```sh\nCC=\"trodden cc\" make\ntrodden record --name a -- ./x --y  # runs it\ncargo trodden build \
            --release\n```\n```console\n$ trodden report\nno command\n```\n";
        let found: Vec<Vec<String>> = parse_shell_lines(page).iter().flat_map(|(_, line)| parse_invocations(line)).collect();
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found, [words("trodden cc"), words("trodden record --name a -- ./x --y"), words("trodden report")]);
    }
}
