//! Measures the length of functions. A function ends at the first `}` with the same indentation as the function's first line, because
//! rustfmt formats functions in this way.

#[derive(Debug, PartialEq, Eq)]
pub struct FunctionLength {
    pub name: String,
    /// Line number of the function's first line. The first line of the file has number 1.
    pub line: usize,
    /// Number of lines without comments and empty lines.
    pub code: usize,
    /// True if a comment inside the function gives the reason for its length.
    pub has_reason: bool,
}

/// Measures all functions in a source file formatted by rustfmt, including tests and nested functions.
pub fn measure_functions(text: &str) -> Vec<FunctionLength> {
    let lines: Vec<&str> = text.lines().collect();
    let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let declared = format!("{indent})");
        let is_end = |l: &&str| **l == *end || (l.starts_with(&declared) && l.ends_with(';'));
        let is_whole = line.ends_with(['}', ';']);
        let length = if is_whole { Some(1) } else { lines[at..].iter().position(is_end).map(|n| n + 1) };
        let Some(length) = length else { continue };
        let body = &lines[at..at + length];
        let has_reason = body.iter().any(|line| line.trim_start().starts_with(super::REASON_PREFIX));
        found.push(FunctionLength { name: name.to_owned(), line: at + 1, code: body.iter().filter(is_code).count(), has_reason });
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_modifier = |w: &str| {
        w.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "default", "in"].contains(&w)
            || w.starts_with('"')
            || w.ends_with(')')
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0 && before.split_whitespace().all(is_modifier)).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_do_not_count() {
        let text = "impl A {\n    pub(crate) const fn one(&self) -> u8 {\n        // Why.\n        fn two() {}\n\n        3\n    }\n}\n\
            unsafe extern \"C\" fn three(\n    a: u8,\n) {\n}\ntrait B {\n    fn four();\n}\n// fn five() {\nlet six = |fn_| 1;\n";
        let found: Vec<(String, usize, usize)> = measure_functions(text).into_iter().map(|f| (f.name, f.line, f.code)).collect();
        let expected = [("one", 2, 4), ("two", 4, 1), ("three", 9, 4), ("four", 14, 1)];
        assert_eq!(found, expected.map(|(name, line, code)| (name.to_owned(), line, code)));
    }
}
