//! Demangles function names, and shortens them for tables.
//!
//! Rust (legacy and v0) and C++ (Itanium) names are demangled; other names remain unchanged. The short form omits parts that rarely
//! distinguish functions: parameters, return types and template arguments. In Rust names, it also omits all but the last component of each
//! path in angle brackets.

use crate::escape;

/// The forms of a function's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemangledName {
    /// The linkage name, without a leading `\x01`.
    pub linkage: String,
    /// The demangled name, or the linkage name if it cannot be demangled.
    pub full: String,
    /// The demangled name without parameters and return type.
    pub qualified: String,
    /// The short form for tables, which also lacks template arguments.
    pub short: String,
}

impl DemangledName {
    /// Demangles and shortens a linkage name.
    pub fn from_linkage(linkage: &str) -> DemangledName {
        let linkage = linkage.strip_prefix('\u{1}').unwrap_or(linkage);
        let (full, qualified, short) = match rustc_demangle::try_demangle(linkage) {
            Ok(rust) => {
                let full = format!("{rust:#}");
                let short = shorten_rust_name(&full);
                (full.clone(), full, short)
            }
            Err(_) => match demangle_cpp_name(linkage) {
                Some(full) => {
                    let (qualified, short) = (abridge_cpp_name(&full, true), abridge_cpp_name(&full, false));
                    (full, qualified, short)
                }
                None => (linkage.to_string(), linkage.to_string(), linkage.to_string()),
            },
        };
        let escaped = |text: String| if text.contains(escape::is_unprintable) { escape::escape_line(&text) } else { text };
        DemangledName { linkage: linkage.to_string(), full: escaped(full), qualified: escaped(qualified), short: escaped(short) }
    }

    /// Returns true if `text` equals one of the four forms.
    pub fn matches(&self, text: &str) -> bool {
        self.linkage == text || self.full == text || self.qualified == text || self.short == text
    }

    /// Returns true if the qualified or short name ends with `::` followed by `text`: `Regexp::Parse` matches `re2::Regexp::Parse`.
    pub fn ends_with(&self, text: &str) -> bool {
        let ends = |name: &str| name.strip_suffix(text).is_some_and(|before| before.ends_with("::"));
        !text.is_empty() && (ends(&self.qualified) || ends(&self.short))
    }
}

/// Returns a short name for an inlined function, given its names in the debug information: the last two components of the demangled linkage
/// name, or of `name` if demangling fails.
pub fn inlined_function_name(name: &str, linkage: &str) -> String {
    let demangled = DemangledName::from_linkage(linkage);
    let best = if demangled.full == demangled.linkage { name } else { &demangled.short };
    last_components(best, 2).to_string()
}

/// Returns the last components of a path. A `::` inside brackets does not separate components.
fn last_components(path: &str, number: usize) -> &str {
    let (mut depth, mut left) = (0i32, number);
    for (at, c) in path.char_indices().rev() {
        match c {
            '>' | ')' | '}' => depth += 1,
            '<' | '(' | '{' => depth -= 1,
            ':' if depth == 0 && path[..at].ends_with(':') => left -= 1,
            _ => {}
        }
        if left == 0 {
            return &path[at + 1..];
        }
    }
    path
}

fn demangle_cpp_name(linkage: &str) -> Option<String> {
    if !linkage.starts_with("_Z") && !linkage.starts_with("___Z") {
        return None;
    }
    cpp_demangle::Symbol::new(linkage).ok()?.demangle().ok()
}

/// Shortens `ns::Box<int>::put(int const&) const` to `ns::Box<int>::put` if `with_arguments` is true, or else to `ns::Box<..>::put`.
fn abridge_cpp_name(full: &str, with_arguments: bool) -> String {
    let mut out = String::new();
    let (mut angle, mut round) = (0usize, 0usize);
    let mut rest = full;
    while let Some(c) = rest.chars().next() {
        if with_arguments && round == 0 && (angle > 0 || c == '<') && special_token(rest, &out).is_none() {
            // Template arguments are copied as they are, so parentheses in them are not counted.
            match c {
                '<' => angle += 1,
                '>' if !out.ends_with('-') => angle = angle.saturating_sub(1),
                _ => {}
            }
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        if angle + round == 0 {
            if let Some(kept) = special_token(rest, &out) {
                out.push_str(kept);
                rest = &rest[kept.len()..];
                continue;
            }
            if rest.starts_with(" [clone") || rest.starts_with("[abi:") {
                break;
            }
        }
        match c {
            '<' => {
                if angle + round == 0 {
                    out.push_str("<..>");
                }
                angle += 1;
            }
            '>' => angle = angle.saturating_sub(1),
            '(' => round += 1,
            ')' => {
                round = round.saturating_sub(1);
                if angle + round == 0 && !rest.starts_with(")::") && !out.is_empty() {
                    break; // Only qualifiers follow the parameters.
                }
            }
            ' ' if rest.starts_with(" <") => {}
            ' ' if angle + round == 0 && !out.ends_with("operator") => out.clear(), // The text so far is the return type.
            c if angle + round == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    if out.is_empty() { full.to_string() } else { out }
}

/// If `rest` starts with a token in which `<`, `>`, `(` or `)` is not a bracket, such as `operator<<`, returns this token. `before` is the
/// text before `rest`.
fn special_token<'a>(rest: &'a str, before: &str) -> Option<&'a str> {
    const CPP_OPERATORS: [&str; 12] = [
        "operator<<=",
        "operator>>=",
        "operator<=>",
        "operator->*",
        "operator()",
        "operator<<",
        "operator>>",
        "operator->",
        "operator<=",
        "operator>=",
        "operator<",
        "operator>",
    ];
    const SPECIAL_NAMES: [&str; 2] = ["(anonymous namespace)", "{lambda"];
    let boundary = before.is_empty() || before.ends_with(':');
    let operator = CPP_OPERATORS.iter().find(|o| boundary && rest.starts_with(**o));
    let part = SPECIAL_NAMES.iter().find(|p| rest.starts_with(**p));
    operator.or(part).map(|found| match *found {
        "{lambda" => &rest[..rest.find('}').map_or(rest.len(), |at| at + 1)],
        found => &rest[..found.len()],
    })
}

/// Shortens `<alloc::vec::Vec<u8> as core::ops::drop::Drop>::drop` to `<Vec as Drop>::drop`.
fn shorten_rust_name(full: &str) -> String {
    let Some(inner) = full.strip_prefix('<') else { return strip_generics(full) };
    let Some(end) = find_closing_bracket(inner) else { return full.to_string() };
    let (head, tail) = (&inner[..end], &inner[end + 1..]);
    let components: Vec<String> = head.split(" as ").map(|part| last_component(&strip_generics(part))).collect();
    format!("<{}>{}", components.join(" as "), strip_generics(tail))
}

/// Returns the index of the `>` that closes a `<` immediately before `text`.
fn find_closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 1usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
        before = c;
    }
    None
}

fn strip_generics(text: &str) -> String {
    let (mut out, mut depth, mut before) = (String::new(), 0usize, ' ');
    for c in text.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    out.replace("::::", "::").trim_end_matches("::").to_string()
}

/// Returns the last component of a path. Keeps leading `&`, `*`, `[`, `(` and spaces.
fn last_component(path: &str) -> String {
    let sigils: String = path.chars().take_while(|c| "&*[( ".contains(*c)).collect();
    format!("{sigils}{}", path[sigils.len()..].rsplit("::").next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_unchanged() {
        let name = DemangledName::from_linkage("\u{1}main");
        assert_eq!((name.linkage.as_str(), name.full.as_str(), name.short.as_str()), ("main", "main", "main"));
        assert_eq!(DemangledName::from_linkage("_Znonsense").full, "_Znonsense");
    }

    #[test]
    fn cpp_names_are_shortened() {
        let name = DemangledName::from_linkage("_ZNSt6vectorIiSaIiEE9push_backERKi");
        assert_eq!(name.full, "std::vector<int, std::allocator<int> >::push_back(int const&)");
        assert_eq!(name.short, "std::vector<..>::push_back");
        assert_eq!(name.qualified, "std::vector<int, std::allocator<int> >::push_back");
        assert!(name.matches("std::vector<..>::push_back") && name.matches("_ZNSt6vectorIiSaIiEE9push_backERKi"));
    }

    #[test]
    fn brackets_of_operators_are_part_of_the_name() {
        assert_eq!(abridge_cpp_name("std::ostream& ns::operator<< <int>(std::ostream&, ns::Box<int> const&)", false), "ns::operator<<<..>");
        assert_eq!(abridge_cpp_name("std::ostream& ns::operator<< <int>(std::ostream&, ns::Box<int> const&)", true), "ns::operator<<<int>");
        assert_eq!(
            abridge_cpp_name("void call<std::function<int (char)> >(std::function<int (char)>)", true),
            "call<std::function<int (char)> >"
        );
        assert_eq!(abridge_cpp_name("re2::Regexp::Parse(re2::StringPiece const&)", true), "re2::Regexp::Parse");
        assert_eq!(abridge_cpp_name("ns::Call::operator()(int) const", false), "ns::Call::operator()");
        assert_eq!(abridge_cpp_name("(anonymous namespace)::twice(int)", false), "(anonymous namespace)::twice");
        assert_eq!(abridge_cpp_name("main::{lambda(int)#1}::operator()(int) const", false), "main::{lambda(int)#1}::operator()");
        assert_eq!(abridge_cpp_name("std::string const& ns::name<int>(int) const", false), "ns::name<..>");
    }

    #[test]
    fn names_of_inlined_functions_have_two_components() {
        assert_eq!(inlined_function_name("push_back", "_ZNSt6vectorIiSaIiEE9push_backERKi"), "vector<..>::push_back");
        assert_eq!(inlined_function_name("smaller", ""), "smaller");
        assert_eq!(last_components("<Vec as a::b::Drop>::drop", 1), "drop");
        assert_eq!(last_components("a::main::{lambda(b::c)#1}::operator()", 2), "{lambda(b::c)#1}::operator()");
    }

    #[test]
    fn rust_names_lose_hash_and_generics() {
        assert_eq!(DemangledName::from_linkage("_ZN4core3fmt5write17h0123456789abcdefE").full, "core::fmt::write");
        assert_eq!(shorten_rust_name("<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop"), "<Vec as Drop>::drop");
        assert_eq!(shorten_rust_name("core::iter::Iterator::map::<u8, fn(u8) -> u8>"), "core::iter::Iterator::map");
    }
}
