//! Writes the report as text: the run, the functions, the hottest paths with their source lines, and the unfinished paths.

use crate::error::ReportError;
use crate::escape;
use crate::events;
use crate::function_totals::{describe_share_base, render_totals_table};
use crate::indent::{InlinedIndent, indent_width};
use crate::paint::{self, Painter, align_left, align_right, truncate_function_name, truncate_text};
use crate::path_listing::{ListingStep, PathListing};
use crate::sampled;
use crate::select::{self, PathSelection, RankedPath, RankedPaths};
use crate::source::SourceCache;
use crate::view::{Function, ProfileView, file_of};
use crate::words;
use trodden_unit::{SourcePosition, UnitMap};

/// Options for the layout of text reports.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// True to use colour.
    pub color: bool,
    /// Width of the terminal in columns.
    pub width: usize,
    /// Maximum number of lines shown per path; 0 shows all. Longer paths are shortened in the middle.
    pub steps: usize,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions { color: false, width: 100, steps: 40 }
    }
}

const MIN_WIDTH: usize = 60;
/// Maximum width of a report in columns. Longer lines would be hard to read.
const MAX_WIDTH: usize = 140;

/// Writes the report. The caller must report undecodable functions ([`ProfileView::corrupt`]) and missing source files
/// ([`SourceCache::missing`]). Fails if no function matches the selection.
pub fn report(view: &ProfileView, selection: &PathSelection, sources: &SourceCache, options: &TextOptions) -> Result<String, ReportError> {
    let ranking = selection.rank(view)?;
    let page = &PageLayout::new(options);
    let mut out = render_header(view, page);
    out.push_str(&render_totals_table(view, selection, &ranking, page.painter, page.width));
    out.push_str(&render_paths_heading(view, selection, &ranking, page));
    let columns = TableColumns::new(&ranking, page);
    if !ranking.paths.is_empty() {
        out.push_str(&columns.render_titles(page));
    }
    for (rank, path) in ranking.paths.iter().enumerate() {
        out.push_str(&columns.render_row(rank + 1, path, page));
        if let Some(estimate) = sampled::estimate_executions(view, path) {
            out.push_str(&format!("      {}\n", sampled::format_estimate(&estimate)));
        }
        if let Some(line) = events::describe_path(view, path) {
            out.push_str(&format!("      {line}\n"));
        }
        let listing = PathListing::from_path(path.function, path.path);
        out.push_str(&render_path(path.function, &listing, sources, page));
        out.push('\n');
    }
    out.push_str(&render_unfinished(&ranking.functions, page));
    out.push_str(&render_notes(view, &ranking.functions, page));
    Ok(out)
}

/// The layout of a text page. The width is clamped to the supported range.
pub(crate) struct PageLayout {
    pub painter: Painter,
    pub width: usize,
    pub steps: usize,
}

impl PageLayout {
    pub fn new(options: &TextOptions) -> PageLayout {
        let width = options.width.clamp(MIN_WIDTH, MAX_WIDTH);
        PageLayout { painter: Painter { color: options.color }, width, steps: options.steps }
    }

    pub fn paint(&self, style: anstyle::Style, text: &str) -> String {
        self.painter.paint(style, text)
    }

    /// Renders the start of an entry in a list of paths: its rank and function.
    pub fn render_entry(&self, rank: usize, function: &Function) -> String {
        let name = truncate_function_name(&function.name.short, self.width.saturating_sub(50).max(20));
        format!("{}  {}", self.paint(paint::TITLE, &align_right(&rank.to_string(), 3)), self.paint(paint::NAME, &name))
    }
}

fn render_header(view: &ProfileView, page: &PageLayout) -> String {
    let (run, totals) = (&view.profile.run, &view.totals);
    let program = words::program_name(run, view.profile.images.first().map(|i| i.path.as_str()));
    let mut out = format!("{}\n", page.paint(paint::TITLE, &format!("Paths of {}", escape::escape_line(&program))));
    let mut row = |name: &str, text: String| {
        // Only the command is shortened to the page's width. All other rows are shown in full.
        let text = if name == "command" { truncate_text(&text, page.width - 14) } else { text };
        out.push_str(&format!("  {}  {text}\n", page.paint(paint::DIM, &align_left(name, 10))));
    };
    if !run.command.is_empty() {
        row("command", escape::escape_line(&words::command(&run.command)));
    }
    // The summary is empty for profiles that other tools collected or that were simulated.
    let summary = run_summary(view);
    if !summary.is_empty() {
        row("run", summary);
    }
    if let Some(sampling) = &view.profile.sampling {
        row("sampled", sampled::describe_sampling(sampling));
    }
    if let Some(text) = events::summarise_events(view) {
        row("events", text);
    }
    row("paths", format!("{} of {}", format_executions(totals.executions), words::plural(totals.paths.into(), "path", "different paths")));
    let counts_segments = view.profile.images.iter().any(trodden_profile::segments::counts_segments);
    let counts_iterations = view.profile.images.iter().any(trodden_profile::iterations::counts_iterations);
    let instrumented = words::count(totals.instrumented.into());
    row(
        "functions",
        match (totals.executed, counts_segments || counts_iterations) {
            // The number of executed functions is unknown if the program counts only segments, or only paths across iterations.
            (0, true) => format!("{instrumented} instrumented"),
            (executed, _) => format!("{} of {instrumented} instrumented were executed", words::count(executed.into())),
        },
    );
    if counts_segments {
        row("segments", "interprocedural segments were counted instead of paths: `trodden segments` shows them".to_owned());
    }
    if counts_iterations {
        let text = "paths over iterations were counted instead of paths: `trodden-lab patterns iterations` shows them";
        row("iterations", text.to_owned());
    }
    if totals.unfinished_functions > 0 {
        let functions = words::plural(totals.unfinished_functions.into(), "function", "functions");
        row("unfinished", format!("{} in {functions} (listed below)", format_executions(totals.unfinished)));
    }
    // These rows are never shortened, because their last words tell the user what to do.
    for inexact in view.profile.inexactness_reasons() {
        out.push_str(&format!("  {}  {inexact}\n", page.paint(paint::DIM, &align_left("not exact", 10))));
    }
    out.push('\n');
    out
}

pub(crate) fn run_summary(view: &ProfileView) -> String {
    let run = &view.profile.run;
    let mut details = Vec::new();
    if run.runs > 1 {
        details.push(format!("{} merged", words::plural(run.runs.into(), "run", "runs")));
    }
    if run.started_ns > 0 {
        details.push(words::format_utc_time(run.started_ns));
    }
    if run.duration_ns > 0 {
        details.push(words::duration(run.duration_ns));
    }
    details.extend(words::describe_ending(run.ending));
    if !run.host.is_empty() {
        details.push(format!("on {}", escape::escape_line(&run.host)));
    }
    details.extend(run.suite.as_ref().map(|s| format!("suite {}", escape::escape_line(s))));
    details.join(", ")
}

fn format_executions(number: u128) -> String {
    words::plural(number, "execution", "executions")
}

/// Returns a noun phrase for what percentages refer to: the program, or the counted code if only some paths were counted.
pub(crate) fn describe_total(view: &ProfileView) -> &'static str {
    let is_partial = |unit: &trodden_profile::UnitProfile| unit.map.has_times() || unit.map.functions.iter().any(|f| f.is_partial());
    match view.profile.images.iter().flat_map(|i| &i.units).any(is_partial) {
        true => "the counted code",
        false => "the program",
    }
}

fn render_paths_heading(view: &ProfileView, selection: &PathSelection, ranking: &RankedPaths, page: &PageLayout) -> String {
    let what = describe_share_base(selection.measure);
    if ranking.candidates == 0 {
        let whose = if selection.function.is_some() { "of the selected functions" } else { "of the program" };
        return format!("No path {whose} was completed.\n");
    }
    let title = page.paint(paint::TITLE, "Hottest paths");
    let shown = format!("{} of {}", ranking.paths.len(), words::count(ranking.candidates as u128));
    let whole = describe_total(view);
    let mut out = format!("{title} by share of all {what}; {shown} shown, {} of {whole}\n", words::percent(ranking.share()));
    if let [function] = ranking.functions[..] {
        let share = select::share(function.total(selection.measure), view.total(selection.measure));
        out.push_str(&format!("{} is {} of {whole}\n", page.paint(paint::NAME, &function.name.full), words::percent(share)));
    }
    out
}

struct TableColumns {
    rank: usize,
    count: usize,
    name: usize,
    bar: usize,
}

impl TableColumns {
    fn new(ranking: &RankedPaths, page: &PageLayout) -> TableColumns {
        let rank = ranking.paths.len().to_string().len().max(2);
        let widest = ranking.paths.iter().map(|p| words::count(p.path.count.into()).len()).max().unwrap_or(0);
        let count = widest.max("executions".len());
        let bar = if page.width >= 90 { 10 } else { 5 };
        let taken = rank + 2 + 8 + bar + 2 + count + 2 + 18;
        let names = ranking.paths.iter().map(|p| paint::width(&p.function.name.short)).max().unwrap_or(0);
        TableColumns { rank, count, bar, name: names.max(8).min(page.width.saturating_sub(taken).max(12)) }
    }

    fn render_titles(&self, page: &PageLayout) -> String {
        let cells = [
            align_right("#", self.rank),
            format!("{}{}", align_right("share", 7), " ".repeat(self.bar + 1)),
            align_right("executions", self.count),
            align_left("function", self.name),
            format!("{}  blocks", align_right("path", 8)),
        ];
        format!("\n{}\n", page.paint(paint::DIM, cells.join("  ").trim_end()))
    }

    fn render_row(&self, rank: usize, ranked: &RankedPath, page: &PageLayout) -> String {
        let (function, path) = (ranked.function, ranked.path);
        let share = format!(
            "{} {}",
            align_right(&words::percent(ranked.share), 7),
            page.paint(paint::BAR, &paint::render_bar(ranked.share, self.bar))
        );
        let cells = [
            page.paint(paint::TITLE, &align_right(&rank.to_string(), self.rank)),
            share,
            page.paint(paint::COUNT, &align_right(&words::count(path.count.into()), self.count)),
            page.paint(paint::NAME, &align_left(&truncate_function_name(&function.name.short, self.name), self.name)),
            align_right(&path.id.to_string(), 8),
            align_right(&path.blocks.len().to_string(), 6),
        ];
        format!("{}\n", cells.join("  "))
    }
}

pub(crate) fn render_path(function: &Function, listing: &PathListing, sources: &SourceCache, page: &PageLayout) -> String {
    let file = function.file().map(|f| format!("{}: ", words::base_name(f))).unwrap_or_default();
    let mut out =
        format!("      {}\n", page.paint(paint::DIM, &format!("{}{}", escape::escape_line(&file), words::describe_begin(&listing.begins))));
    let lines = render_listing(function, listing, sources, page);
    let hidden = match page.steps {
        0 => 0,
        limit => lines.len().saturating_sub(limit),
    };
    let (head, tail) = if hidden > 1 { (page.steps.div_ceil(2), page.steps / 2) } else { (lines.len(), 0) };
    lines[..head].iter().for_each(|l| out.push_str(l));
    if tail > 0 {
        let left_out = format!("      ... {} of this path", words::plural((lines.len() - head - tail) as u128, "more line", "more lines"));
        out.push_str(&format!("{}\n", page.paint(paint::DIM, &left_out)));
        lines[lines.len() - tail..].iter().for_each(|l| out.push_str(l));
    }
    out.push_str(&format!("      {}\n", page.paint(paint::DIM, &words::describe_end(&listing.ends))));
    out
}

fn render_listing(function: &Function, listing: &PathListing, sources: &SourceCache, page: &PageLayout) -> Vec<String> {
    let texts = render_step_texts(function, listing, sources);
    let room = page.width.saturating_sub(GUTTER_WIDTH + 1);
    let column = column_of_branch_directions(listing, &texts, room);
    let mut lines = Vec::new();
    let mut before: &[SourcePosition] = &[];
    let mut left_out = 0..0;
    for (at, (step, (text, base))) in listing.steps.iter().zip(&texts).enumerate() {
        if left_out.contains(&at) {
            continue;
        }
        let base = *base;
        let branchless = count_branchless_steps(&listing.steps[at..]);
        if page.steps > 0 && branchless > MAX_BRANCHLESS_STEPS {
            let (line, shown) = render_branchless_steps(function.unit_map(), before, &step.chain, branchless, base, page);
            lines.push(line);
            (left_out, before) = (at..at + branchless, shown);
            continue;
        }
        for depth in inlined_calls_to_show(before, &step.chain) {
            lines.push(render_call(function.unit_map(), &step.chain, depth, base, page));
        }
        let number = step.chain.last().map(|p| p.line.to_string()).unwrap_or_default();
        let mut turns = words::list_taken_branches(&step.turns).into_iter();
        // The source line is never shortened to make room for a direction. If it is too long, all directions follow on separate rows.
        let beside = if paint::width(text) <= column { turns.next() } else { None };
        let text = match beside {
            None => truncate_text(text, room),
            Some(turn) => format!("{}  {}", align_left(text, column), paint_taken_branch(&turn, page)),
        };
        lines.push(format!("{}\n", format!("{} {text}", render_gutter(&number, page)).trim_end()));
        lines
            .extend(turns.map(|turn| format!("{} {}  {}\n", render_gutter("", page), " ".repeat(column), paint_taken_branch(&turn, page))));
        before = &step.chain;
    }
    lines
}

/// Maximum number of consecutive inlined lines without branches that are shown individually. More are collapsed into one line.
const MAX_BRANCHLESS_STEPS: usize = 3;

/// Counts the leading steps that have no branch and were inlined at the same call.
fn count_branchless_steps(steps: &[ListingStep]) -> usize {
    let call = |s: &ListingStep| Some((s.chain.first()?.line, s.chain.get(1)?.scope));
    let first = steps.first().and_then(call);
    steps.iter().take_while(|s| first.is_some() && s.turns.is_empty() && call(s) == first).count()
}

/// Renders several steps without branches as one line. Also returns the last chain of calls that is now shown.
fn render_branchless_steps<'a>(
    map: &UnitMap,
    before: &'a [SourcePosition],
    chain: &'a [SourcePosition],
    steps: usize,
    base: usize,
    page: &PageLayout,
) -> (String, &'a [SourcePosition]) {
    let words = format!("{steps} lines without a branch");
    let note = page.paint(paint::DIM, &words);
    let page = &PageLayout { width: page.width - words.len() - 2, ..*page };
    match inlined_calls_to_show(before, chain).next() {
        Some(depth) => (format!("{}; {note}\n", render_call(map, chain, depth, base, page).trim_end()), &chain[..depth + 2]),
        None => (format!("{} {}... {note}\n", render_gutter("", page), " ".repeat(base + INLINE_INDENT * (chain.len() - 1))), before),
    }
}

/// Returns the column of branch directions. It is to the right of the longest line that has a direction, if there is enough room.
fn column_of_branch_directions(listing: &PathListing, texts: &[(String, usize)], room: usize) -> usize {
    let with_turns = texts.iter().zip(&listing.steps).filter(|(_, s)| !s.turns.is_empty());
    let longest = with_turns.map(|((text, _), _)| paint::width(text)).max().unwrap_or(0);
    let turns = listing.steps.iter().flat_map(|s| words::list_taken_branches(&s.turns)).map(|t| paint::width(&t)).max().unwrap_or(0);
    longest.min(room.saturating_sub(turns + 2)).max(24)
}

pub(crate) const INLINE_INDENT: usize = 2;
const GUTTER_WIDTH: usize = 13;

pub(crate) fn render_gutter(number: &str, page: &PageLayout) -> String {
    page.paint(paint::DIM, &format!("{} │", align_right(number, GUTTER_WIDTH - 2)))
}

pub(crate) const SOURCE_NOT_FOUND_TEXT: &str = "(source not found)";

/// Returns the text and base indentation of each step. The indentation that all of the function's own lines have in common is removed from
/// both. For a step in inlined code, the base indentation is that of the line with the call.
fn render_step_texts(function: &Function, listing: &PathListing, sources: &SourceCache) -> Vec<(String, usize)> {
    let map = function.unit_map();
    let line = |at: SourcePosition| sources.line(file_of(map, at)?, at.line);
    let outer = |step: &ListingStep| step.chain.first().and_then(|at| line(*at)).filter(|t| !t.is_empty());
    let shared = listing.steps.iter().filter_map(outer).map(|t| indent_width(&t)).min().unwrap_or(0);
    let inlined =
        InlinedIndent::measure_inlined_bodies_of_chains(function, sources, listing.steps.iter().map(|step| step.chain.as_slice()));
    let text = |step: &ListingStep| {
        let base = outer(step).map_or(0, |t| indent_width(&t) - shared);
        let Some(at) = step.chain.last() else { return (format_block(function, step), base) };
        let depth = INLINE_INDENT * (step.chain.len() - 1);
        let text = match line(*at) {
            None => format!("{}{SOURCE_NOT_FOUND_TEXT}", " ".repeat(base + depth)),
            Some(text) if depth == 0 => text.get(shared..).unwrap_or_default().to_string(),
            Some(text) => format!("{}{}", " ".repeat(base + depth + inlined.relative_indent(*at, &text)), text.trim_start()),
        };
        (text, base)
    };
    listing.steps.iter().map(text).collect()
}

/// Returns the depths of the inlined calls that are around a step but not around the step before it.
pub(crate) fn inlined_calls_to_show(before: &[SourcePosition], chain: &[SourcePosition]) -> std::ops::Range<usize> {
    let depth = chain.len().saturating_sub(1);
    let calls = |c: &[SourcePosition]| c.len().saturating_sub(1);
    let mut common = 0;
    // A scope identifies one inlined call, so calls on the same line are distinguished.
    while common < depth && common < calls(before) && before[common + 1].scope == chain[common + 1].scope {
        common += 1;
    }
    common..depth
}

/// Renders the line above inlined code: `↳ min  in util.h, called in line 14`.
pub(crate) fn render_call(map: &UnitMap, chain: &[SourcePosition], depth: usize, base: usize, page: &PageLayout) -> String {
    let (call, inside) = (chain[depth], chain[depth + 1]);
    let start = format!("{}↳ ", " ".repeat(base + INLINE_INDENT * depth));
    let file = file_of(map, inside).map(words::base_name).unwrap_or("?");
    let note = format!("in {}, called in line {}", escape::escape_line(file), call.line);
    let room = page.width.saturating_sub(GUTTER_WIDTH + 1 + paint::width(&start) + paint::width(&note) + 2);
    let text = format!("{start}{}", truncate_function_name(&scope_label(map, inside), room.max(8)));
    format!("{} {}  {}\n", render_gutter("", page), page.paint(paint::NAME, &text), page.paint(paint::DIM, &note))
}

/// Returns the name of the inlined function that contains a position.
pub(crate) fn scope_label(map: &UnitMap, position: SourcePosition) -> String {
    let scope = map.scopes.get(position.scope as usize);
    scope.map_or_else(|| "?".into(), |s| escape::escape_line(&crate::names::inlined_function_name(&s.name, &s.linkage_name)))
}

fn format_block(function: &Function, step: &ListingStep) -> String {
    let blocks: Vec<String> = step.blocks.iter().map(|b| b.0.to_string()).collect();
    let instructions = function.length(&step.blocks);
    format!("block {} ({})", blocks.join(", "), words::plural(instructions.into(), "instruction", "instructions"))
}

pub(crate) fn paint_taken_branch(turn: &str, page: &PageLayout) -> String {
    match turn.split_once(", not ") {
        Some((taken, not)) => format!("{}{}", page.paint(paint::DIRECTION, taken), page.paint(paint::DIM, &format!(", not {not}"))),
        None => page.paint(paint::OTHER_OUTCOME, turn),
    }
}

const MAX_SHOWN_UNFINISHED_PATHS: usize = 20;

fn render_unfinished(functions: &[&Function], page: &PageLayout) -> String {
    let mut rows: Vec<(i64, &str, String)> = Vec::new();
    for function in functions {
        for path in &function.paths.unfinished {
            let how = words::describe_end(&PathListing::from_path(function, path).ends);
            let how = if path.count < 0 { "a forked process completed a path that its parent began".to_string() } else { how };
            rows.push((path.count, &function.name.short, format!("{how} (path {})", path.id)));
        }
        for lost in &function.paths.lost {
            let place = crate::path_listing::first_line(function, lost.head)
                .map_or_else(|| format!("block {}", lost.head.0), |l| format!("line {l}"));
            rows.push((lost.count, &function.name.short, format!("interrupted on a path that began at {place}")));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|a, b| b.0.unsigned_abs().cmp(&a.0.unsigned_abs()).then(a.1.cmp(b.1)).then(a.2.cmp(&b.2)));
    let mut out = format!("{}: a call did not return, or the path was interrupted\n", page.paint(paint::TITLE, "Unfinished paths"));
    let name = rows.iter().map(|r| paint::width(r.1)).max().unwrap_or(0).min(page.width / 3);
    for (count, function, how) in rows.iter().take(MAX_SHOWN_UNFINISHED_PATHS) {
        let sign = if *count < 0 { "-" } else { "" };
        let count = align_right(&format!("{sign}{}", words::count(count.unsigned_abs().into())), 12);
        out.push_str(&format!(
            "{}  {}  {how}\n",
            page.paint(paint::COUNT, &count),
            page.paint(paint::NAME, &align_left(&truncate_function_name(function, name), name))
        ));
    }
    if rows.len() > MAX_SHOWN_UNFINISHED_PATHS {
        out.push_str(&format!("              ... and {} more (see --json)\n", rows.len() - MAX_SHOWN_UNFINISHED_PATHS));
    }
    out.push('\n');
    out
}

fn render_notes(view: &ProfileView, functions: &[&Function], page: &PageLayout) -> String {
    let mut out = String::new();
    let mut note = |text: String| out.push_str(&format!("{} {text}\n", page.paint(paint::WARNING, "note:")));
    let cut: Vec<&str> = functions.iter().filter(|f| f.is_cut() && f.is_executed()).map(|f| f.name.short.as_str()).collect();
    if !cut.is_empty() {
        note(format!(
            "{} too many paths, so the paths are cut into pieces: {}",
            words::plural(cut.len() as u128, "function has", "functions have"),
            words::list_names(&cut, 5)
        ));
    }
    if view.totals.skipped > 0 {
        note(format!(
            "{} not instrumented; `trodden info` lists them with reasons",
            words::plural(view.totals.skipped.into(), "function is", "functions are")
        ));
    }
    out
}
