//! Source text: the type of the closures that provide it, and a cache that reads each file once.
//!
//! Reports do not open source files. Their caller passes a [`SourceProvider`] closure, which may search the build folder, translate path
//! prefixes, or read an archive.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of characters in a line. Generated code has longer lines, which are truncated.
const MAX_LINE_LENGTH: usize = 2000;

/// Returns the text of a source file. The argument is the file's path in debug information. Returns `None` if the file cannot be read.
pub type SourceProvider<'s> = dyn Fn(&str) -> Option<String> + 's;

/// The printable lines of a source file.
#[derive(Debug)]
pub struct SourceFile {
    lines: Vec<String>,
    /// The original text of lines with non-ASCII characters, by line number (from 1). It is needed to convert columns.
    non_ascii: BTreeMap<u32, String>,
}

impl SourceFile {
    fn from_text(text: &str) -> SourceFile {
        let non_ascii = (1..).zip(text.lines()).filter(|(_, line)| !line.is_ascii()).map(|(number, line)| (number, line.to_owned()));
        SourceFile { lines: text.lines().map(make_printable).collect(), non_ascii: non_ascii.collect() }
    }

    /// Returns the line with the given number (from 1); `None` if there is no such line.
    pub fn line(&self, number: u32) -> Option<&str> {
        self.lines.get((number as usize).checked_sub(1)?).map(String::as_str)
    }

    /// Converts a column in a line from bytes to UTF-16 code units. Both count from 1. Returns `None` if the line has no such column.
    pub fn utf16_column(&self, number: u32, column: u32) -> Option<u32> {
        self.line(number)?;
        let Some(line) = self.non_ascii.get(&number) else { return Some(column) };
        let before = line.get(..(column as usize).checked_sub(1)?)?;
        Some(before.encode_utf16().count() as u32 + 1)
    }

    /// Returns the number of lines.
    pub fn len(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Returns true for an empty file.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// A cache that reads each file at most once. It also remembers which files could not be read.
pub struct SourceCache<'a> {
    sources: &'a SourceProvider<'a>,
    files: RefCell<BTreeMap<String, Option<Rc<SourceFile>>>>,
}

impl<'a> SourceCache<'a> {
    /// Creates an empty cache. Text that is not in the cache is requested from `sources`.
    pub fn new(sources: &'a SourceProvider<'a>) -> SourceCache<'a> {
        SourceCache { sources, files: RefCell::default() }
    }

    /// Returns a file; `None` if it cannot be read.
    pub fn file(&self, path: &str) -> Option<Rc<SourceFile>> {
        if let Some(known) = self.files.borrow().get(path) {
            return known.clone();
        }
        let read = (self.sources)(path).map(|text| Rc::new(SourceFile::from_text(&text)));
        self.files.borrow_mut().insert(path.to_string(), read.clone());
        read
    }

    /// Returns a line of a file; `None` if there is no such file or line.
    pub fn line(&self, path: &str, number: u32) -> Option<String> {
        self.file(path)?.line(number).map(str::to_string)
    }

    /// Returns the files that were requested but could not be read.
    pub fn missing(&self) -> Vec<String> {
        self.files.borrow().iter().filter(|(_, f)| f.is_none()).map(|(path, _)| path.clone()).collect()
    }
}

/// Expands tabs (stops every four columns) and replaces other control characters, which could change the terminal's state.
fn make_printable(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut column = 0;
    for c in line.chars().take(MAX_LINE_LENGTH) {
        match c {
            '\t' => {
                let stop = 4 - column % 4;
                out.extend(std::iter::repeat_n(' ', stop));
                column += stop;
                continue;
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
        column += 1;
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn columns_are_in_utf16_units() {
        let file = SourceFile::from_text("int a;\n  /* ä\u{1f600} */ x\n");
        assert_eq!((file.utf16_column(1, 5), file.utf16_column(2, 6)), (Some(5), Some(6)));
        // The first position follows a two-byte character, which has one UTF-16 code unit, and a four-byte character, which has two.
        assert_eq!((file.utf16_column(2, 16), file.utf16_column(2, 7), file.utf16_column(3, 1)), (Some(13), None, None));
    }

    #[test]
    fn each_file_is_read_once_and_missing_files_are_remembered() {
        let reads = Cell::new(0);
        let sources = |path: &str| {
            reads.set(reads.get() + 1);
            (path == "a.c").then(|| "one\n\ttwo\u{1b}[31m  \n".to_string())
        };
        let cache = SourceCache::new(&sources);
        assert_eq!(cache.line("a.c", 2).as_deref(), Some("    two\u{fffd}[31m"));
        assert_eq!((cache.line("a.c", 3), cache.line("a.c", 0), cache.line("b.c", 1), cache.line("b.c", 2)), (None, None, None, None));
        assert_eq!((cache.missing(), reads.get()), (vec!["b.c".to_string()], 2));
    }
}
