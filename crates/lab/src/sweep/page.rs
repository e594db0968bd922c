//! The HTML page of an experiment: overlap of each source and configuration, effects of factors, slowdown, and a table of all results. It
//! is a single file without scripts. Bars are drawn in SVG, and colours follow the reader's light or dark scheme.

use super::lines::{self, SERIES_COLOURS, axis_range, escape_html};
use super::results::{SweepOutcome, SweepResults, sort_by_rank};
use std::fmt::Write;
use trodden_report::words::plural;

const STYLE_SHEET: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#667;--line:#d5d9de;--ground:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--faint:#9aa3ad;--line:#3a4048;--ground:#16191d}}\
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:var(--ink);background:var(--ground)}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right}th:first-child,td:first-child{text-align:left}\
polyline{fill:none;stroke-width:1.8}\
h1,h2{overflow-wrap:anywhere}text{fill:var(--ink);font:12px system-ui,sans-serif}.faint{fill:var(--faint)}.grid{stroke:var(--line)}\
.scroll{overflow-x:auto}";
const MAX_BARS: usize = 8;
const MAX_NAMED_SOURCES: usize = 6;

/// A plot: its title, the value that it shows, and whether that value is the same for all metrics.
type ComparedMetricPlot = (&'static str, fn(&SweepOutcome) -> Option<f64>, bool);

const COMPARED_METRIC_PLOTS: [ComparedMetricPlot; 4] = [
    ("Overlap with the complete profile, percent", |o| o.overlap, false),
    ("Dynamic overlap, mean of all windows, percent", |o| o.dynamic_overlap, false),
    ("Slowdown by the profiler, percent", |o| o.slowdown, true),
    ("Slowdown with frozen predictions, percent", |o| o.frozen_slowdown, true),
];

pub fn render_page(results: &SweepResults) -> String {
    let metrics: Vec<String> = results.metrics.iter().map(|m| escape_html(m)).collect();
    let names: Vec<String> = results.sources.iter().map(|source| escape_html(source)).collect();
    let sources = if names.len() > MAX_NAMED_SOURCES { plural(names.len() as u128, "source", "sources") } else { names.join(", ") };
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
<title>Hot path tables: {sources}</title><style>{STYLE_SHEET}</style><h1>Hot path tables: {} of {sources}</h1><p>Metrics: {}.{}</p>",
        plural(results.combinations.len() as u128, "configuration", "configurations"),
        metrics.join(", "),
        describe_constants(results)
    );
    render_effects(results, &mut page);
    for (title, value, is_shared) in COMPARED_METRIC_PLOTS {
        let last = if is_shared { 1 } else { results.metrics.len() };
        for metric in (0..last).filter(|m| results.outcomes.iter().any(|o| o.metric == *m && value(o).is_some())) {
            let of = if is_shared || results.metrics.len() == 1 { String::new() } else { format!(": {}", metrics[metric]) };
            let value = |o: &SweepOutcome| value(o).filter(|_| o.metric == metric);
            render_plot(results, &format!("{title}{of}"), &value, &mut page);
        }
    }
    lines::plot_slowdown_by_queue(results, &mut page);
    lines::plot_path_statistics(results, &mut page);
    render_events(results, &mut page);
    render_table(results, &mut page);
    page.push_str("</html>\n");
    page
}

fn render_effects(results: &SweepResults, page: &mut String) {
    for (metric, effects) in results.metrics.iter().zip(&results.effects).filter(|(_, effects)| !effects.is_empty()) {
        let of = if results.metrics.len() > 1 { format!(": {}", escape_html(metric)) } else { String::new() };
        let _ = write!(
            page,
            "<h2>Which factors matter{of}</h2><div class=scroll tabindex=0><table>\
             <tr><th>factor<th>from<th>to<th>effect on the mean overlap<th>rank"
        );
        for effect in sort_by_rank(effects) {
            let levels = &results.levels[effect.factor];
            if levels.len() < 2 {
                continue;
            }
            let name = escape_html(&results.factors[effect.factor]);
            let (from, to) = (escape_html(&levels[0]), escape_html(&levels[levels.len() - 1]));
            let _ = write!(page, "<tr><td>{name}<td>{from}<td>{to}<td>{:+.2}<td>{}", effect.effect, effect.rank);
        }
        page.push_str("</table></div>");
    }
}

/// Renders the overlap of event profiles with that of frequency, and the agreement of the power models.
fn render_events(results: &SweepResults, page: &mut String) {
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
    if results.characters.iter().any(|c| !c.events.is_empty()) {
        page.push_str("<h2>Overlap of complete profiles of events with that of frequency, percent</h2>");
        page.push_str("<div class=scroll tabindex=0><table><tr><th>source");
        results.metrics.iter().filter(|m| *m != "frequency").for_each(|m| {
            let _ = write!(page, "<th>{}", escape_html(m));
        });
        for (source, character) in results.sources.iter().zip(&results.characters) {
            let _ = write!(page, "<tr><td>{}", escape_html(source));
            character.events.iter().for_each(|e| {
                let _ = write!(page, "<td>{}", number(e.overlap_with_frequency));
            });
        }
        page.push_str("</table></div>");
    }
    if results.characters.iter().any(|c| c.power_models.is_some()) {
        page.push_str(
            "<h2>Power: agreement of the analytical and the cycle-level model</h2><div class=scroll tabindex=0>\
             <table><tr><th>source<th>rank correlation of \
             paths<th>overlap, percent",
        );
        for (source, agreement) in results.sources.iter().zip(results.characters.iter().filter_map(|c| c.power_models)) {
            let rank = agreement.rank_correlation.map_or_else(|| "-".into(), |r| format!("{r:.3}"));
            let _ = write!(page, "<tr><td>{}<td>{rank}<td>{}", escape_html(source), number(agreement.overlap));
        }
        page.push_str("</table></div>");
    }
}

/// Selects the configurations of a plot: all, or those with the highest means.
fn select_configurations(results: &SweepResults, value: &impl Fn(&SweepOutcome) -> Option<f64>) -> Vec<usize> {
    let mean = |configuration: usize| {
        let values: Vec<f64> = results.outcomes.iter().filter(|o| o.configuration == configuration).filter_map(value).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let mut order: Vec<usize> = (0..results.combinations.len()).collect();
    if order.len() > MAX_BARS {
        order.sort_by(|a, b| mean(*b).total_cmp(&mean(*a)));
        order.truncate(MAX_BARS);
        order.sort_unstable();
    }
    order
}

/// Returns a plot's values: a group of bars for each source and, if there are several sources, a group for their means.
fn bar_groups<'r>(
    results: &'r SweepResults,
    shown: &[usize],
    value: &impl Fn(&SweepOutcome) -> Option<f64>,
) -> Vec<(&'r str, Vec<Option<f64>>)> {
    let of = |source: usize, configuration: usize| {
        results.outcomes.iter().filter(|o| o.source == source && o.configuration == configuration).find_map(value)
    };
    let bars = |source: usize| shown.iter().map(|configuration| of(source, *configuration)).collect();
    let mut groups: Vec<_> = results.sources.iter().enumerate().map(|(source, name)| (name.as_str(), bars(source))).collect();
    if groups.len() > 1 {
        let mean = |bar: usize| {
            let values: Vec<f64> = groups.iter().filter_map(|(_, bars): &(&str, Vec<Option<f64>>)| bars[bar]).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let means = (0..shown.len()).map(mean).collect();
        groups.push(("mean", means));
    }
    groups
}

fn render_plot(results: &SweepResults, title: &str, value: &impl Fn(&SweepOutcome) -> Option<f64>, page: &mut String) {
    const PLOT_HEIGHT: f64 = 220.0;
    const LEFT_MARGIN: f64 = 44.0;
    let shown = select_configurations(results, value);
    let groups = bar_groups(results, &shown, value);
    let group = shown.len() as f64 * 16.0 + 24.0;
    let width = LEFT_MARGIN + group * groups.len() as f64 + 10.0;
    let legend = 18.0 * shown.len() as f64;
    let values: Vec<f64> = groups.iter().flat_map(|(_, bars)| bars.iter().flatten().copied()).collect();
    let (low, high) = axis_range(&values);
    let y = |v: f64| 20.0 + PLOT_HEIGHT * (1.0 - (v.clamp(low, high) - low) / (high - low));
    let _ = write!(page, "<h2>{title}</h2>");
    if shown.len() < results.combinations.len() {
        let _ = write!(page, "<p>The {MAX_BARS} configurations with the highest means; the table below lists all.</p>");
    }
    if low > 0.0 {
        let _ = write!(page, "<p>The axis begins at {low}.</p>");
    }
    let (full_width, height) = (width.max(640.0), PLOT_HEIGHT + 60.0 + legend);
    let _ = write!(
        page,
        "<div class=scroll tabindex=0><svg role=img aria-label=\"{title}\" viewBox=\"0 0 {full_width} {height}\" width={full_width} {}>",
        lines::scaling_attribute(full_width)
    );
    for step in 0..=4 {
        let v = low + (high - low) * f64::from(step) / 4.0;
        let _ = write!(page, "<line class=grid x1={LEFT_MARGIN} x2={width} y1={0} y2={0} />", y(v));
        let _ = write!(page, "<text class=faint text-anchor=end x={} y={}>{v}</text>", LEFT_MARGIN - 6.0, y(v) + 4.0);
    }
    for (number, (name, bars)) in groups.iter().enumerate() {
        let left = LEFT_MARGIN + group * number as f64 + 12.0;
        for (bar, v) in bars.iter().enumerate().filter_map(|(bar, v)| Some((bar, (*v)?))) {
            let (x, above) = (left + 16.0 * bar as f64, y(v));
            let label = format_levels(results, shown[bar]);
            let (colour, height) = (SERIES_COLOURS[bar % SERIES_COLOURS.len()], y(low) - above);
            let _ = write!(page, "<rect x={x} y={above} width=13 height={height} fill=\"{colour}\"><title>{label}: {v:.2}</title></rect>");
        }
        let middle = left + 8.0 * shown.len() as f64;
        let _ = write!(page, "<text text-anchor=middle x={middle} y={}>{}</text>", y(low) + 18.0, escape_html(name));
    }
    for (bar, configuration) in shown.iter().enumerate() {
        let at = PLOT_HEIGHT + 56.0 + 18.0 * bar as f64;
        let colour = SERIES_COLOURS[bar % SERIES_COLOURS.len()];
        let _ = write!(page, "<rect x={LEFT_MARGIN} y={} width=12 height=12 fill=\"{colour}\" />", at - 10.0);
        let _ = write!(page, "<text x={} y={at}>{}</text>", LEFT_MARGIN + 18.0, format_levels(results, *configuration));
    }
    page.push_str("</svg></div>");
}

fn render_table(results: &SweepResults, page: &mut String) {
    page.push_str("<h2>All results</h2><div class=scroll tabindex=0><table><tr><th>source");
    results.factors.iter().for_each(|f| {
        let _ = write!(page, "<th>{}", escape_html(f));
    });
    page.push_str("<th>metric<th>overlap<th>dynamic<th>cycles<th>slowdown<th>frozen");
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
    for outcome in &results.outcomes {
        let _ = write!(page, "<tr><td>{}", escape_html(&results.sources[outcome.source]));
        for (level, levels) in results.combinations[outcome.configuration].iter().zip(&results.levels) {
            let _ = write!(page, "<td>{}", escape_html(&levels[*level]));
        }
        let _ = write!(page, "<td>{}", escape_html(&results.metrics[outcome.metric]));
        let cycles = outcome.cycles.map_or_else(|| "-".into(), |c| c.to_string());
        let (slowdown, frozen) = (number(outcome.slowdown), number(outcome.frozen_slowdown));
        let _ =
            write!(page, "<td>{}<td>{}<td>{cycles}<td>{slowdown}<td>{frozen}", number(outcome.overlap), number(outcome.dynamic_overlap));
    }
    page.push_str("</table></div>");
}

/// Formats a configuration's levels of those factors that vary in the experiment.
fn format_levels(results: &SweepResults, configuration: usize) -> String {
    let levels = results.combinations[configuration].iter().zip(&results.levels).zip(&results.factors);
    let varying: Vec<String> = levels
        .filter(|((_, levels), _)| levels.len() > 1)
        .map(|((level, levels), factor)| format!("{} {}", escape_html(factor), escape_html(&levels[*level])))
        .collect();
    if varying.is_empty() { "the only configuration".into() } else { varying.join(", ") }
}

/// Returns a sentence that lists the factors with a single level in all configurations, or an empty string if there are none.
fn describe_constants(results: &SweepResults) -> String {
    let same = results.factors.iter().zip(&results.levels).filter(|(_, levels)| levels.len() == 1);
    let words: Vec<String> = same.map(|(factor, levels)| format!("{} {}", escape_html(factor), escape_html(&levels[0]))).collect();
    if words.is_empty() { String::new() } else { format!(" In all configurations: {}.", words.join(", ")) }
}
