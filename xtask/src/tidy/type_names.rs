//! Names of types, which are unique, so that a name in any line says which type it is. It relies on rustfmt's layout: a declaration starts
//! a line, and nothing follows its opening brace, which distinguishes it from C++ in a string.

use std::collections::BTreeMap;

/// Names that several types may have, each with the reason.
const SHARED_NAMES: [(&str, &str); 1] = [("Cli", "the syntax of a binary's command line, of which each binary has one")];
/// Folder of the modules of observations, whose types have the same name in each crate that has a part of the observation.
const OBSERVATIONS: &str = "/src/observe/";

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeclarationPlace {
    file: String,
    line: usize,
}

/// Returns a line for each type in the sources of crates that has the name of an earlier one.
pub fn check(sources: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<DeclarationPlace>> = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| file.contains("/src/")) {
        for (line, name) in declarations(text) {
            places.entry(name).or_default().push(DeclarationPlace { file: file.clone(), line });
        }
    }
    let is_shared = |name: &str, places: &[DeclarationPlace]| {
        SHARED_NAMES.iter().any(|(shared, _)| *shared == name) || places.iter().all(|place| place.file.contains(OBSERVATIONS))
    };
    places.retain(|name, places| !is_shared(name, places));
    places.iter().flat_map(|(name, places)| findings(name, places)).collect()
}

fn findings<'a>(name: &'a str, places: &'a [DeclarationPlace]) -> impl Iterator<Item = String> + 'a {
    let first = &places[0];
    places[1..].iter().map(move |place| {
        let DeclarationPlace { file, line } = place;
        format!("{file}:{line}: `{name}` is also a type in {}:{}. Put the module's noun into one of the names", first.file, first.line)
    })
}

/// Finds the declarations of types, except associated types, in a formatted source. Lines are counted from 1.
fn declarations(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((keyword, name)) = declared_type(line) else { continue };
        if keyword != "type" || !is_associated(&lines[..at], indentation(line)) {
            found.push((at + 1, name));
        }
    }
    found
}

/// Returns the keyword and the name of a type that a line declares.
fn declared_type(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (keyword, rest) = line.strip_prefix("unsafe ").unwrap_or(line).split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let is_rust = match rest.rsplit_once('{') {
        Some((_, inside)) => inside.is_empty() || inside == "}",
        None => true,
    };
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&keyword) && name.starts_with(char::is_uppercase);
    (is_type && is_rust).then_some((keyword, name))
}

/// Returns true if the block that encloses a line after `before`, with that indentation, is an implementation or a trait.
fn is_associated(before: &[&str], indent: usize) -> bool {
    let is_outer = |line: &&&str| indentation(line) < indent && !["", "{", "where"].contains(&line.trim());
    let is_implementation = |line: &str| line.starts_with("impl") || line.starts_with("trait ");
    let strip = |line: &&str| line.trim_start().trim_start_matches("pub ").trim_start_matches("unsafe ").to_owned();
    before.iter().rev().find(is_outer).is_some_and(|outer| is_implementation(&strip(outer)))
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&str> {
        declarations(text).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn declarations_are_found_and_associated_types_and_strings_are_not() {
        let text = "pub struct One<'a>(&'a u8);\npub(super) enum Two {\n}\nunsafe trait Three {\n    type Item;\n}\n\
            impl<T> Three for One<T>\nwhere\n    T: Copy,\n{\n    type Item = u8;\n}\n\
            mod tests {\n    type Four = u8;\n    struct Five;\n}\n\
            const C: &str = \"\\\nstruct Guard { int at; };\nunion Word { int word; }\n\";\n// struct Six;\npub use a::structure;\n\
            pub struct Seven {}\nunion Eight {\n    a: u8,\n}\n";
        assert_eq!(names(text), ["One", "Two", "Three", "Four", "Five", "Seven", "Eight"]);
        assert_eq!(declarations("\n\nstruct A;\n"), [(3, "A")]);
    }

    #[test]
    fn second_types_of_a_name_are_found() {
        let source = |file: &str, text: &str| (file.to_owned(), text.to_owned());
        let found = |second: (String, String)| check(&[source("crates/flow/src/graph.rs", "//! x\npub struct Edge;\n"), second]);
        let line =
            "crates/trace/src/bt9.rs:1: `Edge` is also a type in crates/flow/src/graph.rs:2. Put the module's noun into one of the names";
        assert_eq!(found(source("crates/trace/src/bt9.rs", "struct Edge(u8);\n")), [line]);
        assert_eq!(found(source("crates/trace/src/bt9.rs", "struct Bt9Edge(u8);\n")), Vec::<String>::new());
        assert_eq!(found(source("crates/trace/tests/bt9.rs", "struct Edge(u8);\n")), Vec::<String>::new());
        let cli = ["crates/lab/src/cli.rs", "crates/fuzz/src/main.rs"].map(|file| source(file, "struct Cli {\n"));
        assert_eq!(check(&cli), Vec::<String>::new());
    }

    #[test]
    fn parts_of_an_observation_share_their_name_and_no_other_type_has_it() {
        let sources = ["crates/unit/src/observe/sums.rs", "crates/instrument/src/observe/sums.rs", "crates/report/src/sums.rs"]
            .map(|file| (file.to_owned(), "pub struct EventSums;\n".to_owned()));
        assert_eq!(check(&sources[..2]), Vec::<String>::new());
        assert_eq!(check(&sources).len(), 2);
    }
}
