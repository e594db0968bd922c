//! Maintains `docs/messages.txt`, a list of all messages of the project by crate. Reviewers see each new message as a change of this file.
//!
//! Messages are the texts of errors, warnings and notes: the string literals in `bail!`, `ensure!`, `anyhow!`, `#[error(…)]`, the macros of
//! the crate `log`, `.context(…)`, `.with_context(…)`, and the programs' functions `note` and `warn`. Messages in tests are left out.

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use trodden_corpus::steps;

const MESSAGES_FILE: &str = "docs/messages.txt";
/// Environment variable that makes [`check`] write the list instead of comparing it.
const BLESS_VARIABLE: &str = "TRODDEN_BLESS";
const FILE_HEADER: &str = "\
All messages of the project, by crate. `cargo xtask tidy` compares this file with the sources; `TRODDEN_BLESS=1 cargo xtask tidy` renews it.
";

/// Macros in which the first string literal is a message.
const MESSAGE_MACROS: &[&str] = &["bail", "ensure", "anyhow", "error", "warn", "info"];
/// Functions that take a message as an argument. It is a string literal, or the first string literal in `format!` or `format_args!`.
const MESSAGE_FUNCTIONS: &[&str] = &["context", "with_context", "note", "warn"];

/// Compares the list in the file with the messages in the sources, or rewrites the file if [`BLESS_VARIABLE`] is set. `sources` contains
/// the path and the text of each source. Fails if the file cannot be written.
pub fn check(sources: &[(String, String)]) -> Result<Vec<String>> {
    let text = render_messages(sources);
    let path = steps::checkout_root().join(MESSAGES_FILE);
    if env::var_os(BLESS_VARIABLE).is_some_and(|value| !value.is_empty()) {
        std::fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(Vec::new());
    }
    let is_current = std::fs::read_to_string(&path).is_ok_and(|found| found == text);
    let finding = || {
        format!(
            "{MESSAGES_FILE}: differs from the sources. Read the new messages, and renew the file with {BLESS_VARIABLE}=1 cargo xtask tidy"
        )
    };
    Ok(if is_current { Vec::new() } else { vec![finding()] })
}

fn render_messages(sources: &[(String, String)]) -> String {
    let mut by_crate = BTreeMap::<&str, Vec<String>>::new();
    for (name, source) in sources {
        let Some((of, path)) = name.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else { continue };
        let is_test = path.ends_with("tests.rs") || path.contains("tests/");
        if let (false, Ok(tokens)) = (is_test, source.parse::<TokenStream>()) {
            collect_messages(tokens, by_crate.entry(of).or_default());
        }
    }
    let mut text = FILE_HEADER.to_owned();
    for (of, mut messages) in by_crate {
        messages.sort();
        messages.dedup();
        if !messages.is_empty() {
            let _ = write!(text, "\n== {of}\n");
        }
        messages.iter().for_each(|message| _ = writeln!(text, "{message}"));
    }
    text
}

/// Appends the messages in `tokens`, including those in nested groups, to `messages`.
fn collect_messages(tokens: TokenStream, messages: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        if group.delimiter() == Delimiter::Bracket && is_test_attribute(group.stream()) {
            // The item that follows this attribute is a test or a module of tests.
            return collect_outside_tests(&tokens, messages);
        }
        let before = |distance: usize| at.checked_sub(distance).map(|at| tokens[at].to_string()).unwrap_or_default();
        let (last, name) = (before(1), before(2));
        let is_macro = last == "!" && MESSAGE_MACROS.contains(&name.as_str());
        let is_error_attribute = last == "error" && name.is_empty();
        if is_macro || is_error_attribute {
            messages.extend(find_message(group.stream(), name == "ensure"));
        } else if MESSAGE_FUNCTIONS.contains(&last.as_str()) {
            messages.extend(find_message(group.stream(), false).or_else(|| find_formatted_message(group.stream())));
        }
        collect_messages(group.stream(), messages);
    }
}

/// Appends the messages in `tokens` to `messages`, skipping items that are compiled only for tests.
fn collect_outside_tests(tokens: &[TokenTree], messages: &mut Vec<String>) {
    let (mut kept, mut is_skipped) = (Vec::new(), false);
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is_test_attribute(group.stream()) => {
                is_skipped = true;
            }
            TokenTree::Group(group) if is_skipped && group.delimiter() == Delimiter::Brace => is_skipped = false,
            TokenTree::Punct(punct) if is_skipped && punct.as_char() == ';' => is_skipped = false,
            other if !is_skipped => kept.push(other.clone()),
            _ => {}
        }
    }
    collect_messages(kept.into_iter().collect(), messages);
}

fn is_test_attribute(attribute: TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "cfg(test)" || text == "test"
}

/// Returns the first argument that is a string literal. If `has_condition` is true, the first argument is a condition such as that of
/// `ensure!`, and is skipped.
fn find_message(arguments: TokenStream, has_condition: bool) -> Option<String> {
    let mut is_first = !has_condition;
    for token in arguments {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
            TokenTree::Literal(literal) if is_first => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    return Some(text.value().replace('\n', "\\n"));
                }
                is_first = false;
            }
            _ => is_first = false,
        }
    }
    None
}

/// Returns the first string literal in the first `format!` or `format_args!` that the argument contains.
fn find_formatted_message(argument: TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = argument.into_iter().collect();
    tokens.iter().enumerate().find_map(|(at, token)| {
        let TokenTree::Group(group) = token else { return None };
        let is_format = at >= 2 && ["format", "format_args"].contains(&tokens[at - 2].to_string().as_str());
        if is_format { find_message(group.stream(), false) } else { find_formatted_message(group.stream()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_outside_tests_are_found() {
        let source = r#"
            #[error("cannot read {path}: {0}")] struct A;
            fn f() -> Result<()> {
                ensure!(a == "x", "must be {}", x("no message"));
                let b = c.context("no place")?;
                d.with_context(|| format!("in {}", e))?;
                note(format_args!("{} found", plural(1, "path", "paths")));
                if f { bail!("two \
                    lines") }
                println!("no message");
            }
            #[cfg(test)]
            mod tests { fn g() { bail!("of a test"); } }
            fn h() { log::warn!("after tests") }
        "#;
        let text = render_messages(&[("crates/x/src/a.rs".into(), source.into()), ("xtask/src/b.rs".into(), source.into())]);
        let found: Vec<&str> = text.lines().skip(2).collect();
        let expected = ["== x", "after tests", "cannot read {path}: {0}", "in {}", "must be {}", "no place", "two lines", "{} found"];
        assert_eq!(found, expected);
    }
}
