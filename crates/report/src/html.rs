//! The report as one self-contained page: functions, their paths, the source under a path, the graph.
//!
//! The page loads nothing from outside and works from a file. Everything that comes from the program (names, source, command lines) is
//! data: JSON in `<script type="application/json">` blocks, escaped so that no text can close the block, and shown by the page's script
//! as text only. Each function's details are a block of their own, which is parsed when the function is selected. If all details together
//! are larger than a budget, those of the functions with the least weight are left out, and the page says so.

mod data;

use crate::source::SourceCache;
use crate::view::View;
use crate::words;
use serde_json::Value;

/// Limits of the page's content.
#[derive(Clone, Copy, Debug)]
pub struct HtmlOptions {
    /// Bytes for the details of functions.
    pub budget: usize,
    /// Paths of each function, at most.
    pub paths: usize,
    /// The measure of shares.
    pub measure: crate::Measure,
}

impl Default for HtmlOptions {
    fn default() -> HtmlOptions {
        HtmlOptions { budget: 16 << 20, paths: 200, measure: crate::Measure::default() }
    }
}

const PAGE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPTS: [&str; 3] = [include_str!("../assets/layout.js"), include_str!("../assets/graph.js"), include_str!("../assets/page.js")];

/// Writes the page.
pub fn page(view: &View, sources: &SourceCache, options: &HtmlOptions) -> String {
    page_with_section(view, sources, options, "")
}

/// The same with a section above the functions, which is HTML whose text the caller has escaped.
pub fn page_with_section(view: &View, sources: &SourceCache, options: &HtmlOptions, section: &str) -> String {
    let details = data::details(view, sources, options);
    let summary = data::summary(view, &details, options);
    let mut blocks = block("summary", &embed(&summary));
    for (function, detail) in details.iter().enumerate() {
        if let Some(detail) = detail {
            blocks.push_str(&block(&format!("function-{function}"), detail));
        }
    }
    let program = words::program(&view.profile.run, view.profile.images.first().map(|i| i.path.as_str()));
    let script = SCRIPTS.join("\n");
    fill(PAGE, &[("title", &escape(&program)), ("style", STYLE), ("section", section), ("data", &blocks), ("script", &script)])
}

/// Replaces `{{name}}` in one pass: inserted text is not scanned again.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("every placeholder of the template is closed");
        let (_, value) = values.iter().find(|(n, _)| *n == name).expect("the template has known placeholders only");
        out.push_str(value);
        out.push_str(rest);
    }
    out
}

fn block(id: &str, json: &str) -> String {
    format!("<script type=\"application/json\" id=\"{id}\">{json}</script>\n")
}

/// JSON with all characters escaped that have a meaning in HTML.
fn embed(value: &Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_closes_the_block_it_is_in() {
        let hostile = serde_json::json!({ "name": "</script><img src=x onerror=alert(1)>&\u{2028}" });
        let embedded = embed(&hostile);
        assert!(!embedded.contains(['<', '>', '&', '\u{2028}']));
        assert_eq!(serde_json::from_str::<Value>(&embedded).unwrap(), hostile);
    }

    #[test]
    fn what_is_filled_in_is_not_filled_again() {
        assert_eq!(fill("a {{x}} b {{y}}", &[("x", "{{y}}"), ("y", "1")]), "a {{y}} b 1");
    }
}
