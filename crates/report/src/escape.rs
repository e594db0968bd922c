//! Escapes text that may contain terminal colours. [`trodden_text::escape`] handles text without colours.

use crate::paint::STYLE_PALETTE;
pub use trodden_text::escape::{REPLACEMENT_CHARACTER, escape_line, escape_lines, is_unprintable};

/// Replaces unprintable characters. If `color` is true, the escape sequences of [`STYLE_PALETTE`] are kept.
pub fn escape_styled(text: &str, color: bool) -> String {
    if !color || !text.contains('\u{1b}') {
        return escape_lines(text);
    }
    let all = STYLE_PALETTE.iter().map(|style| format!("{style}{style:#}")).collect::<String>();
    let known: Vec<&str> = all.split_inclusive('m').collect();
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&escape_lines(&rest[..at]));
        rest = &rest[at..];
        let sequence = known.iter().find(|sequence| rest.starts_with(**sequence)).map_or("", |known| known);
        match sequence {
            "" => out.push(REPLACEMENT_CHARACTER),
            sequence => out.push_str(sequence),
        }
        rest = &rest[sequence.len().max(1)..];
    }
    out + &escape_lines(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::NAME;

    #[test]
    fn only_palette_colours_are_kept_and_only_with_color() {
        let text = format!("{NAME}name{NAME:#} \u{1b}[2J\u{1b}]0;x\u{7} \u{1b}[5m\u{1b}");
        assert_eq!(escape_styled(&text, true), format!("{NAME}name{NAME:#} \u{fffd}[2J\u{fffd}]0;x\u{fffd} \u{fffd}[5m\u{fffd}"));
        assert!(!escape_styled(&text, false).contains('\u{1b}'));
    }
}
