//! Checks that no two types have the same name, so that a type's name is unambiguous in any line.
//!
//! Declarations are found by the layout that rustfmt produces: a declaration starts a line, and nothing follows its opening brace. C++
//! declarations in strings have a different layout.

use std::collections::BTreeMap;

/// Names that several types may have, each with the reason why.
const SHARED_NAMES: [(&str, &str); 1] = [("Cli", "the syntax of a binary's command line, of which each binary has one")];
/// Folder of modules for the kinds of data that a program's instrumentation can record. The modules for the same kind of data in different
/// crates have types of the same name.
const OBSERVATION_FOLDER: &str = "/src/observe/";

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeclarationPlace {
    file: String,
    line: usize,
}

/// Returns a message for each type in the crates whose name an earlier type already has.
pub fn check(sources: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<DeclarationPlace>> = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| file.contains("/src/")) {
        for (line, name) in find_declarations(text) {
            places.entry(name).or_default().push(DeclarationPlace { file: file.clone(), line });
        }
    }
    let is_shared = |name: &str, places: &[DeclarationPlace]| {
        SHARED_NAMES.iter().any(|(shared, _)| *shared == name) || places.iter().all(|place| place.file.contains(OBSERVATION_FOLDER))
    };
    places.retain(|name, places| !is_shared(name, places));
    places.iter().flat_map(|(name, places)| describe_duplicates(name, places)).collect()
}

fn describe_duplicates<'a>(name: &'a str, places: &'a [DeclarationPlace]) -> impl Iterator<Item = String> + 'a {
    let first = &places[0];
    places[1..].iter().map(move |place| {
        let DeclarationPlace { file, line } = place;
        format!("{file}:{line}: `{name}` is also a type in {}:{}. Put the module's noun into one of the names", first.file, first.line)
    })
}

/// Returns the line numbers and names of all types that a source file declares, except associated types. The first line has number 1.
fn find_declarations(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((keyword, name)) = parse_type_declaration(line) else { continue };
        if keyword != "type" || !is_in_implementation(&lines[..at], indentation(line)) {
            found.push((at + 1, name));
        }
    }
    found
}

/// If a line declares a type, returns the keyword and the name of the type.
fn parse_type_declaration(line: &str) -> Option<(&str, &str)> {
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

/// Returns true if a line is directly inside an implementation or a trait. `before` are the lines before it, and `indent` is its
/// indentation.
fn is_in_implementation(before: &[&str], indent: usize) -> bool {
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
        find_declarations(text).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn declarations_are_found_and_associated_types_and_strings_are_not() {
        let text = "pub struct One<'a>(&'a u8);\npub(super) enum Two {\n}\nunsafe trait Three {\n    type Item;\n}\n\
            impl<T> Three for One<T>\nwhere\n    T: Copy,\n{\n    type Item = u8;\n}\n\
            mod tests {\n    type Four = u8;\n    struct Five;\n}\n\
            const C: &str = \"\\\nstruct Guard { int at; };\nunion Word { int word; }\n\";\n// struct Six;\npub use a::structure;\n\
            pub struct Seven {}\nunion Eight {\n    a: u8,\n}\n";
        assert_eq!(names(text), ["One", "Two", "Three", "Four", "Five", "Seven", "Eight"]);
        assert_eq!(find_declarations("\n\nstruct A;\n"), [(3, "A")]);
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
