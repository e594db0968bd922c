//! The report as a self-contained HTML page: functions, their paths, the source along a path, and the graph.
//!
//! Everything that comes from the program (names, source, command lines) is embedded as JSON in `<script type="application/json">` blocks.
//! It is escaped so that no text can close the block, and the page's script inserts it only as text. Each function's details are in a
//! separate block, which is parsed when the function is selected. If the details exceed a size budget, the page omits those of the lightest
//! functions, and says so.

mod data;

use crate::source::SourceCache;
use crate::view::ProfileView;
use crate::words;
use serde_json::Value;

/// Limits the page's size.
#[derive(Clone, Copy, Debug)]
pub struct HtmlOptions {
    /// Maximum total size of the functions' details, in bytes.
    pub budget: usize,
    /// Maximum number of paths per function.
    pub paths: usize,
    /// The measure by which paths are weighted.
    pub measure: crate::PathMeasure,
}

impl Default for HtmlOptions {
    fn default() -> HtmlOptions {
        HtmlOptions { budget: 16 << 20, paths: 200, measure: crate::PathMeasure::default() }
    }
}

const PAGE_TEMPLATE: &str = include_str!("../assets/page.html");
const STYLE_SHEET: &str = include_str!("../assets/page.css");
pub(crate) const NUMBERS_SCRIPT: &str = include_str!("../assets/numbers.js");
const PAGE_SCRIPTS: [&str; 4] =
    [NUMBERS_SCRIPT, include_str!("../assets/layout.js"), include_str!("../assets/graph.js"), include_str!("../assets/page.js")];

/// Writes the page.
pub fn page(view: &ProfileView, sources: &SourceCache, options: &HtmlOptions) -> String {
    page_with_section(view, sources, options, "")
}

/// Writes the page with an additional section above the functions. `section` is HTML, so its text must already be escaped.
pub fn page_with_section(view: &ProfileView, sources: &SourceCache, options: &HtmlOptions, section: &str) -> String {
    let details = data::render_function_details(view, sources, options);
    let summary = data::report_summary_json(view, &details, options);
    let mut blocks = format_data_block("summary", &escape_json(&summary));
    for (function, detail) in details.iter().enumerate() {
        if let Some(detail) = detail {
            blocks.push_str(&format_data_block(&format!("function-{function}"), detail));
        }
    }
    let program = words::program_name(&view.profile.run, view.profile.images.first().map(|i| i.path.as_str()));
    let script = PAGE_SCRIPTS.join("\n");
    substitute_placeholders(
        PAGE_TEMPLATE,
        &[("title", &escape(&program)), ("style", STYLE_SHEET), ("section", section), ("data", &blocks), ("script", &script)],
    )
}

/// Replaces each placeholder `{{name}}` by its value. A value may itself contain `{{`, which is not replaced.
fn substitute_placeholders(template: &str, values: &[(&str, &str)]) -> String {
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

fn format_data_block(id: &str, json: &str) -> String {
    format!("<script type=\"application/json\" id=\"{id}\">{json}</script>\n")
}

/// Serialises JSON, and escapes all characters that have a meaning in HTML.
fn escape_json(value: &Value) -> String {
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
    fn embedded_text_cannot_close_its_script_block() {
        let hostile = serde_json::json!({ "name": "</script><img src=x onerror=alert(1)>&\u{2028}" });
        let embedded = escape_json(&hostile);
        assert!(!embedded.contains(['<', '>', '&', '\u{2028}']));
        assert_eq!(serde_json::from_str::<Value>(&embedded).unwrap(), hostile);
    }

    #[test]
    fn placeholders_in_inserted_text_are_not_replaced() {
        assert_eq!(substitute_placeholders("a {{x}} b {{y}}", &[("x", "{{y}}"), ("y", "1")]), "a {{y}} b 1");
    }
}
