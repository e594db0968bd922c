//! The page's data as JSON, which `page.js` reads. Keys are short because there are many of them.

use super::{HtmlOptions, escape_json};
use crate::dot;
use crate::indent::InlinedIndent;
use crate::json::number;
use crate::line_range::LineRange;
use crate::lines::LineCounts;
use crate::path_listing::{PathListing, first_line};
use crate::select;
use crate::source::SourceCache;
use crate::text::scope_label;
use crate::view::{Function, ProfileView, file_of};
use crate::words;
use serde_json::{Value, json};
use std::collections::HashMap;
use trodden_flow::{Node, Origin};
use trodden_profile::CountedPath;
use trodden_unit::experiment::Spelling;
use trodden_unit::{EdgeKind, SourcePosition};

const MAX_LINES_PER_FUNCTION: u32 = 4000;

/// Returns each function's details as escaped JSON; `None` if the function was not executed or the page's size budget is spent.
pub fn render_function_details(view: &ProfileView, sources: &SourceCache, options: &HtmlOptions) -> Vec<Option<String>> {
    let mut remaining = options.budget;
    let detail = |function: &Function| {
        if !function.is_executed() {
            return None;
        }
        // Details that exceed the rest of the budget may fit with fewer paths.
        for paths in [options.paths, options.paths / 10, 1] {
            let text = escape_json(&FunctionDetailsWriter::collect_function_details(view, function, sources, options, paths));
            if text.len() <= remaining {
                remaining -= text.len();
                return Some(text);
            }
        }
        None
    };
    view.functions.iter().map(detail).collect()
}

pub fn report_summary_json(view: &ProfileView, details: &[Option<String>], options: &HtmlOptions) -> Value {
    let function = |(at, f): (usize, &Function)| {
        json!({
            "n": f.name.short, "f": f.name.full, "s": f.file(), "l": f.line(), "i": words::base_name(&f.image.path),
            "c": number(f.paths.call_count()), "w": select::share(f.total(options.measure), view.total(options.measure)),
            "p": f.paths.complete.len(), "u": !f.paths.are_all_paths_finished(), "x": f.is_executed(), "k": f.is_cut(),
            "d": details[at].is_some(),
        })
    };
    let executed = view.functions.iter().filter(|f| f.is_executed()).count();
    let embedded = details.iter().flatten().count();
    let left_out = (embedded < executed).then(|| {
        format!(
            "This page has details of {} with the largest shares; {} more were executed and are only listed.",
            words::plural(embedded as u128, "function", "functions"),
            executed - embedded
        )
    });
    let (run, totals) = (&view.profile.run, &view.totals);
    json!({
        "schema_version": crate::json::SCHEMA_VERSION,
        "program": words::program_name(run, view.profile.images.first().map(|i| i.path.as_str())),
        "measure": options.measure.name(),
        "command": words::command(&run.command),
        "about_run": describe_run(view),
        "totals": {
            "executions": words::count(totals.executions), "paths": words::count(totals.paths.into()),
            "executed": words::count(totals.executed.into()), "instrumented": words::count(totals.instrumented.into()),
            "unfinished": words::count(totals.unfinished), "skipped": totals.skipped, "cut": totals.cut,
        },
        "damaged": view.corrupt,
        "left_out": left_out,
        "functions": view.functions.iter().enumerate().map(function).collect::<Vec<_>>(),
    })
}

fn describe_run(view: &ProfileView) -> Vec<String> {
    let run = &view.profile.run;
    let mut about = Vec::new();
    if run.runs > 1 {
        about.push(format!("{} runs merged", words::count(run.runs.into())));
    }
    if run.started_ns > 0 {
        about.push(words::format_utc_time(run.started_ns));
    }
    if run.duration_ns > 0 {
        about.push(words::duration(run.duration_ns));
    }
    about.extend(words::describe_ending(run.ending));
    if !run.host.is_empty() {
        about.push(run.host.clone());
    }
    about
}

/// Collects one function's details. A source line that several paths contain is written only once, to `places`.
struct FunctionDetailsWriter<'v, 'a> {
    function: &'v Function<'a>,
    sources: &'v SourceCache<'v>,
    range: Option<LineRange>,
    inlined: InlinedIndent,
    places: Vec<Value>,
    /// Maps a chain of inlined calls to an index into `places`. Each call is identified by its scope, file and line.
    known: HashMap<Vec<(u32, u32, u32)>, usize>,
}

impl<'v, 'a> FunctionDetailsWriter<'v, 'a> {
    fn collect_function_details(
        view: &ProfileView,
        function: &'v Function<'a>,
        sources: &'v SourceCache<'v>,
        options: &HtmlOptions,
        max_paths: usize,
    ) -> Value {
        let range = LineRange::from_function(function, sources);
        let inlined = InlinedIndent::measure_all_inlined_bodies(function, sources);
        let mut details = FunctionDetailsWriter { function, sources, range, inlined, places: Vec::new(), known: HashMap::new() };
        let mut ranked: Vec<_> = function.paths.complete.iter().map(|p| (function.weight(p, options.measure), p)).collect();
        ranked.sort_by_key(|(weight, p)| (std::cmp::Reverse(*weight), std::cmp::Reverse(p.count), p.id));
        let total = view.total(options.measure);
        let mut paths = Vec::new();
        for &(weight, path) in ranked.iter().take(max_paths) {
            let mut path_json = details.path_json(path.into());
            path_json["w"] = json!(select::share(weight, total));
            paths.push(path_json);
        }
        let unfinished: Vec<Value> = function.paths.unfinished.iter().take(max_paths).map(|path| details.path_json(path.into())).collect();
        let lost = |l: &trodden_profile::LostPathFragment| json!([l.count, first_line(function, l.head), l.head.0]);
        json!({
            "paths": paths, "more": ranked.len().saturating_sub(max_paths),
            "unfinished": unfinished, "more_unfinished": function.paths.unfinished.len().saturating_sub(max_paths),
            "lost": function.paths.lost.iter().map(lost).collect::<Vec<_>>(),
            "possible": number(function.map.counters), "executed": function.paths.complete.len(),
            "source": details.source(view), "places": details.places, "blocks": blocks_json(function), "edges": edges_json(function),
        })
    }

    fn path_json(&mut self, path: CountedPath) -> Value {
        let listing = PathListing::from_path(self.function, path);
        let steps: Vec<Value> = listing
            .steps
            .iter()
            .map(|step| {
                let blocks: Vec<u32> = step.blocks.iter().map(|b| b.0).collect();
                let class = step.turns.last().map_or("", |t| branch_css_class(t.kind));
                json!([self.index_of_place(&step.chain), blocks, words::format_taken_branches(&step.turns), class])
            })
            .collect();
        let edges = path.path.iter().filter_map(|e| match self.function.dag.edge(*e).origin {
            Origin::Real(e) | Origin::Leave(e) => Some(e.0),
            _ => None,
        });
        json!({
            "id": number(path.id), "c": if path.is_complete() { number(path.executions()) } else { json!(path.count as i64) },
            "i": number(self.function.length(path.blocks)),
            "b": words::describe_begin(&listing.begins), "e": words::describe_end(&listing.ends), "s": steps,
            "n": path.blocks.iter().map(|b| b.0).collect::<Vec<_>>(), "g": edges.collect::<Vec<_>>(),
        })
    }

    /// Returns the index of a line in `places`, and adds the line if necessary; -1 if the line is unknown.
    fn index_of_place(&mut self, chain: &[SourcePosition]) -> i64 {
        let Some(at) = chain.last() else { return -1 };
        let key = chain.iter().map(|p| (p.scope, p.file, p.line)).collect();
        if let Some(&known) = self.known.get(&key) {
            return known as i64;
        }
        let map = self.function.unit_map();
        let calls: Vec<Value> = chain[1..]
            .iter()
            .zip(chain)
            .map(|(inside, call)| {
                let file = file_of(map, *inside).map(words::base_name);
                json!([scope_label(map, *inside), file, call.line, inside.scope])
            })
            .collect();
        let inside = |e: &LineRange| file_of(map, chain[0]) == Some(&e.file) && (e.first..=e.last).contains(&chain[0].line);
        let text = file_of(map, *at).and_then(|f| self.sources.line(f, at.line));
        let own = self.range.as_ref().filter(|e| inside(e)).map(|_| chain[0].line);
        self.places.push(json!({ "l": at.line, "t": text, "i": self.inlined.min_indent(at.scope), "k": calls, "o": own }));
        self.known.insert(key, self.places.len() - 1);
        self.places.len() as i64 - 1
    }

    fn source(&self, view: &ProfileView) -> Value {
        let Some(range) = &self.range else { return Value::Null };
        let Some(text) = self.sources.file(&range.file) else { return json!({ "file": range.file, "missing": true }) };
        let last = range.last.min(range.first.saturating_add(MAX_LINES_PER_FUNCTION));
        let counts = LineCounts::from_functions([self.function]);
        let lines = (range.first..=last).map(|l| json!([text.line(l).unwrap_or(""), view.line(&counts, &range.file, l).map(number)]));
        json!({ "file": range.file, "first": range.first, "lines": lines.collect::<Vec<_>>(), "cut": last < range.last })
    }
}

fn branch_css_class(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::True | EdgeKind::False => "direction",
        EdgeKind::Unwind => "throws",
        _ => "case",
    }
}

fn blocks_json(function: &Function) -> Vec<Value> {
    let map = function.unit_map();
    let describe = |(at, block): (usize, &trodden_unit::UnitBlock)| {
        let lines = dot::block_lines(map, block);
        json!([number(function.paths.blocks[at]), block.instructions, lines, first_line(function, Node(at as u32))])
    };
    function.map.blocks.iter().enumerate().map(describe).collect()
}

/// Writes each edge as `[from, to, label, count, style]`. The style is 1 for edges at which paths are cut, 2 for calls that may not return,
/// and 0 for all others.
fn edges_json(function: &Function) -> Vec<Value> {
    let mut style = vec![0; function.map.graph.edge_count()];
    for (edge, _) in &function.map.cuts {
        if let Some(style) = style.get_mut(edge.index()) {
            *style = 1;
        }
    }
    let describe = |(at, edge): (usize, trodden_unit::FlowEdge)| {
        let style = if edge.kind == EdgeKind::Reach { 2 } else { style[at] };
        let label = match edge.kind {
            // No label, because the condition in the optimised code may be the negation of the source's condition.
            EdgeKind::True | EdgeKind::False => String::new(),
            _ => words::edge_label(&edge),
        };
        json!([edge.from.0, edge.to.0, label, number(function.paths.edges[at]), style])
    };
    function.map.graph.flow_edges().enumerate().map(describe).collect()
}
