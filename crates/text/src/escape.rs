//! Text from outside made fit for a terminal: names of files, functions and threads, disassembly, comments and commands hold any
//! characters.
//!
//! Control characters (C0, DEL, C1: ECMA-48, section 5) steer a terminal; bidirectional controls (Unicode Standard Annex 9) change the
//! order in which text is seen. Both become U+FFFD. Output passes [`lines`] as a whole where it is printed. A line break within a name
//! cannot be recognised there, so code that puts names into a line calls [`line`] on them.

/// What stands for a character that is not printed.
pub const REPLACEMENT: char = '\u{fffd}';

/// Whether a character is not printed as it is: a control character (line breaks among them), or a bidirectional control.
pub fn is_unprintable(c: char) -> bool {
    let is_bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidirectional || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Text that stays on one line.
pub fn line(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { REPLACEMENT } else { c }).collect()
}

/// Text whose own line breaks and tabs stay.
pub fn lines(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) && !matches!(c, '\n' | '\t') { REPLACEMENT } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_steer_terminals() {
        assert_eq!(lines("a\u{1b}[31m\u{7}b\n\tc\u{9b}\r\u{202e}d"), "a\u{fffd}[31m\u{fffd}b\n\tc\u{fffd}\u{fffd}\u{fffd}d");
        assert_eq!(line("a\nb\u{2028}c\u{2067}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }
}
