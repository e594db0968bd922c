//! Colours, and functions that fit text to a width in terminal columns. The caller decides whether colour is used.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Style for titles.
pub const TITLE: Style = Style::new().bold();
/// Style for function names.
pub const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// Style for less important text.
pub const DIM: Style = Style::new().dimmed();
/// Style for counts.
pub const COUNT: Style = AnsiColor::Yellow.on_default();
/// Style for bars.
pub const BAR: Style = AnsiColor::Blue.on_default();
/// Style for the directions that branches took.
pub const DIRECTION: Style = AnsiColor::Green.on_default().bold();
/// Style for other branch outcomes and for kinds of findings.
pub const OTHER_OUTCOME: Style = AnsiColor::Magenta.on_default().bold();
/// Style for source lines on the shown path.
pub const LINE_ON_PATH: Style = Style::new().bold();
/// Style for warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// All styles. [`crate::escape`] keeps the escape sequences of these styles and replaces all others.
pub const STYLE_PALETTE: [Style; 9] = [TITLE, NAME, DIM, COUNT, BAR, DIRECTION, OTHER_OUTCOME, LINE_ON_PATH, WARNING];

/// Applies styles to text, or leaves text plain.
#[derive(Clone, Copy, Debug)]
pub struct Painter {
    /// True if colour is enabled.
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

/// Returns the width of text in terminal columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Shortens text to at most `columns`, and marks the omission with `…`.
pub fn truncate_text(text: &str, columns: usize) -> String {
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

/// Shortens a function's name to at most `columns`. Namespaces are omitted before the name itself is shortened: `…::State::next`.
pub fn truncate_function_name(name: &str, columns: usize) -> String {
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
    truncate_text(last, columns)
}

/// Aligns text to the left: shortens or pads it to exactly `columns`.
pub fn align_left(text: &str, columns: usize) -> String {
    let text = truncate_text(text, columns);
    let fill = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(fill))
}

/// Aligns text to the right: pads it to at least `columns`.
pub fn align_right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Renders a bar for a share from 0 to 1, padded to `columns`. The resolution is an eighth of a column.
pub fn render_bar(share: f64, columns: usize) -> String {
    const BAR_PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    align_left(&format!("{}{}", "█".repeat(eighths / 8), BAR_PARTS[eighths % 8]), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_and_padded() {
        assert_eq!(
            [truncate_text("abcdef", 6), truncate_text("abcdef", 4), truncate_text("日本語", 5), truncate_text("x", 0)],
            ["abcdef", "abc…", "日本…", ""]
        );
        assert_eq!([align_left("ab", 4), align_right("ab", 4)], ["ab  ", "  ab"]);
    }

    #[test]
    fn names_lose_their_namespaces_first() {
        let name = "regex_automata::nfa::State<a::b>::next";
        assert_eq!(truncate_function_name(name, 38), name);
        assert_eq!(truncate_function_name(name, 37), "…::nfa::State<a::b>::next");
        assert_eq!(truncate_function_name(name, 24), "…::State<a::b>::next");
        assert_eq!([truncate_function_name(name, 7), truncate_function_name(name, 3)], ["…::next", "ne…"]);
        assert_eq!(truncate_function_name("std::operator->", 14), "…::operator->");
    }

    #[test]
    fn bars_are_padded_and_never_empty_for_positive_shares() {
        assert_eq!([render_bar(1.0, 3), render_bar(0.5, 3), render_bar(1e-6, 3), render_bar(0.0, 3)], ["███", "█▌ ", "▏  ", "   "]);
    }

    #[test]
    fn escape_sequences_are_written_only_with_colour() {
        assert_eq!(Painter { color: false }.paint(NAME, "f"), "f");
        assert!(Painter { color: true }.paint(NAME, "f").starts_with('\u{1b}'));
    }
}
