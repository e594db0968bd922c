//! Standard output for text and JSON that hold names of files, functions and commands: the one place where these pass to a terminal.
//!
//! Such names come from file systems, images, profiles and the environment, and may hold any character. A control
//! character (C0, DEL, C1: ECMA-48, section 5) could steer the terminal that it is printed to. In text it becomes U+FFFD,
//! as do bytes that are no UTF-8; in JSON it becomes `\u00XX`, which every reader takes for the same character.
//!
//! What a traced or copied program prints itself is its own, and passes by.

use std::io::{self, StdoutLock, Write};

/// Standard output for text.
pub fn text() -> Printable<StdoutLock<'static>> {
    Printable { to: io::stdout().lock(), escape: |_| "\u{fffd}".to_owned(), tail: Vec::new() }
}

/// Standard output for JSON.
pub fn json() -> Printable<StdoutLock<'static>> {
    Printable { to: io::stdout().lock(), escape: |c| format!("\\u{:04x}", u32::from(c)), tail: Vec::new() }
}

/// Standard output for JSON or (not `json`) text.
pub fn text_or_json(json_wanted: bool) -> Printable<StdoutLock<'static>> {
    if json_wanted { json() } else { text() }
}

/// A writer in which control characters do not pass, but for line breaks and tabs.
pub struct Printable<W: Write> {
    to: W,
    escape: fn(char) -> String,
    /// The beginning of a character whose other bytes have not come.
    tail: Vec<u8>,
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tail.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.tail);
        let mut out = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            for c in chunk.valid().chars() {
                match c.is_control() && !matches!(c, '\n' | '\r' | '\t') {
                    true => out.push_str(&(self.escape)(c)),
                    false => out.push(c),
                }
            }
            // What the last chunk lacks may come with the next bytes.
            let goes_on = chunks.peek().is_none() && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
            match (chunk.invalid(), goes_on) {
                ([], _) => {}
                (begun, true) => self.tail = begun.to_vec(),
                _ => out.push('\u{fffd}'),
            }
        }
        self.to.write_all(out.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Drop for Printable<W> {
    /// A character that never was whole.
    fn drop(&mut self) {
        if !self.tail.is_empty() {
            let _ = self.to.write_all("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of pieces that are written one after the other.
    fn written(pieces: &[&[u8]], escape: fn(char) -> String) -> String {
        let mut out = Vec::new();
        {
            let mut printable = Printable { to: &mut out, escape, tail: Vec::new() };
            pieces.iter().for_each(|piece| printable.write_all(piece).unwrap());
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn control_characters_and_raw_bytes_do_not_pass() {
        let replaced = |_| "\u{fffd}".to_owned();
        assert_eq!(written(&[b"a\x1b[2J\x7f\n\tb\xc2\x9bc\x9b"], replaced), "a\u{fffd}[2J\u{fffd}\n\tb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn characters_in_two_pieces_are_whole() {
        let replaced = |_| "\u{fffd}".to_owned();
        assert_eq!(written(&[b"\xc3", b"\xa4\xc2", b"\x9b\xe2\x82", b"\xac\xe2"], replaced), "\u{e4}\u{fffd}\u{20ac}\u{fffd}");
    }

    #[test]
    fn json_is_the_same_document() {
        let name = "a\u{1b}[2J\u{7f}\u{9b}\u{e4}";
        let text = serde_json::to_string(&name).unwrap();
        let out = written(&[text.as_bytes()], |c| format!("\\u{:04x}", u32::from(c)));
        assert!(!out.contains(char::is_control), "{out:?}");
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), name);
    }
}
