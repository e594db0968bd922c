//! Line plots of an experiment's page: slowdown against the size of the branch queue (figure 5.12), cumulative distributions
//! (figure 5.2) and lengths of paths (figure 5.3) of the thesis.

use super::results::{SweepOutcome, SweepResults};
use std::fmt::Write;
use trodden_hardware::character::PathCharacteristics;

/// Colours that are distinguishable without colour vision (Okabe and Ito).
pub const SERIES_COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8f98"];
const PLOT_WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 220.0;
const LEFT_MARGIN: f64 = 44.0;
const TOP_MARGIN: f64 = 16.0;

/// A line of a plot: its name and its points.
type PlottedLine = (String, Vec<(f64, f64)>);

#[derive(Clone, Copy, PartialEq)]
enum PlotAxis {
    /// Linear, from 0.
    Linear,
    /// Logarithmic, from 1.
    Logarithmic,
}

/// Plots the slowdown against the size of the branch queue, averaged over all other factors.
pub fn plot_slowdown_by_queue(results: &SweepResults, page: &mut String) {
    let Some(factor) = results.factors.iter().position(|f| f == "branch-queue") else { return };
    let sizes: Vec<f64> = results.levels[factor].iter().filter_map(|l| l.parse().ok()).collect();
    if sizes.len() < 2 || sizes.len() != results.levels[factor].len() {
        return;
    }
    for (title, value) in [
        ("Slowdown against the size of the branch queue, percent", (|o: &SweepOutcome| o.slowdown) as fn(&SweepOutcome) -> Option<f64>),
        ("Slowdown with frozen predictions against the size of the branch queue, percent", |o| o.frozen_slowdown),
    ] {
        let point = |source: usize, level: usize| {
            let of_it = |o: &&SweepOutcome| o.source == source && o.metric == 0 && results.combinations[o.configuration][factor] == level;
            let values: Vec<f64> = results.outcomes.iter().filter(of_it).filter_map(value).collect();
            (!values.is_empty()).then(|| (sizes[level], values.iter().sum::<f64>() / values.len() as f64))
        };
        let line = |(source, name): (usize, &String)| (name.clone(), (0..sizes.len()).filter_map(|level| point(source, level)).collect());
        let lines: Vec<PlottedLine> = results.sources.iter().enumerate().map(line).collect();
        append_plot(title, "entries", &lines, PlotAxis::Linear, page);
    }
}

pub fn plot_path_statistics(results: &SweepResults, page: &mut String) {
    let of_each = |points: &dyn Fn(&PathCharacteristics) -> Vec<(f64, f64)>| -> Vec<PlottedLine> {
        results.sources.iter().zip(&results.characters).map(|(name, character)| (name.clone(), points(character))).collect()
    };
    let skew = |metric: &str| {
        let metric = metric.to_owned();
        move |character: &PathCharacteristics| -> Vec<(f64, f64)> {
            let skew = character.skew.iter().find(|s| s.metric == metric);
            skew.into_iter().flat_map(|s| s.points.iter().map(|p| (p.paths as f64, p.percent))).collect()
        }
    };
    let instructions = of_each(&skew("instructions-executed"));
    append_plot("Instructions on the hottest paths, percent", "paths", &instructions, PlotAxis::Logarithmic, page);
    let names: Vec<String> = results.characters.first().map(|c| c.skew.iter().map(|s| s.metric.clone()).collect()).unwrap_or_default();
    if names.len() > 2 {
        let means: Vec<PlottedLine> = names.iter().map(|name| (name.clone(), mean_distribution(&of_each(&skew(name))))).collect();
        append_plot("Each metric on the hottest paths, mean of all sources, percent", "paths", &means, PlotAxis::Logarithmic, page);
    }
    let lengths = of_each(&|c| c.lengths.iter().map(|p| (p.branches as f64, p.percent)).collect());
    append_plot("Instructions on paths of at most N branches, percent", "branches", &lengths, PlotAxis::Linear, page);
}

/// Averages cumulative distributions. A distribution that ends early keeps the value of its last point.
fn mean_distribution(lines: &[PlottedLine]) -> Vec<(f64, f64)> {
    let mut at: Vec<f64> = lines.iter().flat_map(|(_, points)| points.iter().map(|p| p.0)).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let of = |points: &[(f64, f64)], x: f64| points.iter().take_while(|p| p.0 <= x).last().map_or(0.0, |p| p.1);
    let lines: Vec<&PlottedLine> = lines.iter().filter(|(_, points)| !points.is_empty()).collect();
    at.into_iter().map(|x| (x, lines.iter().map(|(_, points)| of(points, x)).sum::<f64>() / lines.len() as f64)).collect()
}

fn append_plot(title: &str, unit: &str, lines: &[PlottedLine], axis: PlotAxis, page: &mut String) {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let max_x = points().map(|p| p.0).fold(0.0, f64::max);
    let max_y = points().map(|p| p.1).fold(0.0, f64::max);
    if max_x <= 0.0 {
        return;
    }
    let top = axis_maximum(max_y);
    let decades = max_x.log10().ceil().max(1.0);
    let x = |v: f64| {
        let fraction = match axis {
            PlotAxis::Linear => v / max_x,
            PlotAxis::Logarithmic => v.max(1.0).log10() / decades,
        };
        LEFT_MARGIN + PLOT_WIDTH * fraction
    };
    let y = |v: f64| TOP_MARGIN + PLOT_HEIGHT * (1.0 - v.clamp(0.0, top) / top);
    let height = TOP_MARGIN + PLOT_HEIGHT + 44.0 + 18.0 * lines.len() as f64;
    let width = LEFT_MARGIN + PLOT_WIDTH + 30.0;
    let _ = write!(
        page,
        "<h2>{title}</h2><div class=scroll tabindex=0><svg role=img aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\" width={width} \
         {}>",
        scaling_attribute(width)
    );
    for step in 0..=4 {
        let v = top * f64::from(step) / 4.0;
        let _ = write!(page, "<line class=grid x1={LEFT_MARGIN} x2={} y1={1} y2={1} />", LEFT_MARGIN + PLOT_WIDTH, y(v));
        let _ = write!(page, "<text class=faint text-anchor=end x={} y={}>{v}</text>", LEFT_MARGIN - 6.0, y(v) + 4.0);
    }
    let ticks: Vec<f64> = match axis {
        PlotAxis::Linear => (0..=4).map(|step| max_x * f64::from(step) / 4.0).collect(),
        PlotAxis::Logarithmic => (0..=decades as i32).map(|power| 10f64.powi(power)).collect(),
    };
    for tick in ticks {
        let _ = write!(page, "<text class=faint text-anchor=middle x={} y={}>{tick}</text>", x(tick), TOP_MARGIN + PLOT_HEIGHT + 16.0);
    }
    let _ = write!(
        page,
        "<text class=faint text-anchor=end x={} y={}>{unit}</text>",
        LEFT_MARGIN + PLOT_WIDTH,
        TOP_MARGIN + PLOT_HEIGHT + 30.0
    );
    for (number, line) in lines.iter().enumerate() {
        append_line(line, number, unit, &|(a, b)| (x(a), y(b)), page);
    }
    page.push_str("</svg></div>");
}

/// Draws a line with its points, and its name below the plot. `place` converts a point to page coordinates.
fn append_line((name, points): &PlottedLine, number: usize, unit: &str, place: &dyn Fn((f64, f64)) -> (f64, f64), page: &mut String) {
    let colour = SERIES_COLOURS[number % SERIES_COLOURS.len()];
    let path: Vec<String> = points.iter().map(|p| place(*p)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(page, "<polyline stroke=\"{colour}\" points=\"{}\" />", path.join(" "));
    for (a, b) in points {
        let label = format!("{}: {a} {unit}, {b:.2}", escape_html(name));
        let (x, y) = place((*a, *b));
        let _ = write!(page, "<circle fill=\"{colour}\" r=2.6 cx={x:.1} cy={y:.1}><title>{label}</title></circle>");
    }
    let at = TOP_MARGIN + PLOT_HEIGHT + 50.0 + 18.0 * number as f64;
    let _ = write!(page, "<rect x={LEFT_MARGIN} y={} width=12 height=12 fill=\"{colour}\" />", at - 10.0);
    let _ = write!(page, "<text x={} y={at}>{}</text>", LEFT_MARGIN + 18.0, escape_html(name));
}

/// Returns an attribute that lets a chart of this width shrink to 70 % on narrow screens. In a narrower space, the chart scrolls, because
/// its text would be illegible.
pub fn scaling_attribute(width: f64) -> String {
    format!("style=\"height:auto;max-width:max(100%,{:.0}px)\"", 0.7 * width)
}

/// Returns the upper end of a percentage axis, chosen so that the quarters of the axis have short labels. Values may slightly exceed 100.
pub fn axis_maximum(max: f64) -> f64 {
    if max > 20.0 {
        return 100.0;
    }
    let tops = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0];
    tops.into_iter().find(|top| *top >= max).unwrap_or(20.0)
}

/// Returns the ends of a percentage axis for bars. If all values are close together and far from 0, the axis begins just below the smallest
/// value, so that the differences are visible.
pub fn axis_range(values: &[f64]) -> (f64, f64) {
    let (min, max) = values.iter().fold((f64::INFINITY, 0.0), |(min, max), v| (f64::min(min, *v), f64::max(max, *v)));
    let top = axis_maximum(max);
    // Axis lengths whose quarters have short labels.
    let lengths = [1.0, 2.0, 4.0, 8.0, 20.0, 40.0];
    let fitting = lengths.into_iter().find(|length| top - length < min - length * 0.05);
    match fitting {
        Some(length) if top - length > 0.0 && length < top => (top - length, top),
        _ => (0.0, top),
    }
}

pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_shows_differences_of_close_values() {
        assert_eq!(axis_range(&[97.1, 98.2, 99.9]), (96.0, 100.0));
        assert_eq!(axis_range(&[99.5, 99.7]), (99.0, 100.0));
        assert_eq!(axis_range(&[3.0, 99.0]), (0.0, 100.0));
        assert_eq!(axis_range(&[0.1, 0.4]), (0.0, 1.0));
        assert_eq!(axis_range(&[]), (0.0, 1.0));
    }
}
