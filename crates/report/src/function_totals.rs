//! The table of functions in a text report.

use crate::escape;
use crate::measure::PathMeasure;
use crate::paint::{self, Painter, align_left, align_right, truncate_function_name};
use crate::select::{self, PathSelection, RankedPaths, limit};
use crate::view::{Function, ProfileView};
use crate::words;
use trodden_unit::experiment::Spelling;

/// Returns a noun phrase for what percentages in the report refer to, such as `executed instructions`.
pub fn describe_share_base(measure: PathMeasure) -> String {
    match measure {
        PathMeasure::Count => "executions of paths".to_string(),
        PathMeasure::Events => "events".to_string(),
        measure => format!("executed {}", measure.name()),
    }
}

/// Renders the table of executed functions. Returns an empty string if fewer than two functions are selected.
pub fn render_totals_table(view: &ProfileView, selection: &PathSelection, ranking: &RankedPaths, painter: Painter, width: usize) -> String {
    let measure = selection.measure;
    let mut functions: Vec<&Function> = ranking.functions.iter().copied().filter(|f| f.is_executed()).collect();
    if ranking.candidates == 0 || functions.len() < 2 {
        return String::new();
    }
    functions.sort_by(|a, b| b.total(measure).cmp(&a.total(measure)).then_with(|| a.name.full.cmp(&b.name.full)));
    let executed = functions.len();
    functions.truncate(limit(selection.top));
    let calls = |f: &&Function| words::count(f.paths.call_count().into());
    let paths = |f: &&Function| words::count(f.paths.complete.len() as u128);
    let widest =
        |cell: &dyn Fn(&&Function) -> String, title: &str| functions.iter().map(|f| cell(f).len()).max().unwrap_or(0).max(title.len());
    let (calls_width, paths_width, bar) = (widest(&calls, "calls"), widest(&paths, "paths"), if width >= 90 { 10 } else { 5 });
    let place = |f: &&Function| match (f.file(), f.line()) {
        (Some(file), Some(line)) => format!("{}:{line}", escape::escape_line(words::base_name(file))),
        _ => escape::escape_line(words::base_name(&f.image.path)),
    };
    let places = functions.iter().map(|f| paint::width(&place(f))).max().unwrap_or(0);
    let room = width.saturating_sub(10 + bar + calls_width + paths_width + 8 + places).max(16);
    let name = functions.iter().map(|f| paint::width(&f.name.short)).max().unwrap_or(0).max(8).min(room);
    let title = format!(
        "by share of all {}; {} of {} executed shown",
        describe_share_base(measure),
        functions.len(),
        words::count(executed as u128)
    );
    let mut out = format!("{} {title}\n\n", painter.paint(paint::TITLE, "Functions"));
    let share_title = format!("{}{}", align_right("share", 7), " ".repeat(bar + 1));
    let titles = [
        share_title,
        align_right("calls", calls_width),
        align_right("paths", paths_width),
        align_left("function", name),
        "where".to_string(),
    ];
    out.push_str(&format!("{}\n", painter.paint(paint::DIM, &titles.join("  "))));
    for function in &functions {
        let share = select::share(function.total(measure), view.total(measure));
        let cells = [
            format!("{} {}", align_right(&words::percent(share), 7), painter.paint(paint::BAR, &paint::render_bar(share, bar))),
            painter.paint(paint::COUNT, &align_right(&calls(function), calls_width)),
            align_right(&paths(function), paths_width),
            painter.paint(paint::NAME, &align_left(&truncate_function_name(&function.name.short, name), name)),
            painter.paint(paint::DIM, &place(function)),
        ];
        out.push_str(&format!("{}\n", cells.join("  ")));
    }
    out + "\n"
}
