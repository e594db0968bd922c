//! Which lines a change of the sources touches, and which blocks of functions have code of them.
//!
//! Read from a unified diff, as `git diff` prints it. Of the *old* files, a line that was taken away or replaced is changed; where lines were only added, the lines before and behind
//! them are: whatever runs there may run through the new ones. Of the *new* files, lines that were added are; where lines were only taken away, their neighbours.
//! [`ChangedLines`] are of the old files, from which the program was built whose paths are known.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_unit::{FunctionMap, Position, UnitMap};

/// Changed lines by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedLines {
    files: BTreeMap<String, BTreeSet<u32>>,
    /// Lines that some block has code of.
    found: BTreeSet<(String, u32)>,
}

/// How a file differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChange {
    /// Its name before, unless it is new.
    pub old_name: Option<String>,
    /// Its name now, unless it is gone.
    pub new_name: Option<String>,
    /// Changed lines of the file as it was.
    pub old: BTreeSet<u32>,
    /// Changed lines of the file as it is now.
    pub new: BTreeSet<u32>,
}

/// A diff that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// Not a diff at all.
    #[error(
        "there is no change of a file in it (`--- FILE` and `@@ ... @@` are missing): it must be a unified diff, as `git diff` prints it"
    )]
    NoDiff,
    /// A damaged one.
    #[error("line {line} of the diff: {what}")]
    Damaged {
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl ChangedLines {
    /// Reads a unified diff. An empty one changes nothing.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn of_diff(text: &str) -> Result<ChangedLines, DiffError> {
        let mut changes = ChangedLines::default();
        for file in of_files(text)? {
            // A new file has no old lines.
            if let (Some(name), false) = (file.old_name, file.old.is_empty()) {
                changes.files.entry(name).or_default().extend(file.old);
            }
        }
        Ok(changes)
    }

    /// The blocks of a function that have code of changed lines; of callers into which such code was inlined, too.
    pub fn blocks(&mut self, unit: &UnitMap, function: &FunctionMap) -> BTreeSet<Node> {
        let mut blocks = BTreeSet::new();
        for (at, block) in function.blocks.iter().enumerate() {
            for position in block.positions.iter().chain(&block.branch) {
                if self.finds(unit, *position) {
                    blocks.insert(Node(at as u32));
                }
            }
        }
        blocks
    }

    fn finds(&mut self, unit: &UnitMap, position: Position) -> bool {
        let Some(file) = unit.files.get(position.file as usize) else { return false };
        let mut any = false;
        for (changed, lines) in &self.files {
            if is_file(file, changed) && lines.contains(&position.line) {
                self.found.insert((changed.clone(), position.line));
                any = true;
            }
        }
        any
    }

    /// Number of changed lines, and of those for which a block with their code was found.
    pub fn lines(&self) -> (usize, usize) {
        (self.files.values().map(BTreeSet::len).sum(), self.found.len())
    }

    /// The changed lines of each file.
    pub fn files(&self) -> &BTreeMap<String, BTreeSet<u32>> {
        &self.files
    }
}

/// Reads a unified diff: how files differ. An empty one changes nothing.
///
/// # Errors
/// It is none, or damaged.
pub fn of_files(text: &str) -> Result<Vec<FileChange>, DiffError> {
    let mut files: Vec<FileChange> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    let mut seen = text.trim().is_empty();
    while let Some((at, line)) = lines.next() {
        if let Some(old) = line.strip_prefix("--- ") {
            if let Some(new) = lines.peek().and_then(|(_, l)| l.strip_prefix("+++ ")) {
                files.push(FileChange { old_name: name(old, "a/"), new_name: name(new, "b/"), ..FileChange::default() });
                seen = true;
                lines.next();
            }
        } else if line.starts_with("@@ ") {
            let damaged = |what| DiffError::Damaged { line: at + 1, what };
            let (old, new) = hunk(line).ok_or(damaged("it should be `@@ -LINE,COUNT +LINE,COUNT @@`"))?;
            let body: Vec<&str> = take_hunk(&mut lines, old.1, new.1).ok_or(damaged("the change is shorter than it says"))?;
            if let Some(file) = files.last_mut() {
                file.old.extend(changed(b'-', old, &body));
                file.new.extend(changed(b'+', new, &body));
            }
        } else if line.starts_with("Binary files ") || line.starts_with("diff --git ") {
            seen = true;
        }
    }
    if seen { Ok(files) } else { Err(DiffError::NoDiff) }
}

/// Whether a compiler's name of a file means the file of this name: that one's parts are its last.
pub(crate) fn is_file(compiled: &str, named: &str) -> bool {
    let named = named.trim_start_matches("./");
    compiled.strip_suffix(named).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// `a/FILE` (`b/FILE`), as git has it, or FILE, with a time behind a tab, as others have it.
fn name(name: &str, side: &str) -> Option<String> {
    let name = name.split('\t').next().unwrap_or(name).trim_end();
    let name = name.strip_prefix('"').and_then(|n| n.strip_suffix('"')).unwrap_or(name);
    (name != "/dev/null").then(|| name.strip_prefix(side).unwrap_or(name).trim_start_matches("./").to_owned())
}

/// First line and number of lines.
type Range = (u32, u32);

/// Of the old file, and of the new one.
fn hunk(line: &str) -> Option<(Range, Range)> {
    let mut words = line.split(' ');
    let _ = words.next();
    let (old, new) = (words.next()?.strip_prefix('-')?, words.next()?.strip_prefix('+')?);
    let range = |text: &str| -> Option<Range> {
        match text.split_once(',') {
            Some((first, count)) => Some((first.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    Some((range(old)?, range(new)?))
}

fn take_hunk<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>, mut old: u32, mut new: u32) -> Option<Vec<&'a str>> {
    let mut body = Vec::new();
    while old > 0 || new > 0 {
        let (_, line) = lines.next()?;
        match line.as_bytes().first() {
            Some(b'-') => old = old.checked_sub(1)?,
            Some(b'+') => new = new.checked_sub(1)?,
            Some(b'\\') => {}
            // Some tools leave empty lines of the context empty.
            Some(b' ') | None => (old, new) = (old.checked_sub(1)?, new.checked_sub(1)?),
            _ => return None,
        }
        body.push(line);
    }
    Some(body)
}

/// The changed lines of one of the files, whose own lines are marked so.
fn changed(mark: u8, (first, count): Range, body: &[&str]) -> BTreeSet<u32> {
    let mut changed = BTreeSet::new();
    // With no lines, the place is behind the line named.
    let mut line = if count == 0 { first.saturating_add(1) } else { first };
    // In what changes together: whether lines are of this file, and whether any are of the other.
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
        let changes = ChangedLines::of_diff(diff).unwrap();
        changes.files.into_iter().map(|(file, lines)| (file, lines.into_iter().collect())).collect()
    }

    #[test]
    fn old_lines_of_a_diff_are_found() {
        let diff = "diff --git a/src/a.c b/src/a.c\n--- a/src/a.c\n+++ b/src/a.c\n@@ -3,6 +3,7 @@ int f(\n x\n-y\n+z\n+z\n u\n-v\n w\n+new\n t\n@@ -20,0 +22,2 @@\n+p\n+q\n--- a/b.c\t2020-01-01\n+++ /dev/null\n@@ -1 +0,0 @@\n-only\n\\ No newline at end of file\n";
        assert_eq!(lines(diff), [("b.c".to_owned(), vec![1]), ("src/a.c".to_owned(), vec![4, 6, 7, 8, 20, 21])]);
        // A line of code may look like a file's name.
        assert_eq!(lines("--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n--- c\n d\n"), [("x".to_owned(), vec![1])]);
        assert_eq!(lines("--- /dev/null\n+++ b/new.c\n@@ -0,0 +1 @@\n+x\n"), []);
        assert_eq!(lines(""), []);
        assert_eq!(lines("--- a/x\n+++ b/x\n@@ -4294967295,0 +1 @@\n+x\n"), [("x".to_owned(), vec![u32::MAX - 1, u32::MAX])]);
    }

    #[test]
    fn new_lines_of_a_diff_are_found() {
        let diff = "--- a/x.c\n+++ b/x.c\n@@ -3,6 +5,6 @@ int f(\n x\n-y\n+z\n+++ b/code.c\n u\n-v\n w\n t\n@@ -20,2 +22,0 @@\n-p\n-q\n--- a/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-only\n";
        let files = of_files(diff).unwrap();
        let names = |f: &FileChange| (f.old_name.clone().unwrap_or_default(), f.new_name.clone().unwrap_or_default());
        assert_eq!(files.iter().map(names).collect::<Vec<_>>(), [("x.c".into(), "x.c".into()), ("gone.c".into(), String::new())]);
        // Context is not changed; where there are only removed lines, their neighbours are.
        assert_eq!(files[0].new, BTreeSet::from([6, 7, 8, 9, 22, 23]));
        assert_eq!(files[0].old, BTreeSet::from([4, 6, 20, 21]));
    }

    #[test]
    fn what_is_no_diff_is_an_error() {
        assert_eq!(ChangedLines::of_diff("hello\n"), Err(DiffError::NoDiff));
        for (diff, line) in [("--- a\n+++ b\n@@ -1,3 +1 @@\n-x\n", 3), ("--- a\n+++ b\n@@ nothing @@\n", 3)] {
            assert!(matches!(ChangedLines::of_diff(diff), Err(DiffError::Damaged { line: l, .. }) if l == line), "{diff}");
        }
    }

    #[test]
    fn files_are_known_by_their_last_parts() {
        assert!(is_file("/build/prog/src/a.c", "src/a.c") && is_file("a.c", "a.c"));
        assert!(is_file("x.c", "./x.c") && is_file("/a/x.c", "/a/x.c"));
        assert!(!is_file("/build/xsrc/a.c", "src/a.c") && !is_file("/build/a.c", "src/a.c"));
    }
}
