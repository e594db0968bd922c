//! Reports the costs of counting paths with several copies of a program, each instrumented for some of the paths. The formats are lines of
//! text and a self-contained page with bar charts.

use crate::words::plural;
use std::fmt::Write;
use trodden_analysis::copies::{BaselineTimes, CopiesCosts, CopyCosts};

const BAR_HEIGHT: u32 = 26;
const LABEL_WIDTH: u32 = 150;
const MAX_BAR_WIDTH: f64 = 560.0;
const STYLE_SHEET: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--line:#d5d9de;--ground:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--line:#3a4048;--ground:#16191d}}\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:55rem;padding:0 1rem;color:var(--ink);background:var(--ground)}\
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin-top:2rem}svg text{font:13px system-ui,sans-serif;fill:var(--ink)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .8rem;border-bottom:1px solid var(--line);text-align:right}td{white-space:nowrap}tr.most{font-weight:bold}\
svg{height:auto;max-width:max(100%,35rem)}";
const COPY_COLOUR: &str = "#4477aa";
/// Bar colour for reference values: the ideal, the lower bound, and a run without counting.
const REFERENCE_COLOUR: &str = "#bbbbbb";
const SINGLE_PROGRAM_COLOUR: &str = "#ccbb44";

struct ChartBar {
    name: String,
    value: f64,
    text: String,
    colour: &'static str,
}

/// Returns sentences that compare the copies' costs with the ideal and with a single program that counts everything. Probe executions are
/// called hits.
pub fn summarise_costs(costs: &CopiesCosts) -> Vec<String> {
    let to_seconds = |ns: u64| ns as f64 / 1e9;
    let share = |hits: u64| 100.0 * hits as f64 / costs.sequential_hits.max(1) as f64;
    let mut out = vec![format!("the slowest is copy {}: {:.3} s", costs.slowest_copy, to_seconds(costs.slowest_copy_costs().wall_ns))];
    if let Some(distance) = costs.distance_from_ideal {
        // The distance is negative if all copies together execute fewer path register increments (labels) than the single program, from
        // whose number the ideal is computed.
        let side = if distance < 0.0 { "below" } else { "above" };
        out.push(format!(
            "the copy with the most hits has {:.1} % of the hits of one program that counts everything: {:.1} % {side} the ideal of \
                equal shares ({:.1} %); no plan can get below {:.1} %",
            share(costs.hits_of_slowest),
            100.0 * distance.abs(),
            share(costs.ideal_hits),
            share(costs.lower_bound_hits)
        ));
    }
    match (&costs.baseline, costs.saving) {
        (Some(BaselineTimes { plain_ns, sequential_ns, .. }), Some(saving)) => {
            let over = 100.0 * (*sequential_ns as f64 / (*plain_ns).max(1) as f64 - 1.0);
            let verb = if saving < 0.0 { "takes" } else { "saves" };
            let than = if saving < 0.0 { "longer than that" } else { "of that" };
            out.push(format!(
                "without counting {:.3} s, one program that counts everything {:.3} s (overhead {over:.1} %); the slowest copy {verb} \
                    {:.1} % {than}",
                to_seconds(*plain_ns),
                to_seconds(*sequential_ns),
                100.0 * saving.abs()
            ));
        }
        _ => out.push("the time of one program that counts everything was not measured; `trodden-lab with --baseline` measures it".into()),
    }
    out
}

/// Returns a warning if the number of probe executions (hits) that a copy measured differs from the number computed from the counts of all
/// copies.
fn describe_count_mismatch(at: usize, copy: &CopyCosts) -> Option<String> {
    let [all, labels] = copy.counted.filter(|counted| *counted != [copy.hits, copy.label_hits])?;
    Some(format!("copy {at} counted {all} hits and {labels} label hits, but {} and {} were computed", copy.hits, copy.label_hits))
}

/// A line of a cost report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostReportLine {
    /// States costs.
    Note(String),
    /// Warns that two measurements contradict each other.
    Warning(String),
}

/// Returns a line for each copy, warnings about contradictions, and finally the summary.
pub fn lines(costs: &CopiesCosts) -> Vec<CostReportLine> {
    let functions = |copy: &CopyCosts| plural(copy.functions as u128, "function", "functions");
    let mut out = Vec::new();
    if costs.are_hits_known() {
        out.push(CostReportLine::Note(format!(
            "{} ({}), hits as percentages of those of one program that counts everything",
            plural(costs.copies.len() as u128, "copy", "copies"),
            costs.strategy
        )));
    }
    for (at, copy) in costs.copies.iter().enumerate() {
        let overhead = copy.overhead.map_or(String::new(), |o| format!(", overhead {:.1} %", 100.0 * o));
        let seconds = copy.wall_ns as f64 / 1e9;
        out.push(CostReportLine::Note(match costs.minimised_hits_of_copy(copy) {
            Some(hits) => format!(
                "copy {at}: {seconds:.3} s, {:.1} % of hits, {}{overhead}",
                100.0 * share_of_sequential_hits(costs, hits),
                functions(copy)
            ),
            None => format!("copy {at}: {seconds:.3} s, unknown paths of {}{overhead}", functions(copy)),
        }));
        out.extend(describe_count_mismatch(at, copy).map(CostReportLine::Warning));
    }
    out.extend(summarise_costs(costs).into_iter().map(CostReportLine::Note));
    out
}

/// Renders the costs as an HTML page.
pub fn page(costs: &CopiesCosts) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Copies</title>\n<style>{STYLE_SHEET}</style></head><body>\n"
    );
    let copies = plural(costs.copies.len() as u128, "copy", "copies");
    let _ = writeln!(out, "<h1>{}</h1><p>{copies}, strategy {}.</p><ul>", escape(&costs.program), costs.strategy);
    summarise_costs(costs).iter().for_each(|line| _ = writeln!(out, "<li>{}.</li>", escape(line)));
    let _ = writeln!(out, "</ul>\n{}<h2>Wall time</h2>\n{}", render_table(costs), render_bar_chart(&build_time_bars(costs)));
    if let Some(rows) = build_hit_bars(costs) {
        let what = if costs.hits_counted == "all" { "probes" } else { "labels" };
        let _ = writeln!(out, "<h2>Hits of {what}, as percentages of one program that counts everything</h2>\n{}", render_bar_chart(&rows));
    }
    if !costs.diverged.is_empty() {
        out += "<h2>The copies executed differently</h2><ul>";
        costs.diverged.iter().for_each(|d| _ = write!(out, "<li>{}</li>", escape(d)));
        out += "</ul>";
    }
    out + "</body></html>\n"
}

fn render_table(costs: &CopiesCosts) -> String {
    let per_cent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    let mut out = String::from("<div class=\"scroll\" tabindex=\"0\"><table><tr><th>copy</th><th>wall time</th><th>processor time</th>");
    out += "<th>overhead</th><th>hits</th><th>functions</th><th>started</th><th>host</th></tr>\n";
    for (at, copy) in costs.copies.iter().enumerate() {
        let class = if at == costs.slowest_copy { " class=\"most\"" } else { "" };
        let (wall, processor, overhead) = (format_seconds(copy.wall_ns), format_seconds(copy.cpu_ns), per_cent(copy.overhead));
        let hits = per_cent(costs.minimised_hits_of_copy(copy).map(|hits| share_of_sequential_hits(costs, hits)));
        let (functions, attempts, host) = (copy.functions, copy.attempts, escape(&copy.host));
        let _ = writeln!(
            out,
            "<tr{class}><td>{at}</td><td>{wall}</td><td>{processor}</td>\
             <td>{overhead}</td><td>{hits}</td><td>{functions}</td><td>{attempts}</td><td>{host}</td></tr>"
        );
    }
    out + "</table></div>\n"
}

fn build_time_bars(costs: &CopiesCosts) -> Vec<ChartBar> {
    let row = |name: String, ns: u64, colour| ChartBar { name, value: ns as f64, text: format_seconds(ns), colour };
    let mut rows: Vec<ChartBar> =
        costs.copies.iter().enumerate().map(|(at, c)| row(format!("copy {at}"), c.wall_ns, COPY_COLOUR)).collect();
    if let Some(base) = &costs.baseline {
        rows.push(row("without counting".into(), base.plain_ns, REFERENCE_COLOUR));
        rows.push(row("one program".into(), base.sequential_ns, SINGLE_PROGRAM_COLOUR));
    }
    rows
}

/// Returns chart bars for the copies' numbers of probe executions (hits), relative to the single program. Returns `None` if a copy's number
/// is unknown.
fn build_hit_bars(costs: &CopiesCosts) -> Option<Vec<ChartBar>> {
    let row = |name: String, hits: u64, colour| {
        let value = share_of_sequential_hits(costs, hits);
        ChartBar { name, value, text: format!("{:.1} %", 100.0 * value), colour }
    };
    let all = costs.copies.iter().enumerate();
    let mut rows = all
        .map(|(at, c)| Some(row(format!("copy {at}"), costs.minimised_hits_of_copy(c)?, COPY_COLOUR)))
        .collect::<Option<Vec<ChartBar>>>()?;
    rows.push(row("ideal".into(), costs.ideal_hits, REFERENCE_COLOUR));
    rows.push(row("lower bound".into(), costs.lower_bound_hits, REFERENCE_COLOUR));
    rows.push(row("one program".into(), costs.sequential_hits, SINGLE_PROGRAM_COLOUR));
    Some(rows)
}

fn share_of_sequential_hits(costs: &CopiesCosts, hits: u64) -> f64 {
    hits as f64 / costs.sequential_hits.max(1) as f64
}

fn format_seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

fn render_bar_chart(rows: &[ChartBar]) -> String {
    let longest = rows.iter().map(|r| r.value).fold(f64::MIN_POSITIVE, f64::max);
    let height = BAR_HEIGHT * rows.len() as u32;
    let width = LABEL_WIDTH + MAX_BAR_WIDTH as u32 + 90;
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\"><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">"
    );
    for (at, row) in rows.iter().enumerate() {
        let (top, width) = (BAR_HEIGHT * at as u32, row.value / longest * MAX_BAR_WIDTH);
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LABEL_WIDTH}\" y=\"{}\" width=\"{width:.1}\" height=\"{}\" \
                fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            LABEL_WIDTH - 8,
            top + 17,
            escape(&row.name),
            top + 3,
            BAR_HEIGHT - 6,
            row.colour,
            f64::from(LABEL_WIDTH) + width + 6.0,
            top + 17,
            escape(&row.text)
        );
    }
    out + "</svg></div>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
