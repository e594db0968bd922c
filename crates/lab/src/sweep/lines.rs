//! Plots of lines for the page of an experiment: slow-down against the queue's entries (figure 5.12), cumulative
//! distributions (figure 5.2), lengths of paths (figure 5.3).

use super::results::{Results, SweepOutcome};
use std::fmt::Write;
use trodden_hardware::character::Character;

/// Distinguishable without colour vision (Okabe and Ito).
pub const COLOURS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8a8f98"];
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 16.0;

/// A line: its name, its points.
type Line = (String, Vec<(f64, f64)>);

/// How the horizontal axis is divided.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    /// Evenly, from zero.
    Linear,
    /// By powers of ten, from one.
    Logarithmic,
}

/// Slow-down against the number of the branch queue's entries, the mean over what else differs.
pub fn against_queue(results: &Results, page: &mut String) {
    let Some(factor) = results.factors.iter().position(|f| f == "branch-queue") else { return };
    let sizes: Vec<f64> = results.levels[factor].iter().filter_map(|l| l.parse().ok()).collect();
    if sizes.len() < 2 || sizes.len() != results.levels[factor].len() {
        return;
    }
    for (title, value) in [
        ("Slow-down against the branch queue's entries, percent", (|o: &SweepOutcome| o.slowdown) as fn(&SweepOutcome) -> Option<f64>),
        ("The same with predictions frozen, percent", |o| o.frozen_slowdown),
    ] {
        let point = |source: usize, level: usize| {
            let of_it = |o: &&SweepOutcome| o.source == source && o.metric == 0 && results.combinations[o.configuration][factor] == level;
            let values: Vec<f64> = results.outcomes.iter().filter(of_it).filter_map(value).collect();
            (!values.is_empty()).then(|| (sizes[level], values.iter().sum::<f64>() / values.len() as f64))
        };
        let line = |(source, name): (usize, &String)| (name.clone(), (0..sizes.len()).filter_map(|level| point(source, level)).collect());
        let lines: Vec<Line> = results.sources.iter().enumerate().map(line).collect();
        plot(title, "entries", &lines, Axis::Linear, page);
    }
}

/// Skew and lengths of the sources' paths.
pub fn characters(results: &Results, page: &mut String) {
    let of_each = |points: &dyn Fn(&Character) -> Vec<(f64, f64)>| -> Vec<Line> {
        results.sources.iter().zip(&results.characters).map(|(name, character)| (name.clone(), points(character))).collect()
    };
    let skew = |metric: &str| {
        let metric = metric.to_owned();
        move |character: &Character| -> Vec<(f64, f64)> {
            let skew = character.skew.iter().find(|s| s.metric == metric);
            skew.into_iter().flat_map(|s| s.points.iter().map(|p| (p.paths as f64, p.percent))).collect()
        }
    };
    let instructions = of_each(&skew("instructions-executed"));
    plot("Instructions on the hottest paths, percent", "paths", &instructions, Axis::Logarithmic, page);
    let names: Vec<String> = results.characters.first().map(|c| c.skew.iter().map(|s| s.metric.clone()).collect()).unwrap_or_default();
    if names.len() > 2 {
        let means: Vec<Line> = names.iter().map(|name| (name.clone(), mean(&of_each(&skew(name))))).collect();
        plot("The same for each metric, mean of all sources, percent", "paths", &means, Axis::Logarithmic, page);
    }
    let lengths = of_each(&|c| c.lengths.iter().map(|p| (p.branches as f64, p.percent)).collect());
    plot("Instructions on paths of at most so many branches, percent", "branches", &lengths, Axis::Linear, page);
}

/// The mean of cumulative distributions; one that has ended stays at its last value.
fn mean(lines: &[Line]) -> Vec<(f64, f64)> {
    let mut at: Vec<f64> = lines.iter().flat_map(|(_, points)| points.iter().map(|p| p.0)).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let of = |points: &[(f64, f64)], x: f64| points.iter().take_while(|p| p.0 <= x).last().map_or(0.0, |p| p.1);
    let lines: Vec<&Line> = lines.iter().filter(|(_, points)| !points.is_empty()).collect();
    at.into_iter().map(|x| (x, lines.iter().map(|(_, points)| of(points, x)).sum::<f64>() / lines.len() as f64)).collect()
}

fn plot(title: &str, unit: &str, lines: &[Line], axis: Axis, page: &mut String) {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|p| p.0).fold(0.0, f64::max);
    let largest = points().map(|p| p.1).fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let top = top_of_axis(largest);
    let decades = most.log10().ceil().max(1.0);
    let x = |v: f64| {
        LEFT + WIDTH
            * match axis {
                Axis::Linear => v / most,
                Axis::Logarithmic => v.max(1.0).log10() / decades,
            }
    };
    let y = |v: f64| TOP + HEIGHT * (1.0 - v.clamp(0.0, top) / top);
    let height = TOP + HEIGHT + 44.0 + 18.0 * lines.len() as f64;
    let width = LEFT + WIDTH + 20.0;
    let _ = write!(
        page,
        "<h2>{title}</h2><div class=scroll><svg role=img aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\" width={width} \
         height={height}>"
    );
    for step in 0..=4 {
        let v = top * f64::from(step) / 4.0;
        let _ = write!(page, "<line class=grid x1={LEFT} x2={} y1={1} y2={1} />", LEFT + WIDTH, y(v));
        let _ = write!(page, "<text class=faint text-anchor=end x={} y={}>{v}</text>", LEFT - 6.0, y(v) + 4.0);
    }
    let ticks: Vec<f64> = match axis {
        Axis::Linear => (0..=4).map(|step| most * f64::from(step) / 4.0).collect(),
        Axis::Logarithmic => (0..=decades as i32).map(|power| 10f64.powi(power)).collect(),
    };
    for tick in ticks {
        let _ = write!(page, "<text class=faint text-anchor=middle x={} y={}>{tick}</text>", x(tick), TOP + HEIGHT + 16.0);
    }
    let _ = write!(page, "<text class=faint text-anchor=end x={} y={}>{unit}</text>", LEFT + WIDTH, TOP + HEIGHT + 30.0);
    for (number, line) in lines.iter().enumerate() {
        draw(line, number, unit, &|(a, b)| (x(a), y(b)), page);
    }
    page.push_str("</svg></div>");
}

/// One line with its points, and its name below the plot. `place` gives where a point lies on the page.
fn draw((name, points): &Line, number: usize, unit: &str, place: &dyn Fn((f64, f64)) -> (f64, f64), page: &mut String) {
    let colour = COLOURS[number % COLOURS.len()];
    let path: Vec<String> = points.iter().map(|p| place(*p)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(page, "<polyline stroke=\"{colour}\" points=\"{}\" />", path.join(" "));
    for (a, b) in points {
        let label = format!("{}: {a} {unit}, {b:.2}", escaped(name));
        let (x, y) = place((*a, *b));
        let _ = write!(page, "<circle fill=\"{colour}\" r=2.6 cx={x:.1} cy={y:.1}><title>{label}</title></circle>");
    }
    let at = TOP + HEIGHT + 50.0 + 18.0 * number as f64;
    let _ = write!(page, "<rect x={LEFT} y={} width=12 height=12 fill=\"{colour}\" />", at - 10.0);
    let _ = write!(page, "<text x={} y={at}>{}</text>", LEFT + 18.0, escaped(name));
}

/// The end of an axis of percentages that has a quarter at numbers of few digits; values may lie a little above 100.
pub fn top_of_axis(largest: f64) -> f64 {
    if largest > 20.0 {
        return 100.0;
    }
    let tops = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0];
    tops.into_iter().find(|top| *top >= largest).unwrap_or(20.0)
}

/// Text of a page.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
