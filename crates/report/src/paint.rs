//! Colours, and text that fits a width. Whether there is colour is the caller's decision.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Of the report's titles.
pub const TITLE: Style = Style::new().bold();
/// Names of functions.
pub const NAME: Style = AnsiColor::Cyan.on_default().bold();
/// Less important text.
pub const DIM: Style = Style::new().dimmed();
/// Counts.
pub const COUNT: Style = AnsiColor::Yellow.on_default();
/// Bars.
pub const BAR: Style = AnsiColor::Blue.on_default();
/// Target of a branch.
pub const DIRECTION: Style = AnsiColor::Green.on_default().bold();
/// Other directions.
pub const OTHER: Style = AnsiColor::Magenta.on_default().bold();
/// Source that a path runs through.
pub const ON_PATH: Style = Style::new().bold();
/// Warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// All of them.
pub const PALETTE: [Style; 9] = [TITLE, NAME, DIM, COUNT, BAR, DIRECTION, OTHER, ON_PATH, WARNING];

/// Applies styles, or leaves them out.
#[derive(Clone, Copy, Debug)]
pub struct Painter {
    /// Whether there is colour.
    pub color: bool,
}

impl Painter {
    /// Text in a style.
    pub fn paint(self, style: Style, text: &str) -> String {
        match self.color && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_string(),
        }
    }
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The text, cut to a width; `…` marks a cut.
pub fn fit(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_string();
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > most {
            break;
        }
        out.push(c);
        used += wide;
    }
    if most > 0 {
        out.push('…');
    }
    out
}

/// The text, cut or filled up with spaces on the right to exactly a width.
pub fn left(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let fill = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(fill))
}

/// The text, filled up with spaces on the left.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A bar of at most some columns for a share from 0 to 1, in eighths of a column.
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
    fn texts_fit() {
        assert_eq!([fit("abcdef", 6), fit("abcdef", 4), fit("日本語", 5), fit("x", 0)], ["abcdef", "abc…", "日本…", ""]);
        assert_eq!([left("ab", 4), right("ab", 4)], ["ab  ", "  ab"]);
    }

    #[test]
    fn bars_have_their_width_and_show_what_is_small() {
        assert_eq!([bar(1.0, 3), bar(0.5, 3), bar(1e-6, 3), bar(0.0, 3)], ["███", "█▌ ", "▏  ", "   "]);
    }

    #[test]
    fn no_colour_no_escapes() {
        assert_eq!(Painter { color: false }.paint(NAME, "f"), "f");
        assert!(Painter { color: true }.paint(NAME, "f").starts_with('\u{1b}'));
    }
}
