//! Terms that readers outside of the project do not know, and the field's terms for them.
//!
//! Only terms without another meaning are here: whole words, in any case. The folders in [`HELD`] keep to the table; the others join the
//! list when they have been rewritten. A line that quotes such a term, or names a foreign identifier, has it in backquotes or double
//! quotes inside a comment; only the words outside of these are checked there. Complexity: linear in the text for each term.

/// Each term with its replacement.
const TERMS: &[(&str, &str)] = &[
    (concat!("like", "liest"), "most frequent"),
    (concat!("to", "ld"), "reported, known, says"),
    (concat!("unt", "old"), "unknown"),
    (concat!("way", " out"), "exit edge"),
    (concat!("ways", " out"), "exit edges"),
    (concat!("way", " through"), "path"),
    (concat!("ways", " through"), "paths"),
    (concat!("tel", "ls"), "says, reports, gives"),
    (concat!("tell", " apart"), "distinguish"),
    (concat!("an", "ew"), "again"),
    (concat!("abandon", "ment"), "unfinished path; call that does not return"),
    (concat!("aban", "doned"), "unfinished"),
    (concat!("tw", "ins"), "identical phis"),
    (concat!("h", "ub"), "dispatch block"),
    (concat!("h", "ubs"), "dispatch blocks"),
    (concat!("par", "ted"), "split"),
    (concat!("computed", " jump"), "indirect branch"),
    (concat!("computed", " jumps"), "indirect branches"),
    (concat!("we", "eded"), "filtered by known paths"),
    (concat!("crow", "ding"), "instruction-cache pressure"),
    (concat!("crow", "ded"), "instruction-cache pressure"),
    (concat!("who", "ever"), "name the subject"),
    (concat!("nob", "ody"), "name the subject"),
    (concat!("someb", "ody"), "name the subject"),
    (concat!("anyb", "ody"), "name the subject"),
    (concat!("doubt", "ful"), "uncertain; call that may not return"),
    (concat!("usual", " round"), "dominant iteration"),
    (concat!("comes", " round"), "iterates"),
    (concat!("goes", " round"), "iterates"),
    (concat!("fast", " version"), "checking code; known-path region"),
    (concat!("counted", " version"), "duplicated code; instrumented code"),
    (concat!("second", " version"), "duplicated code; instrumented code"),
    (concat!("handed", " out"), "distributed"),
    (concat!("left", " aside"), "excluded"),
];

/// Folders that keep to the table.
const HELD: &[&str] = &["crates/", "docs/book/", "xtask/", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
/// Endings of the files that are checked.
const CHECKED: &[&str] = &[".rs", ".md", ".js", ".html"];

/// Findings of one file.
pub fn check(file: &str, text: &str) -> Vec<String> {
    if !HELD.iter().any(|folder| file.starts_with(folder)) || !CHECKED.iter().any(|end| file.ends_with(end)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = checked_part(line).to_lowercase();
        let found = TERMS.iter().filter(|(term, _)| has_words(&line, term));
        findings.extend(found.map(|(term, instead)| format!("{file}:{number}: `{term}` is not a term of the field: {instead}")));
    }
    findings
}

/// A line without what a comment in it quotes. Text outside of comments is checked as it is: strings there are output.
fn checked_part(line: &str) -> String {
    let Some(comment) = line.find("//").filter(|at| !line[..*at].ends_with(':')) else { return line.to_owned() };
    let (code, comment) = line.split_at(comment);
    // A line break inside of a quotation leaves an odd number of marks: then all of the comment is checked.
    let unquoted = |text: &str, mark: char| match text.matches(mark).count() % 2 {
        0 => text.split(mark).step_by(2).collect::<Vec<_>>().join(" "),
        _ => text.to_owned(),
    };
    format!("{code}{}", unquoted(&unquoted(comment, '`'), '"'))
}

/// Whether a text has a term as whole words; underscores separate words of identifiers.
fn has_words(text: &str, term: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(term).any(|(at, found)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + found.len()..].chars().next());
        !is_letter(before) && !is_letter(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(line: &str) -> usize {
        check("crates/unit/src/a.rs", &format!("{line}\n")).len()
    }

    #[test]
    fn each_term_is_found_as_a_whole_word_in_any_case() {
        for (term, instead) in TERMS {
            let found = check("crates/unit/src/a.rs", &format!("//! x\n// It is {}.\n", term.to_uppercase()));
            assert!(matches!(&found[..], [one] if one.starts_with("crates/unit/src/a.rs:2: ") && one.ends_with(instead)), "{found:?}");
            assert_eq!(findings(&format!("// x{term}x and {term}x")), 0, "{term}");
        }
        assert_eq!(findings(&format!("let is_{}_here = \"{}\";", TERMS[4].0, TERMS[0].0)), 2);
    }

    #[test]
    fn quotations_in_comments_and_other_folders_are_excepted() {
        let term = TERMS[4].0;
        assert_eq!([findings(&format!("// The name `x {term}`.")), findings(&format!("// \"{term}\" is a title"))], [0, 0]);
        assert_eq!(
            [findings(&format!("// a ` {term}")), findings(&format!("print(\"{term}\");")), findings(&format!("// `{term}` {term}"))],
            [1, 1, 1]
        );
        assert_eq!(check("corpus/elsewhere/a.rs", &format!("// {term}\n")), Vec::<String>::new());
        assert_eq!(check("crates/unit/a.png", &format!("// {term}\n")), Vec::<String>::new());
    }
}
