//! Escapes text for terminals, because names of files, functions and threads, disassembly and commands may contain any characters.
//!
//! Control characters (C0, DEL, C1: ECMA-48, section 5) control a terminal; bidirectional controls (Unicode Standard Annex 9) change the
//! visible order of text. Both are replaced by U+FFFD. [`escape_lines`] is applied to all output when it is printed, but it cannot tell a
//! line break in a name from the end of a line. Therefore code that inserts a name into a line applies [`escape_line`] to the name.

/// Replacement for unprintable characters.
pub const REPLACEMENT_CHARACTER: char = '\u{fffd}';

/// Returns true for control characters, including line breaks, and for bidirectional controls.
pub fn is_unprintable(c: char) -> bool {
    let is_bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidirectional || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Replaces all unprintable characters in a name, including line breaks and tabs.
pub fn escape_line(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Replaces all unprintable characters in a text of several lines, except line breaks and tabs.
pub fn escape_lines(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) && !matches!(c, '\n' | '\t') { REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(escape_lines("a\u{1b}[31m\u{7}b\n\tc\u{9b}\r\u{202e}d"), "a\u{fffd}[31m\u{fffd}b\n\tc\u{fffd}\u{fffd}\u{fffd}d");
        assert_eq!(escape_line("a\nb\u{2028}c\u{2067}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }
}
