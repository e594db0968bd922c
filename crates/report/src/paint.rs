//! Colours, and text fitted to a width in terminal columns. The caller decides whether colour is used.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Titles.
pub const TITLE: Style = Style::new().bold();
/// Names of functions.
pub const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// Less important text.
pub const DIM: Style = Style::new().dimmed();
/// Counts.
pub const COUNT: Style = AnsiColor::Yellow.on_default();
/// Bars.
pub const BAR: Style = AnsiColor::Blue.on_default();
/// The targets of branches.
pub const DIRECTION: Style = AnsiColor::Green.on_default().bold();
/// Other branch outcomes, and kinds of findings.
pub const OTHER: Style = AnsiColor::Magenta.on_default().bold();
/// Source lines on the shown path.
pub const ON_PATH: Style = Style::new().bold();
/// Warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// All styles.
pub const PALETTE: [Style; 9] = [TITLE, NAME, DIM, COUNT, BAR, DIRECTION, OTHER, ON_PATH, WARNING];

/// Applies styles to text.
#[derive(Clone, Copy, Debug)]
pub struct Painter {
    /// Whether colour is enabled.
    pub color: bool,
}

impl Painter {
    /// Formats text in a style if colour is enabled.
    pub fn paint(self, style: Style, text: &str) -> String {
        match self.color && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_string(),
        }
    }
}

/// The width of text in terminal columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Shortens text to at most `columns`; `…` marks the omission.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        out.push(c);
        used += wide;
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// Shortens a function's name to at most `columns`. Enclosing namespaces are left out before the name itself: `…::State::next`.
pub fn fit_name(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_string();
    }
    let (mut depth, mut previous, mut last) = (0i32, ' ', name);
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' if previous == '-' => {}
            '>' | ')' | '}' | ']' => depth -= 1,
            ':' if depth == 0 && previous == ':' => {
                last = &name[at + 1..];
                if width(last) + 3 <= columns {
                    return format!("…::{last}");
                }
            }
            _ => {}
        }
        previous = c;
    }
    fit(last, columns)
}

/// Aligns text to the left: shortens it, or pads it on the right, to exactly `columns`.
pub fn left(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let fill = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(fill))
}

/// Aligns text to the right: pads it on the left to at least `columns`.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A bar for a share from 0 to 1, with a resolution of an eighth of a column, padded to `columns`.
pub fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    left(&format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8]), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_and_padded() {
        assert_eq!([fit("abcdef", 6), fit("abcdef", 4), fit("日本語", 5), fit("x", 0)], ["abcdef", "abc…", "日本…", ""]);
        assert_eq!([left("ab", 4), right("ab", 4)], ["ab  ", "  ab"]);
    }

    #[test]
    fn names_lose_their_namespaces_first() {
        let name = "regex_automata::nfa::State<a::b>::next";
        assert_eq!(fit_name(name, 38), name);
        assert_eq!(fit_name(name, 37), "…::nfa::State<a::b>::next");
        assert_eq!(fit_name(name, 24), "…::State<a::b>::next");
        assert_eq!([fit_name(name, 7), fit_name(name, 3)], ["…::next", "ne…"]);
        assert_eq!(fit_name("std::operator->", 14), "…::operator->");
    }

    #[test]
    fn bars_are_padded_and_never_empty_for_positive_shares() {
        assert_eq!([bar(1.0, 3), bar(0.5, 3), bar(1e-6, 3), bar(0.0, 3)], ["███", "█▌ ", "▏  ", "   "]);
    }

    #[test]
    fn escape_sequences_are_written_only_with_colour() {
        assert_eq!(Painter { color: false }.paint(NAME, "f"), "f");
        assert!(Painter { color: true }.paint(NAME, "f").starts_with('\u{1b}'));
    }
}
