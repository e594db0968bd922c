//! Source lines that a change touches, and the blocks that contain code of these lines.
//!
//! The input is a unified diff, as `git diff` prints it. In the *old* files, removed and replaced lines count as changed. Where lines were
//! only added, the neighbouring old lines count, because their executions may now run through the new lines. In the *new* files, added
//! lines count as changed, and so do the neighbours of lines that were only removed. Choose the side from which the program was built
//! ([`ChangedLines::from_diff`] or [`ChangedLines::from_new_files`]).

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_unit::{FunctionMap, SourcePosition, UnitMap};

/// Changed lines by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedLines {
    files: BTreeMap<String, BTreeSet<u32>>,
    /// The folder to which file names are relative, if known.
    root: Option<String>,
    /// Changed lines for which [`ChangedLines::blocks`] found a block with their code.
    found: BTreeSet<(String, u32)>,
}

/// The changes to one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChange {
    /// The old name, or `None` for a new file.
    pub old_name: Option<String>,
    /// The new name, or `None` for a removed file.
    pub new_name: Option<String>,
    /// Changed lines, numbered as in the old file.
    pub old: BTreeSet<u32>,
    /// Changed lines, numbered as in the new file.
    pub new: BTreeSet<u32>,
}

/// A diff that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// The text is not a unified diff.
    #[error("the text is not a unified diff: it has no `--- FILE` and `@@ ... @@` lines. Pass the output of `git diff`")]
    NoDiff,
    /// The diff is malformed.
    #[error("cannot parse line {line} of the diff: {what}")]
    Malformed {
        /// Line number in the diff, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl ChangedLines {
    /// Parses a unified diff, and collects the changed lines of the old files. File names are relative to `root`, if known.
    pub fn from_diff(text: &str, root: Option<&str>) -> Result<ChangedLines, DiffError> {
        // A new file has no old lines.
        ChangedLines::parse_side(text, root, |file| (file.old_name, file.old))
    }

    /// Parses a unified diff and collects the changed lines of the new files, for a program that was built from the new files.
    pub fn from_new_files(text: &str, root: Option<&str>) -> Result<ChangedLines, DiffError> {
        // A removed file has no new lines.
        ChangedLines::parse_side(text, root, |file| (file.new_name, file.new))
    }

    fn parse_side(
        text: &str,
        root: Option<&str>,
        side: impl Fn(FileChange) -> (Option<String>, BTreeSet<u32>),
    ) -> Result<ChangedLines, DiffError> {
        let mut changes = ChangedLines { root: root.map(str::to_owned), ..ChangedLines::default() };
        for (name, lines) in parse_diff(text)?.into_iter().map(side).filter(|(_, lines)| !lines.is_empty()) {
            if let Some(name) = name {
                changes.files.entry(name).or_default().extend(lines);
            }
        }
        Ok(changes)
    }

    /// Returns true if the change touches `line` of `file`. `file` is the name that the compiler recorded.
    pub fn touches_line(&self, file: &str, line: u32) -> bool {
        self.files.iter().any(|(changed, lines)| file_names_match_below(self.root.as_deref(), file, changed) && lines.contains(&line))
    }

    /// Returns the blocks of a function that contain code of changed lines, including inlined code.
    pub fn changed_blocks(&mut self, unit: &UnitMap, function: &FunctionMap) -> BTreeSet<Node> {
        let mut blocks = BTreeSet::new();
        for (at, block) in function.blocks.iter().enumerate() {
            for position in block.positions.iter().chain(&block.branch) {
                if self.mark_position(unit, *position) {
                    blocks.insert(Node(at as u32));
                }
            }
        }
        blocks
    }

    fn mark_position(&mut self, unit: &UnitMap, position: SourcePosition) -> bool {
        let Some(file) = unit.files.get(position.file as usize) else { return false };
        let mut any = false;
        for (changed, lines) in &self.files {
            if file_names_match_below(self.root.as_deref(), file, changed) && lines.contains(&position.line) {
                self.found.insert((changed.clone(), position.line));
                any = true;
            }
        }
        any
    }

    /// Returns the number of changed lines, and the number of those that [`ChangedLines::blocks`] has found in a block.
    pub fn line_counts(&self) -> (usize, usize) {
        (self.files.values().map(BTreeSet::len).sum(), self.found.len())
    }

    /// Returns the changed lines of each file.
    pub fn files(&self) -> &BTreeMap<String, BTreeSet<u32>> {
        &self.files
    }
}

/// Parses the file changes of a unified diff. An empty diff has no changes.
pub fn parse_diff(text: &str) -> Result<Vec<FileChange>, DiffError> {
    let mut files: Vec<FileChange> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut seen = text.trim().is_empty();
    while let Some((at, line)) = lines.next() {
        if let Some(old) = line.strip_prefix("--- ") {
            if let Some(new) = lines.peek().and_then(|(_, l)| l.strip_prefix("+++ ")) {
                let (old_name, new_name) = file_names(old, new);
                files.push(FileChange { old_name, new_name, ..FileChange::default() });
                seen = true;
                lines.next();
            }
        } else if line.starts_with("@@ ") {
            let malformed = |what| DiffError::Malformed { line: at + 1, what };
            let (old, new) = parse_hunk_header(line).ok_or(malformed("expected `@@ -LINE,COUNT +LINE,COUNT @@`"))?;
            let body: Vec<&str> =
                parse_hunk_lines(&mut lines, old.1, new.1).ok_or(malformed("the hunk has fewer lines than its header says"))?;
            if let Some(file) = files.last_mut() {
                file.old.extend(collect_changed_lines(b'-', old, &body));
                file.new.extend(collect_changed_lines(b'+', new, &body));
            }
        } else if line.starts_with("Binary files ") || line.starts_with("diff --git ") {
            seen = true;
        }
    }
    if seen { Ok(files) } else { Err(DiffError::NoDiff) }
}

/// Returns true if a file name recorded by the compiler ends with the components of `named`.
pub(crate) fn file_names_match(compiled: &str, named: &str) -> bool {
    let named = named.trim_start_matches("./");
    compiled.strip_suffix(named).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// Like [`file_names_match`], but for names relative to the folder `root`, if it is known. A file compiled below that folder must have
/// exactly this relative name. For a file compiled from a copy of the sources elsewhere, the last components must match.
pub(crate) fn file_names_match_below(root: Option<&str>, compiled: &str, named: &str) -> bool {
    let Some(root) = root else { return file_names_match(compiled, named) };
    match normalize(compiled).strip_prefix(root.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/')) {
        Some(rest) => rest == named.trim_start_matches("./"),
        None => file_names_match(compiled, named),
    }
}

/// Returns true if a file name recorded by the compiler is `place`, or is below the folder `place`.
pub fn is_at_or_below(compiled: &str, place: &str) -> bool {
    let place = normalize(place);
    normalize(compiled).strip_prefix(place.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Removes `.` and `..` from a path without reading the file system.
pub fn normalize(name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for (at, part) in name.split('/').enumerate() {
        match part {
            "." => {}
            "" if at > 0 => {}
            ".." if parts.last().is_some_and(|last| !last.is_empty() && *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the old and the new name of a file, or `None` for a side on which the file does not exist. git puts a prefix before each name:
/// `a/` and `b/`, or, with `diff.mnemonicPrefix`, a letter for commit, index, object or work tree. The two prefixes differ, whereas a
/// source folder is the same in both names, so a one-letter first component is removed only if the two names differ in it.
fn file_names(old: &str, new: &str) -> (Option<String>, Option<String>) {
    let (old, new) = (decode_file_name(old), decode_file_name(new));
    let letter = |name: &Option<String>| {
        let bytes = name.as_deref()?.as_bytes();
        (bytes.len() > 2 && b"abciow".contains(&bytes[0]) && bytes[1] == b'/').then(|| bytes[0])
    };
    let prefixed = match (letter(&old), letter(&new)) {
        (Some(one), Some(other)) => one != other,
        (Some(_), None) => new.is_none(),
        (None, Some(_)) => old.is_none(),
        (None, None) => false,
    };
    let name = |name: Option<String>| {
        let name = name?;
        let name = if prefixed { &name[2..] } else { &name };
        Some(name.trim_start_matches("./").to_owned())
    };
    (name(old), name(new))
}

/// Decodes a file name: either FILE followed by a tab and a time, or `"FILE"` with C escapes, which git uses for names with non-ASCII
/// bytes, quotes, backslashes or control characters. Returns `None` for `/dev/null`.
fn decode_file_name(name: &str) -> Option<String> {
    let name = match name.strip_prefix('"') {
        Some(quoted) => unquote_c_string(quoted),
        None => name.split('\t').next().unwrap_or(name).trim_end().to_owned(),
    };
    (name != "/dev/null").then_some(name)
}

fn unquote_c_string(quoted: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = quoted.bytes().peekable();
    while let Some(byte) = bytes.next().filter(|b| *b != b'"') {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        out.push(match escaped {
            None => byte,
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'v') => 11,
            Some(b'f') => 12,
            Some(b'r') => b'\r',
            Some(first @ b'0'..=b'7') => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|b| (b'0'..=b'7').contains(b)) else { break };
                    value = value.wrapping_mul(8).wrapping_add(digit - b'0');
                }
                value
            }
            Some(other) => other,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The number of the first line, and the number of lines.
type HunkRange = (u32, u32);

fn parse_hunk_header(line: &str) -> Option<(HunkRange, HunkRange)> {
    let mut words = line.split(' ');
    let _ = words.next();
    let (old, new) = (words.next()?.strip_prefix('-')?, words.next()?.strip_prefix('+')?);
    let range = |text: &str| -> Option<HunkRange> {
        match text.split_once(',') {
            Some((first, count)) => Some((first.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    Some((range(old)?, range(new)?))
}

fn parse_hunk_lines<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, mut old: u32, mut new: u32) -> Option<Vec<&'a str>> {
    let mut body = Vec::new();
    while old > 0 || new > 0 {
        let (_, line) = lines.next()?;
        match line.as_bytes().first() {
            Some(b'-') => old = old.checked_sub(1)?,
            Some(b'+') => new = new.checked_sub(1)?,
            Some(b'\\') => {}
            // Some tools write empty context lines without the leading space.
            Some(b' ') | None => (old, new) = (old.checked_sub(1)?, new.checked_sub(1)?),
            _ => return None,
        }
        body.push(line);
    }
    Some(body)
}

/// Returns the changed lines of one side of a hunk. `mark` is the character that starts the lines of that side.
fn collect_changed_lines(mark: u8, (first, count): HunkRange, body: &[&str]) -> BTreeSet<u32> {
    let mut changed = BTreeSet::new();
    // The header of a hunk with no lines on this side names the line before the hunk.
    let mut line = if count == 0 { first.saturating_add(1) } else { first };
    // Whether the current group of changed lines has lines on this side, and on the other side.
    let (mut own, mut others) = (false, false);
    let context: &str = " ";
    for text in body.iter().copied().chain([context]) {
        match text.as_bytes().first() {
            Some(b'\\') => {}
            Some(found) if *found == mark => {
                own = true;
                changed.insert(line);
                line = line.saturating_add(1);
            }
            Some(b'-' | b'+') => others = true,
            _ => {
                if others && !own {
                    changed.extend([line.saturating_sub(1), line].into_iter().filter(|l| *l > 0));
                }
                (own, others) = (false, false);
                line = line.saturating_add(1);
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(diff: &str) -> Vec<(String, Vec<u32>)> {
        let changes = ChangedLines::from_diff(diff, None).unwrap();
        changes.files.into_iter().map(|(file, lines)| (file, lines.into_iter().collect())).collect()
    }

    #[test]
    fn is_at_or_below_accepts_the_file_itself_and_folders_above_it() {
        for (compiled, place, expected) in [
            ("/home/a/src/lib.rs", "/home/a/src", true),
            ("/home/a/src/lib.rs", "/home/a/src/", true),
            ("/home/a/./src/x/../lib.rs", "/home/a/src/lib.rs", true),
            ("/home/a/src/lib.rs", "/home/a/src/li", false),
            ("/home/a/src2/lib.rs", "/home/a/src", false),
            ("/rustc/0/library/core/src/lib.rs", "/home/a/src", false),
            ("/home/a/lib.rs", "/", true),
        ] {
            assert_eq!(is_at_or_below(compiled, place), expected, "{compiled} at {place}");
        }
    }

    #[test]
    fn diff_yields_changed_old_lines() {
        let diff = "diff --git a/src/a.c b/src/a.c\n--- a/src/a.c\n+++ b/src/a.c\n@@ -3,6 +3,7 @@ int f(\n x\n-y\n+z\n+z\n u\n-v\n \
            w\n+new\n t\n@@ -20,0 +22,2 @@\n+p\n+q\n--- a/b.c\t2020-01-01\n+++ /dev/null\n@@ -1 +0,0 @@\n-only\n\\ No newline at end of \
            file\n";
        assert_eq!(lines(diff), [("b.c".to_owned(), vec![1]), ("src/a.c".to_owned(), vec![4, 6, 7, 8, 20, 21])]);
        // A removed line of code may look like a file header.
        assert_eq!(lines("--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n--- c\n d\n"), [("x".to_owned(), vec![1])]);
        assert_eq!(lines("--- /dev/null\n+++ b/new.c\n@@ -0,0 +1 @@\n+x\n"), []);
        assert_eq!(lines(""), []);
        assert_eq!(lines("--- a/x\n+++ b/x\n@@ -4294967295,0 +1 @@\n+x\n"), [("x".to_owned(), vec![u32::MAX - 1, u32::MAX])]);
    }

    #[test]
    fn diff_yields_changed_new_lines() {
        let diff = "--- a/x.c\n+++ b/x.c\n@@ -3,6 +5,6 @@ int f(\n x\n-y\n+z\n+++ b/code.c\n u\n-v\n w\n t\n@@ -20,2 +22,0 \
            @@\n-p\n-q\n--- a/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-only\n";
        let files = parse_diff(diff).unwrap();
        let names = |f: &FileChange| (f.old_name.clone().unwrap_or_default(), f.new_name.clone().unwrap_or_default());
        assert_eq!(files.iter().map(names).collect::<Vec<_>>(), [("x.c".into(), "x.c".into()), ("gone.c".into(), String::new())]);
        // Context lines are not changed. Where lines were only removed, the neighbouring lines are changed.
        assert_eq!(files[0].new, BTreeSet::from([6, 7, 8, 9, 22, 23]));
        assert_eq!(files[0].old, BTreeSet::from([4, 6, 20, 21]));
    }

    #[test]
    fn new_lines_match_by_compiled_file_name() {
        let changes = ChangedLines::from_new_files("--- a/src/x.c\n+++ b/src/x.c\n@@ -3,0 +4,2 @@\n+p\n+q\n", Some("/p")).unwrap();
        assert!(changes.touches_line("/p/src/x.c", 4) && changes.touches_line("/p/src/x.c", 5));
        assert!(!changes.touches_line("/p/src/x.c", 3) && !changes.touches_line("/p/x.c", 4));
    }

    #[test]
    fn text_that_is_not_a_diff_is_rejected() {
        assert_eq!(ChangedLines::from_diff("hello\n", None), Err(DiffError::NoDiff));
        for (diff, line) in [("--- a\n+++ b\n@@ -1,3 +1 @@\n-x\n", 3), ("--- a\n+++ b\n@@ nothing @@\n", 3)] {
            assert!(matches!(ChangedLines::from_diff(diff, None), Err(DiffError::Malformed { line: l, .. }) if l == line), "{diff}");
        }
    }

    #[test]
    fn file_names_match_by_last_components() {
        assert!(file_names_match("/build/prog/src/a.c", "src/a.c") && file_names_match("a.c", "a.c"));
        assert!(file_names_match("x.c", "./x.c") && file_names_match("/a/x.c", "/a/x.c"));
        assert!(!file_names_match("/build/xsrc/a.c", "src/a.c") && !file_names_match("/build/a.c", "src/a.c"));
    }

    #[test]
    fn names_are_unquoted_and_prefixes_removed() {
        let names = |old: &str, new: &str| {
            let (old, new) = file_names(old, new);
            (old.unwrap_or_default(), new.unwrap_or_default())
        };
        let both = |name: &str| (name.to_owned(), name.to_owned());
        assert_eq!(names(r#""a/src/b\303\244r.c""#, r#""b/src/b\303\244r.c""#), both("src/bär.c"));
        assert_eq!(names(r#""a/a\"b\\c\td.c""#, r#""b/a\"b\\c\td.c""#), both("a\"b\\c\td.c"));
        assert_eq!(names("a/my file.c\t", "b/my file.c\t"), both("my file.c"));
        // The first line has mnemonic prefixes; the second has names without prefixes.
        assert_eq!((names("i/x.c", "w/x.c"), names("c/b/x.c", "w/b/x.c")), (both("x.c"), both("b/x.c")));
        assert_eq!((names("b/x.c", "b/x.c"), names("x.c", "x.c")), (both("b/x.c"), both("x.c")));
        assert_eq!((names("/dev/null", "w/x.c").1, names("i/x.c", "/dev/null").0), ("x.c".to_owned(), "x.c".to_owned()));
    }

    #[test]
    fn file_below_known_root_must_have_exactly_this_name() {
        let is = |compiled: &str, named: &str| file_names_match_below(Some("/home/u/p"), compiled, named);
        assert!(is("/home/u/p/m.c", "m.c") && is("/home/u/p/build/../m.c", "m.c") && is("/home/u/p/src/m.c", "src/m.c"));
        assert!(!is("/home/u/p/src/m.c", "m.c") && !is("/home/u/p/build/../src/m.c", "m.c"));
        // The program was compiled from a copy elsewhere.
        assert!(is("/build/p/src/m.c", "src/m.c") && is("src/m.c", "src/m.c") && is("/home/u/p2/m.c", "m.c"));
    }
}
