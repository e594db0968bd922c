//! A chart of an execution's phases as HTML without scripts. It has one strip for paths and one for basic blocks. A strip shows intervals
//! coloured by phase, and is followed by a table of what each phase executes.

use super::phases::phase_letter;
use crate::words::plural;
use std::collections::BTreeMap;
use std::fmt::Write;
use trodden_analysis::sequences::{FoundPhases, PhaseDocument};

const STYLE_SHEET: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#667;--line:#d5d9de;--ground:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--faint:#9aa3ad;--line:#3a4048;--ground:#16191d}}\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:var(--ink);background:var(--ground)}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}td.n{text-align:right}\
svg{width:100%;height:3.2rem;display:block}.key{display:inline-block;width:.9rem;height:.9rem;margin-right:.4rem;vertical-align:-.1rem}\
code{font-size:.9em;overflow-wrap:anywhere}.faint{color:var(--faint)}@media(max-width:600px){th,td{padding:.2rem .25rem}}";
/// Colours that people with colour vision deficiencies can distinguish (Okabe and Ito).
const SERIES_COLOURS: [&str; 10] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8f98", "#6a3d9a", "#b15928"];

/// Renders the chart as a page.
pub fn page(title: &str, document: &PhaseDocument) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
<title>Phases of {0}</title><style>{STYLE_SHEET}</style><h1>Phases of {0}</h1><p>Intervals of {1} paths, from left to right.</p>",
        escape_html(title),
        document.interval
    );
    page.push_str(&render_strips(document));
    page.push_str("</html>\n");
    page
}

/// Renders the strips with their tables, to be inserted in a page.
pub fn render_strips(document: &PhaseDocument) -> String {
    let mut page = String::new();
    render_strip("Phases by paths", &document.by_paths, &document.sources, &mut page);
    match &document.by_blocks {
        Some(found) => render_strip("Phases by basic blocks", found, &document.sources, &mut page),
        None => page.push_str("<p class=\"faint\">The events do not name blocks, so there are no phases by basic blocks."),
    }
    page
}

fn render_strip(title: &str, found: &FoundPhases, sources: &BTreeMap<String, String>, page: &mut String) {
    let count = found.phase_of_interval.len().max(1);
    let _ = write!(
        page,
        "<h2>{title}: {}, {}</h2>\
<svg viewBox=\"0 0 {count} 1\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}\">",
        plural(found.phases.len() as u128, "phase", "phases"),
        plural(found.changes.len() as u128, "change", "changes")
    );
    let mut start = 0;
    for run in found.phase_of_interval.chunk_by(|a, b| a == b) {
        let (end, phase) = (start + run.len(), run[0]);
        let _ = write!(
            page,
            "<rect x=\"{start}\" width=\"{}\" height=\"1\" fill=\"{}\"><title>phase {}: intervals {start} to {}</title></rect>",
            run.len(),
            SERIES_COLOURS[phase % SERIES_COLOURS.len()],
            phase_letter(phase),
            end - 1
        );
        start = end;
    }
    page.push_str("</svg><table><tr><th>phase<th>intervals<th>representative<th>hottest");
    for (number, phase) in found.phases.iter().enumerate() {
        let colour = SERIES_COLOURS[number % SERIES_COLOURS.len()];
        let _ = write!(
            page,
            "<tr><td><span class=\"key\" style=\"background:{colour}\"></span>{}<td class=\"n\">{}<td class=\"n\">{}<td>",
            phase_letter(number),
            phase.intervals,
            phase.representative
        );
        for (label, share) in &phase.hot {
            let source = sources.get(label).map(|source| format!(" <span class=\"faint\">{}</span>", escape_html(source)));
            let _ = write!(page, "<code>{}</code> {share:.1} %{}<br>", escape_html(label), source.unwrap_or_default());
        }
    }
    page.push_str("</table>");
}

/// Replaces the characters that have a meaning in HTML.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
