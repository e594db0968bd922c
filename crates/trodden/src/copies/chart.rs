//! What copies cost, as a self-contained page with a chart of bars: no script, nothing from outside.

use super::costs::Costs;
use std::fmt::Write;

const BAR: u32 = 26;
const LEFT: u32 = 150;
const WIDTH: f64 = 560.0;

/// One bar.
struct Row {
    name: String,
    value: f64,
    text: String,
    colour: &'static str,
}

/// The page.
pub fn page(costs: &Costs) -> String {
    let share = |hits: u64| hits as f64 / costs.sequential_hits.max(1) as f64;
    let row = |name: String, value: f64, text: String, colour: &'static str| Row { name, value, text, colour };
    let per_cent = |hits: u64| format!("{:.1} %", 100.0 * share(hits));
    let all = costs.copies.iter().enumerate();
    let mut hits: Vec<Row> = all.map(|(at, c)| row(format!("copy {at}"), share(c.hits), per_cent(c.hits), "#4477aa")).collect();
    hits.push(row("ideal".into(), share(costs.ideal_hits), per_cent(costs.ideal_hits), "#bbbbbb"));
    hits.push(row("no plan below".into(), share(costs.proven_hits), per_cent(costs.proven_hits), "#bbbbbb"));
    hits.push(row("all in one".into(), 1.0, "100 %".into(), "#ccbb44"));
    let seconds = |ns: u64| ns as f64 / 1e9;
    let text = |ns: u64| format!("{:.3} s", seconds(ns));
    let all = costs.copies.iter().enumerate();
    let mut times: Vec<Row> = all.map(|(at, c)| row(format!("copy {at}"), seconds(c.wall_ns), text(c.wall_ns), "#4477aa")).collect();
    if let Some(base) = &costs.baseline {
        times.push(row("without counting".into(), seconds(base.plain_ns), text(base.plain_ns), "#bbbbbb"));
        times.push(row("all in one".into(), seconds(base.sequential_ns), text(base.sequential_ns), "#ccbb44"));
    }
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Copies</title>\n");
    out += "<style>body{font:15px sans-serif;margin:2em;max-width:50em}svg text{font:13px sans-serif}</style></head><body>\n";
    let _ = writeln!(out, "<h1>{}</h1><p>{} copies, strategy {}.</p>", escape(&costs.program), costs.copies.len(), costs.strategy);
    let _ = writeln!(out, "<h2>Hits of probes, in per cent of one program that counts all</h2>\n{}", bars(&hits));
    let _ = writeln!(out, "<h2>Wall time</h2>\n{}", bars(&times));
    if !costs.diverged.is_empty() {
        out += "<h2>The copies were not the same execution</h2><ul>";
        costs.diverged.iter().for_each(|d| _ = write!(out, "<li>{}</li>", escape(d)));
        out += "</ul>";
    }
    out + "</body></html>\n"
}

fn bars(rows: &[Row]) -> String {
    let most = rows.iter().map(|r| r.value).fold(f64::MIN_POSITIVE, f64::max);
    let height = BAR * rows.len() as u32;
    let mut out =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" role=\"img\">", LEFT + WIDTH as u32 + 90);
    for (at, row) in rows.iter().enumerate() {
        let (top, width) = (BAR * at as u32, row.value / most * WIDTH);
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 8,
            top + 17,
            escape(&row.name),
            top + 3,
            BAR - 6,
            row.colour,
            f64::from(LEFT) + width + 6.0,
            top + 17,
            escape(&row.text)
        );
    }
    out + "</svg>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
