//! Writes result files, and text or JSON to standard output. All printed names of files, functions and commands pass through this module.
//!
//! Names come from file systems, images, profiles and the environment, and may contain any character. Control characters could control the
//! terminal, and bidirectional characters could deceive the reader (see `trodden_text::escape`). Text output replaces these characters, and
//! bytes that are not UTF-8, by U+FFFD. JSON output escapes the characters as `\uXXXX`, and parsers restore them. The output of traced
//! programs and of copies is not filtered.

use crate::notes::note;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::env;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use trodden_profile::atomic_file::{self, AtomicFile};
use trodden_report::escape;
use trodden_report::text::TextOptions;

/// Whether to colour output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The first error that occurred while writing to standard output.
static FIRST_OUTPUT_ERROR: OnceLock<(io::ErrorKind, String)> = OnceLock::new();

/// True if [`resolve_color`] decided to colour standard output.
static IS_COLORED: AtomicBool = AtomicBool::new(false);

/// Flushes standard output. Fails if standard output could not be written, now or earlier. An earlier error is returned because it may have
/// been lost, for example when a buffer was dropped. A reader that closed the pipe is not an error.
pub fn flush_standard_output() -> io::Result<()> {
    let flushed = io::stdout().flush().map_err(standard_output_error);
    let first = FIRST_OUTPUT_ERROR.get().map_or(flushed, |(kind, text)| Err(io::Error::new(*kind, text.clone())));
    first.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Adds context to an error, and stores it in `FIRST_OUTPUT_ERROR` if it is the first. Returns the stored error.
fn standard_output_error(error: io::Error) -> io::Error {
    let text = format!("cannot write to standard output: {error}");
    let (kind, text) = FIRST_OUTPUT_ERROR.get_or_init(|| (error.kind(), text));
    io::Error::new(*kind, text.clone())
}

/// Locks standard output for text.
pub fn text_writer() -> PrintableWriter<StdoutLock<'static>> {
    PrintableWriter { to: io::stdout().lock(), escape: |_| "\u{fffd}".to_owned(), tail: Vec::new() }
}

/// Locks standard output for JSON.
pub fn json_writer() -> PrintableWriter<StdoutLock<'static>> {
    PrintableWriter { to: io::stdout().lock(), escape: escape_in_json, tail: Vec::new() }
}

/// Locks standard output for JSON if `is_json` is true, or else for text.
pub fn text_or_json_writer(is_json: bool) -> PrintableWriter<StdoutLock<'static>> {
    if is_json { json_writer() } else { text_writer() }
}

/// A writer that replaces unprintable characters, except line breaks and tabs.
pub struct PrintableWriter<W: Write> {
    to: W,
    escape: fn(char) -> String,
    /// The incomplete UTF-8 sequence at the end of the previous write.
    tail: Vec<u8>,
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tail.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.tail);
        let mut out = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            for c in chunk.valid().chars() {
                match escape::is_unprintable(c) && !matches!(c, '\n' | '\t') {
                    true => out.push_str(&(self.escape)(c)),
                    false => out.push(c),
                }
            }
            // A character that is incomplete at the end of `bytes` may be continued by the next write.
            let is_incomplete = chunks.peek().is_none() && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
            match (chunk.invalid(), is_incomplete) {
                ([], _) => {}
                (start, true) => self.tail = start.to_vec(),
                _ => out.push('\u{fffd}'),
            }
        }
        self.to.write_all(out.as_bytes()).map_err(standard_output_error)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(standard_output_error)
    }
}

impl<W: Write> Drop for PrintableWriter<W> {
    fn drop(&mut self) {
        if !self.tail.is_empty() {
            let _ = self.to.write_all("\u{fffd}".as_bytes());
        }
    }
}

/// File name prefix of temporary files, which are renamed when they are complete.
pub const TEMPORARY_PREFIX: &str = ".trodden-";

/// Resolves `--top`: 10 results in text and all in JSON by default. Both `--top 0` and the return value 0 mean all.
pub fn max_results(top: Option<usize>, json: bool) -> usize {
    const DEFAULT_MAX_RESULTS: usize = 10;
    top.unwrap_or(if json { 0 } else { DEFAULT_MAX_RESULTS })
}

/// Number of source lines shown per path in commands that have no `--steps` option. `trodden annotate` shows all lines.
pub const DEFAULT_STEPS: usize = 24;

/// Returns options for text on standard output. `steps` is the maximum number of lines shown per path; 0 shows all.
pub fn text_options(color: Color, steps: usize) -> TextOptions {
    TextOptions { color: resolve_color(color), width: terminal_width(), steps }
}

/// Decides whether to colour standard output, and records the decision for [`printable_text`].
pub fn resolve_color(color: Color) -> bool {
    let is_colored = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            io::stdout().is_terminal()
                && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    };
    IS_COLORED.fetch_or(is_colored, Ordering::Relaxed);
    is_colored
}

fn terminal_width() -> usize {
    let columns = env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    columns.or_else(|| terminal_size::terminal_size().map(|(columns, _)| usize::from(columns.0))).unwrap_or(TextOptions::default().width)
}

/// Serialises a value as indented JSON with a final line break. JSON permits some unprintable characters in strings (DEL, C1 and
/// bidirectional controls); these are escaped, too.
pub fn json_text(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_string_pretty(value)?;
    let is_escaped = |c: char| escape::is_unprintable(c) && c != '\n';
    if text.contains(is_escaped) {
        let escaped = |c: char| if is_escaped(c) { escape_in_json(c) } else { c.to_string() };
        text = text.chars().map(escaped).collect();
    }
    text.push('\n');
    Ok(text.into_bytes())
}

fn escape_in_json(c: char) -> String {
    format!("\\u{:04x}", u32::from(c))
}

/// Prints a value as indented JSON, with unprintable characters escaped.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut out = json_writer();
    out.write_all(&json_text(value)?)?;
    Ok(out.flush()?)
}

const STANDARD_OUTPUT_NAME: &str = "-";

/// Writes a report to a file that the user named, and prints the note "`what` in `file`". The file name `-` means standard output, without
/// a note.
pub fn write_report(file: &Path, bytes: &[u8], what: &str) -> Result<()> {
    if file.as_os_str() != STANDARD_OUTPUT_NAME {
        write_file(file, bytes)?;
        note(format_args!("{what} in {}", file.display()));
        return Ok(());
    }
    print(bytes)
}

/// Returns the file to write, or `None` for standard output, which the user may also select by `-`.
pub fn destination(file: Option<&Path>) -> Option<&Path> {
    file.filter(|file| file.as_os_str() != STANDARD_OUTPUT_NAME)
}

/// Writes a file that the user named. If writing fails, an existing file remains as it was.
pub fn write_file(file: &Path, bytes: &[u8]) -> Result<()> {
    atomic_file::write(file, TEMPORARY_PREFIX, |out| out.write_all(bytes)).with_context(|| format!("cannot write {}", file.display()))
}

/// An output file that the user named. It appears under its name only when it is complete.
#[derive(Debug)]
pub struct OutputFile {
    out: BufWriter<File>,
    file: AtomicFile,
    path: PathBuf,
}

impl OutputFile {
    /// Creates a temporary file, which [`OutputFile::finish`] renames to `path`.
    pub fn create(path: &Path) -> Result<OutputFile> {
        let create = || {
            let file = AtomicFile::create(path, TEMPORARY_PREFIX)?;
            Ok::<_, io::Error>(OutputFile { out: BufWriter::new(file.file().try_clone()?), file, path: path.to_owned() })
        };
        create().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Flushes the temporary file and renames it.
    pub fn finish(mut self) -> Result<()> {
        self.out.flush().and_then(|()| self.file.finish()).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prints bytes to standard output. A reader that closed the pipe is not an error.
pub fn print(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.map_err(standard_output_error)?),
    }
}

/// Prints a command's result as JSON or text.
pub fn print_result(as_json: bool, json: impl FnOnce() -> Result<Vec<u8>>, text: impl FnOnce() -> Result<String>) -> Result<()> {
    if as_json { print(&json()?) } else { print_text(&text()?) }
}

/// Writes bytes to a file. Prints them if `file` is `None` or `-`.
pub fn write_or_print(file: Option<&Path>, bytes: &[u8]) -> Result<()> {
    destination(file).map_or_else(|| print(bytes), |file| write_file(file, bytes))
}

/// Prints text with control characters replaced. Keeps colours if [`resolve_color`] returned true.
pub fn print_text(text: &str) -> Result<()> {
    print(printable_text(text).as_bytes())
}

/// Replaces control characters in text. Keeps colours if [`resolve_color`] returned true.
pub fn printable_text(text: &str) -> String {
    escape::escape_styled(text, IS_COLORED.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print_text_in_pieces(pieces: &[&[u8]], escape: fn(char) -> String) -> String {
        let mut out = Vec::new();
        {
            let mut printable = PrintableWriter { to: &mut out, escape, tail: Vec::new() };
            pieces.iter().for_each(|piece| printable.write_all(piece).unwrap());
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn control_characters_and_invalid_bytes_are_replaced() {
        let replaced = |_| "\u{fffd}".to_owned();
        assert_eq!(print_text_in_pieces(&[b"a\x1b[2J\x7f\n\tb\xc2\x9bc\x9b"], replaced), "a\u{fffd}[2J\u{fffd}\n\tb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn characters_split_over_pieces_are_joined() {
        let replaced = |_| "\u{fffd}".to_owned();
        assert_eq!(print_text_in_pieces(&[b"\xc3", b"\xa4\xc2", b"\x9b\xe2\x82", b"\xac\xe2"], replaced), "\u{e4}\u{fffd}\u{20ac}\u{fffd}");
    }

    #[test]
    fn escaped_json_is_the_same_document() {
        let name = "a\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{e4}";
        let text = serde_json::to_string(&name).unwrap();
        let whole = String::from_utf8(json_text(&name).unwrap()).unwrap();
        for out in [print_text_in_pieces(&[text.as_bytes()], escape_in_json), whole.trim_end().to_owned()] {
            assert!(!out.contains(escape::is_unprintable), "{out:?}");
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), name);
        }
    }
}
