//! A function's source with one of its paths marked.
//!
//! The margin shows execution counts of all paths, not only of the marked path. With a coverage mapping, a line's count is the sum over all
//! copies of the code ([`crate::view::ProfileView::mapped`]). Lines on the path are marked, and end with the directions that their branches
//! took. Inlined code on the path is shown below the line that called it.

use crate::error::ReportError;
use crate::escape;
use crate::indent::InlinedIndent;
use crate::line_range::LineRange;
use crate::lines::LineCounts;
use crate::measure::PathMeasure;
use crate::paint::{self, align_left, align_right, truncate_text};
use crate::path_listing::{ListingStep, PathListing, TakenBranch};
use crate::select;
use crate::source::SourceCache;
use crate::text::{
    INLINE_INDENT, PageLayout, SOURCE_NOT_FOUND_TEXT, TextOptions, inlined_calls_to_show, paint_taken_branch, render_path, scope_label,
};
use crate::view::{Function, ProfileView, file_of};
use crate::words;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Node;
use trodden_profile::CountedPath;
use trodden_unit::SourcePosition;
use trodden_unit::experiment::Spelling;

/// Which path to mark in which function.
#[derive(Clone, Debug)]
pub struct AnnotateRequest {
    /// A function's name, or a regular expression. If several functions match, the one that executed the most is shown.
    pub function: String,
    /// The path's number; `None` selects the path with the greatest weight.
    pub path: Option<u64>,
    /// The measure by which paths are weighted.
    pub measure: PathMeasure,
}

/// Writes the annotated source. Fails if no function matches or the function has no path with the requested number.
pub fn annotate(
    view: &ProfileView,
    request: &AnnotateRequest,
    sources: &SourceCache,
    options: &TextOptions,
) -> Result<String, ReportError> {
    let functions = select::find_functions(view, &request.function)?;
    let Some((function, others)) = functions.split_first() else { return Ok(String::new()) };
    let page = &PageLayout::new(options);
    let shown = ShownPath::find(function, request)?;
    let mut out = render_title(view, function, shown.as_ref(), request.measure, page);
    match LineRange::from_function(function, sources).filter(|e| sources.file(&e.file).is_some()) {
        Some(range) => out.push_str(&MarkedSource::new(view, function, shown.as_ref(), sources, page).render(&range)),
        None => out.push_str(&render_without_source(function, shown.as_ref(), sources, page)),
    }
    if let Some(shown) = &shown {
        out.push_str(&format!("  {}\n", page.paint(paint::TITLE, &words::describe_end(&shown.listing.ends))));
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|f| f.name.full.as_str()).collect();
        let (note, request) = (page.paint(paint::WARNING, "note:"), escape::escape_line(&request.function));
        out.push_str(&format!("{note} `{request}` also matches {}\n", words::list_names(&names, 5)));
    }
    Ok(out)
}

struct ShownPath {
    id: u64,
    count: i128,
    blocks: Vec<Node>,
    weight: u128,
    listing: PathListing,
}

impl ShownPath {
    fn find(function: &Function, request: &AnnotateRequest) -> Result<Option<ShownPath>, ReportError> {
        let shown = |path: CountedPath, weight: u128| {
            let listing = PathListing::from_path(function, path);
            ShownPath { id: path.id, count: path.count, blocks: path.blocks.to_vec(), weight, listing }
        };
        if let Some(path) = request.path.and_then(|id| function.paths.find(false, id)) {
            return Ok(Some(shown(path, 0)));
        }
        let path = select::find_path(function, request.path, request.measure)?;
        Ok(path.map(|path| shown((&*path).into(), function.weight(&path, request.measure))))
    }
}

fn render_title(view: &ProfileView, function: &Function, shown: Option<&ShownPath>, measure: PathMeasure, page: &PageLayout) -> String {
    let place = match (function.file(), function.line()) {
        (Some(file), Some(line)) => format!("  {}:{line}", escape::escape_line(file)),
        _ => String::new(),
    };
    let mut out = format!("{}{}\n", page.paint(paint::NAME, &function.name.full), page.paint(paint::DIM, &place));
    let total = view.total(measure);
    let whole = words::percent(select::share(function.total(measure), total));
    let calls = words::plural(function.paths.call_count().into(), "call", "calls");
    let paths = words::plural(function.paths.complete.len() as u128, "path", "different paths");
    out.push_str(&format!("  {calls}, {paths}, {whole} of all {}\n", measure.name()));
    let Some(shown) = shown else {
        return out + "  no path was completed\n\n";
    };
    let share = words::percent(select::share(shown.weight, total));
    let times = match shown.count {
        1 => "once".to_string(),
        more @ 2.. => format!("{} times", words::count(more as u128)),
        negative => format!("{negative} times"),
    };
    let what = match (shown.weight, shown.count) {
        (_, 0) => "not executed".into(),
        (0, _) => format!("unfinished {times}"),
        _ => format!("executed {times}, {share} of all {}", measure.name()),
    };
    let title = page.paint(paint::TITLE, &format!("path {}", shown.id));
    let begins = words::describe_begin(&shown.listing.begins);
    let blocks = words::plural(shown.blocks.len() as u128, "block", "blocks");
    out.push_str(&format!("  {title}: {what}, {blocks}\n\n  {}\n", page.paint(paint::TITLE, &begins)));
    out
}

fn render_without_source(function: &Function, shown: Option<&ShownPath>, sources: &SourceCache, page: &PageLayout) -> String {
    let why = match function.file() {
        Some(file) => format!("cannot read the source file {}", escape::escape_line(file)),
        None => "the function has no debug information. Build with -g to see source lines".into(),
    };
    let listing = shown.map(|c| render_path(function, &c.listing, sources, page)).unwrap_or_default();
    format!("{} {why}\n{listing}", page.paint(paint::WARNING, "note:"))
}

struct MarkedSource<'a> {
    view: &'a ProfileView<'a>,
    function: &'a Function<'a>,
    counts: LineCounts,
    /// The path's steps, by the file and line at which each is shown. A step in inlined code is shown at the line of the outermost call.
    steps: BTreeMap<(&'a str, u32), Vec<&'a ListingStep>>,
    /// Execution counts of inlined lines, by (scope, file, line). A scope is one inlined call in the debug information.
    instances: BTreeMap<(u32, u32, u32), u64>,
    inlined: InlinedIndent,
    sources: &'a SourceCache<'a>,
    page: &'a PageLayout,
    column: usize,
}

const MARGIN_WIDTH: usize = 25;

impl<'a> MarkedSource<'a> {
    fn new(
        view: &'a ProfileView<'a>,
        function: &'a Function<'a>,
        shown: Option<&'a ShownPath>,
        sources: &'a SourceCache<'a>,
        page: &'a PageLayout,
    ) -> MarkedSource<'a> {
        let mut steps: BTreeMap<(&str, u32), Vec<&ListingStep>> = BTreeMap::new();
        for step in shown.iter().flat_map(|c| &c.listing.steps) {
            let Some(first) = step.chain.first() else { continue };
            steps.entry((file_of(function.unit_map(), *first).unwrap_or(""), first.line)).or_default().push(step);
        }
        let mut instances: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
        for (block, &count) in function.map.blocks.iter().zip(&function.paths.blocks) {
            for p in block.positions.iter().copied().chain(block.branch) {
                let known = instances.entry((p.scope, p.file, p.line)).or_default();
                *known = count.max(*known);
            }
        }
        let chains = steps.values().flatten().map(|step| step.chain.as_slice());
        let inlined = InlinedIndent::measure_inlined_bodies_of_chains(function, sources, chains);
        let all = || steps.values().flatten().filter(|s| !s.turns.is_empty());
        let source = |s: &&&ListingStep| s.chain.last().and_then(|p| sources.line(file_of(function.unit_map(), *p)?, p.line));
        let longest = all().filter_map(|s| Some(paint::width(&source(&s)?) + 4 * (s.chain.len() - 1))).max().unwrap_or(0);
        let turns = all().flat_map(|s| words::list_taken_branches(&s.turns)).map(|turn| paint::width(&turn)).max().unwrap_or(0);
        let column = longest.max(40).min(page.width.saturating_sub(MARGIN_WIDTH + turns + 2));
        MarkedSource { view, function, counts: LineCounts::from_functions([function]), steps, instances, inlined, sources, page, column }
    }

    fn render(&self, range: &LineRange) -> String {
        let mut out = String::new();
        let text = self.sources.file(&range.file);
        for number in range.first..=range.last {
            let source = text.as_ref().and_then(|t| t.line(number)).unwrap_or("");
            let steps = self.steps.get(&(range.file.as_str(), number)).map_or(&[][..], Vec::as_slice);
            let own: Vec<_> = steps.iter().filter(|s| s.chain.len() == 1).flat_map(|s| s.turns.iter().cloned()).collect();
            let count = self.line_count(&range.file, number);
            out.push_str(&self.render_line(number, count, source, !steps.is_empty(), &own));
            let mut before: &[SourcePosition] = steps.first().map_or(&[][..], |s| &s.chain[..1]);
            for step in steps.iter().filter(|s| s.chain.len() > 1) {
                out.push_str(&self.render_inlined_step(before, step, source.len() - source.trim_start().len()));
                before = &step.chain;
            }
        }
        out + &self.list_lines_elsewhere(range)
    }

    fn line_count(&self, file: &str, line: u32) -> Option<u64> {
        self.view.line(&self.counts, file, line)
    }

    /// Renders a step in inlined code below the line with the call, which is indented by `base` columns. `before` is the call chain of the
    /// previous step.
    fn render_inlined_step(&self, before: &[SourcePosition], step: &ListingStep, base: usize) -> String {
        let map = self.function.unit_map();
        let mut out = String::new();
        for depth in inlined_calls_to_show(before, &step.chain) {
            let inside = step.chain[depth + 1];
            let file = file_of(map, inside).map(words::base_name).unwrap_or("?");
            let name = format!("{}↳ {}", " ".repeat(base + INLINE_INDENT * depth), scope_label(map, inside));
            let note = self.page.paint(paint::DIM, &format!("in {}", escape::escape_line(file)));
            let gutter = self.page.paint(paint::DIM, &format!("{} │", " ".repeat(MARGIN_WIDTH - 3)));
            out.push_str(&format!("{gutter} {}  {note}\n", self.page.paint(paint::NAME, &name)));
        }
        let at = step.chain[step.chain.len() - 1];
        let source = file_of(map, at).and_then(|f| self.sources.line(f, at.line)).unwrap_or_else(|| SOURCE_NOT_FOUND_TEXT.into());
        let indent = base + INLINE_INDENT * (step.chain.len() - 1) + self.inlined.relative_indent(at, &source);
        let source = format!("{}{}", " ".repeat(indent), source.trim_start());
        let count = self.instances.get(&(at.scope, at.file, at.line)).copied();
        out + &self.render_line(at.line, count, &source, true, &step.turns)
    }

    fn render_line(&self, number: u32, count: Option<u64>, source: &str, on_path: bool, turns: &[TakenBranch]) -> String {
        let page = self.page;
        let margin = align_right(&count.map(|c| words::count(c.into())).unwrap_or_default(), 14);
        let margin = page.paint(if count == Some(0) { paint::DIM } else { paint::COUNT }, &margin);
        let marker = if on_path { page.paint(paint::DIRECTION, "▌") } else { " ".into() };
        let number = page.paint(paint::DIM, &format!("{} │", align_right(&number.to_string(), 6)));
        let mut turns = words::list_taken_branches(turns).into_iter();
        // A source line is never shortened to make room for a branch direction. If the line is too long, all directions follow on separate
        // rows.
        let beside = if paint::width(source) <= self.column { turns.next() } else { None };
        let text =
            if beside.is_some() { align_left(source, self.column) } else { truncate_text(source, page.width.saturating_sub(MARGIN_WIDTH)) };
        let style = match (on_path, count) {
            (true, _) => paint::LINE_ON_PATH,
            (false, Some(0)) => paint::DIM,
            (false, _) => anstyle::Style::new(),
        };
        let beside = beside.map(|turn| paint_taken_branch(&turn, page)).unwrap_or_default();
        let line = format!("{margin} {marker}{number} {}  {beside}", page.paint(style, &text));
        let below = page.paint(paint::DIM, &format!("{} │", " ".repeat(MARGIN_WIDTH - 3)));
        let others = turns.map(|turn| format!("{below} {}  {}\n", " ".repeat(self.column), paint_taken_branch(&turn, page)));
        others.fold(format!("{}\n", line.trim_end()), |lines, other| lines + &other)
    }

    /// Lists the path's lines that are outside `range`, for example because of `#include` or `#line`. Returns an empty string if there are
    /// none.
    fn list_lines_elsewhere(&self, range: &LineRange) -> String {
        let inside = |(file, line): &(&str, u32)| *file == range.file && (range.first..=range.last).contains(line);
        let others: BTreeSet<String> =
            self.steps.keys().filter(|k| !inside(k)).map(|(f, l)| format!("{}:{l}", words::base_name(f))).collect();
        if others.is_empty() {
            return String::new();
        }
        let list: Vec<String> = others.into_iter().collect();
        format!("{} the path also runs through {}\n", self.page.paint(paint::WARNING, "note:"), escape::escape_line(&list.join(", ")))
    }
}
