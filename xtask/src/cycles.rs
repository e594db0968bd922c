//! Finds cyclic dependencies between the source files of a crate. Files in a cycle cannot be understood one at a time.
//!
//! A file depends on each file that defines an item it names, in a `use` declaration or in an expression, directly or through a re-export.
//! Dependencies between a module and its submodules are not counted, and unit tests at the end of a file are ignored. A cycle is a strongly
//! connected component with more than one file.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trodden_corpus::steps;

/// The path of a module inside its crate, which identifies the module's file. The crate root has the empty path.
type ModulePath = Vec<String>;

pub fn check() -> Result<Vec<String>> {
    let folder = steps::checkout_root().join("crates");
    let mut crates: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        crates.push(entry?.file_name().to_string_lossy().into_owned());
    }
    crates.sort();
    let mut found = Vec::new();
    for name in crates.iter().filter(|name| folder.join(name).join("src").is_dir()) {
        for cycle in find_cycles(&read_sources(&folder.join(name).join("src"))?) {
            found.push((name.clone(), cycle.join(" ")));
        }
    }
    let finding = |(name, cycle): &(String, String)| format!("crates/{name}/src: these files depend on each other in a cycle: {cycle}");
    Ok(found.iter().map(finding).collect())
}

fn read_sources(folder: &Path) -> Result<BTreeMap<ModulePath, String>> {
    let mut found = BTreeMap::new();
    let mut open = vec![(folder.to_owned(), Vec::new())];
    while let Some((place, module)) = open.pop() {
        for entry in std::fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let inner = [module.as_slice(), std::slice::from_ref(&name)].concat();
            if path.is_dir() {
                open.push((path, inner));
            } else if path.extension().is_some_and(|e| e == "rs") && !(module.is_empty() && name == "main") {
                let own = if name == "mod" || (module.is_empty() && name == "lib") { module.clone() } else { inner };
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                found.insert(own, strip_comments_and_literals(&text));
            }
        }
    }
    Ok(found)
}

fn strip_comments_and_literals(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let skipped = measure_comment_or_literal(rest);
        out.push_str(if skipped > 0 { " " } else { &rest[..c.len_utf8()] });
        rest = &rest[skipped.max(c.len_utf8())..];
    }
    out
}

/// Returns the length in bytes of the comment or literal with which `rest` begins; 0 if it begins with neither.
fn measure_comment_or_literal(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if let Some(hashes) = rest.strip_prefix('r').map(|r| r.len() - r.trim_start_matches('#').len())
        && rest[1 + hashes..].starts_with('"')
    {
        let end = format!("\"{}", "#".repeat(hashes));
        return rest[2 + hashes..].find(&end).map_or(rest.len(), |at| 2 + hashes + at + end.len());
    }
    let quote = rest.chars().next().filter(|c| *c == '"' || *c == '\'');
    // An apostrophe starts either a character literal or a lifetime.
    let is_lifetime = quote == Some('\'') && !rest[1..].starts_with('\\') && rest[1..].chars().nth(1) != Some('\'');
    let Some(quote) = quote.filter(|_| !is_lifetime) else { return 0 };
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

struct UsedNames {
    /// All paths that occur in expressions and in `use` declarations.
    paths: Vec<ModulePath>,
    imported: BTreeMap<String, ModulePath>,
    reexported: BTreeMap<String, ModulePath>,
}

fn collect_used_names(code: &str) -> UsedNames {
    let mut all = UsedNames { paths: Vec::new(), imported: BTreeMap::new(), reexported: BTreeMap::new() };
    let mut statements = code.split("use ");
    all.paths.extend(parse_paths(statements.next().unwrap_or_default()));
    let mut before = code.split("use ").next().unwrap_or_default();
    for statement in statements {
        let starts_word = before.is_empty() || before.ends_with(|c: char| c.is_whitespace() || c == ';' || c == '}');
        let (tree, rest) = statement.split_once(';').unwrap_or((statement, ""));
        if starts_word {
            let is_public = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
            for path in parse_use_tree(tree) {
                let name = path.last().cloned().unwrap_or_default();
                if is_public {
                    all.reexported.insert(name.clone(), path.clone());
                }
                all.imported.insert(name, path.clone());
                all.paths.push(path);
            }
            all.paths.extend(parse_paths(rest));
        } else {
            all.paths.extend(parse_paths(statement));
        }
        before = statement;
    }
    all
}

/// Returns all paths that a `use` tree imports. A renaming such as `a as b` is treated as `a`.
fn parse_use_tree(tree: &str) -> Vec<ModulePath> {
    let tree = tree.trim();
    let segments = |text: &str| -> ModulePath {
        let plain = text.split(" as ").next().unwrap_or(text);
        plain.split("::").map(|s| s.trim().to_owned()).filter(|s| !s.is_empty() && s != "*").collect()
    };
    let Some((head, inner)) = tree.split_once('{') else { return vec![segments(tree)] };
    let (head, inner) = (segments(head), inner.trim_end().trim_end_matches('}'));
    let (mut depth, mut parts, mut from) = (0, Vec::new(), 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let inner = parts.into_iter().filter(|p| !p.trim().is_empty()).flat_map(parse_use_tree);
    inner.map(|path| head.iter().cloned().chain(path.into_iter().filter(|s| s != "self")).collect()).collect()
}

/// Returns all paths with at least two segments in a piece of code.
fn parse_paths(code: &str) -> Vec<ModulePath> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_part(c)).filter(|word| word.contains("::"));
    words.map(|word| word.split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect()).collect()
}

/// Returns the file of this crate that defines the item to which `path` refers in the file `from`; `None` if the path leads outside the
/// crate. Imports and re-exports are followed, at most [`MAX_FOLLOWED_IMPORTS`] of them.
fn resolve_path(sources: &BTreeMap<ModulePath, UsedNames>, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
    let first = path.first()?;
    let (mut base, mut rest) = match first.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        "super" => {
            let up = path.iter().take_while(|s| *s == "super").count();
            (from[..from.len().checked_sub(up)?].to_vec(), &path[up..])
        }
        _ if sources.contains_key(&[from.as_slice(), std::slice::from_ref(first)].concat()) => (from.clone(), path),
        _ => {
            let imported = sources[from].imported.get(first).filter(|i| i.first() != Some(first) && depth < MAX_FOLLOWED_IMPORTS)?;
            return resolve_path(sources, from, &[imported, &path[1..]].concat(), depth + 1);
        }
    };
    while let Some(next) = rest.first().map(|s| [base.as_slice(), std::slice::from_ref(s)].concat()).filter(|n| sources.contains_key(n)) {
        (base, rest) = (next, &rest[1..]);
    }
    let reexported = rest.first().and_then(|name| sources.get(&base)?.reexported.get(name)).filter(|_| depth < MAX_FOLLOWED_IMPORTS);
    let onward = reexported.and_then(|path| resolve_path(sources, &base, &[path, &rest[1..]].concat(), depth + 1));
    onward.or(Some(base))
}

const MAX_FOLLOWED_IMPORTS: usize = 6;

fn find_cycles(sources: &BTreeMap<ModulePath, String>) -> Vec<Vec<String>> {
    let sources: BTreeMap<ModulePath, UsedNames> =
        sources.iter().map(|(module, code)| (module.clone(), collect_used_names(code))).collect();
    let modules: Vec<&ModulePath> = sources.keys().collect();
    let is_family = |a: &ModulePath, b: &ModulePath| a.starts_with(b) || b.starts_with(a);
    let dependencies = |from: &ModulePath| -> BTreeSet<usize> {
        let all = sources[from].paths.iter().filter_map(|path| resolve_path(&sources, from, path, 0));
        all.filter(|to| !is_family(from, to)).filter_map(|to| modules.binary_search(&&to).ok()).collect()
    };
    let graph: Vec<BTreeSet<usize>> = modules.iter().map(|module| dependencies(module)).collect();
    let names = |part: Vec<usize>| {
        let mut names: Vec<String> = part.iter().map(|at| modules[*at].join("/")).collect();
        names.sort();
        names
    };
    find_strong_components(&graph).into_iter().filter(|part| part.len() > 1).map(names).collect()
}

/// Returns the strongly connected components. It computes all nodes that each node reaches, which is fast enough for such small graphs.
fn find_strong_components(graph: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..graph.len())
        .map(|from| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(at) = open.pop() {
                open.extend(graph[at].iter().filter(|to| seen.insert(**to)));
            }
            seen
        })
        .collect();
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let mut parts = Vec::new();
    for at in 0..graph.len() {
        if !done.contains(&at) {
            let part: Vec<usize> =
                (at..graph.len()).filter(|to| *to == at || (reached[at].contains(to) && reached[*to].contains(&at))).collect();
            done.extend(part.iter().copied());
            parts.push(part);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_cycles_in(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let module = |name: &str| name.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect::<ModulePath>();
        find_cycles(&files.iter().map(|(name, code)| (module(name), strip_comments_and_literals(code))).collect())
    }

    #[test]
    fn files_that_use_each_other_are_a_cycle() {
        let two = |one: &str, other: &str| find_cycles_in(&[("", "mod a; mod b; mod c;"), ("a", one), ("b", other), ("c", "")]);
        assert_eq!(two("use crate::b::{self, B};", "fn f() { crate::a::g() }"), [["a", "b"]]);
        assert_eq!(two("use super::b::B;", "use crate::{a::{A, x::Y}, c};"), [["a", "b"]]);
        assert!(two("use crate::b::B;", "// use crate::a::A;\nfn f() -> &'static str { \"crate::a::A\" }").is_empty());
        assert!(two("use crate::b::B;", "fn f() {}\n#[cfg(test)]\nmod tests {\n use crate::a::A; }").is_empty());
    }

    #[test]
    fn nested_modules_are_allowed_and_reexports_are_followed() {
        assert!(find_cycles_in(&[("", ""), ("a", "use self::b::B; mod b;"), ("a/b", "use super::A;")]).is_empty());
        let through = [("", "pub use b::B;"), ("a", "use crate::B;"), ("b", "use crate::c::C;"), ("c", "use crate::a::A;")];
        assert_eq!(find_cycles_in(&through), [["a", "b", "c"]]);
    }
}
