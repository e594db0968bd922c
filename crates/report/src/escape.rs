//! Text from outside made fit for a terminal: names of files, functions and threads, disassembly, comments and commands hold any
//! characters.
//!
//! Control characters (C0, DEL, C1: ECMA-48, section 5) steer a terminal; bidirectional controls (Unicode Standard Annex 9) change the
//! order in which text is seen. Both become U+FFFD. Output passes [`lines`] or [`styled`] as a whole where it is printed. A line break
//! within a name cannot be recognised there, so code that puts names into a line calls [`line`] on them.

use crate::paint::PALETTE;

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

/// The same of text that is painted, if `color`: the sequences of [`PALETTE`] stay.
pub fn styled(text: &str, color: bool) -> String {
    if !color || !text.contains('\u{1b}') {
        return lines(text);
    }
    let all = PALETTE.iter().map(|style| format!("{style}{style:#}")).collect::<String>();
    let known: Vec<&str> = all.split_inclusive('m').collect();
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&lines(&rest[..at]));
        rest = &rest[at..];
        let taken = known.iter().find(|sequence| rest.starts_with(**sequence)).map_or("", |sequence| sequence);
        match taken {
            "" => out.push(REPLACEMENT),
            sequence => out.push_str(sequence),
        }
        rest = &rest[taken.len().max(1)..];
    }
    out + &lines(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::NAME;

    #[test]
    fn names_do_not_steer_terminals() {
        assert_eq!(lines("a\u{1b}[31m\u{7}b\n\tc\u{9b}\r\u{202e}d"), "a\u{fffd}[31m\u{fffd}b\n\tc\u{fffd}\u{fffd}\u{fffd}d");
        assert_eq!(line("a\nb\u{2028}c\u{2067}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }

    #[test]
    fn only_own_colours_stay_and_only_where_they_are_wanted() {
        let text = format!("{NAME}name{NAME:#} \u{1b}[2J\u{1b}]0;x\u{7} \u{1b}[5m\u{1b}");
        assert_eq!(styled(&text, true), format!("{NAME}name{NAME:#} \u{fffd}[2J\u{fffd}]0;x\u{fffd} \u{fffd}[5m\u{fffd}"));
        assert!(!styled(&text, false).contains('\u{1b}'));
    }
}
