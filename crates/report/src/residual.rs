//! Untested paths as text and JSON; [`crate::sarif`] writes them as SARIF.
//!
//! [`trodden_analysis::untested`] has removed the known paths from the view's profile, so all remaining paths are untested.

use crate::escape;
use crate::json::{self, SCHEMA_VERSION, number};
use crate::paint::{self, align_right};
use crate::path_listing::{PathListing, first_line, last_line};
use crate::source::SourceCache;
use crate::targets;
use crate::text::{PageLayout, TextOptions, render_path};
use crate::view::{Function, ProfileView};
use crate::words::{self, count, plural};
use serde_json::{Value, json};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use trodden_analysis::residual::RunLabel;
use trodden_analysis::untested::{
    self, KnownHotPath, UndistinguishedExecutionCounts, UntestedCountsOfFunction, UntestedPathRecorder, UntestedPathRuns, UntestedSummary,
};
use trodden_flow::Edge;
use trodden_profile::CountedPath;
use trodden_unit::KnownPaths;

/// How untested paths are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntestedOrder {
    /// Most executions first.
    Count,
    /// The most recently discovered paths first, by the time of their first execution.
    Newest,
    /// Most runs first.
    Runs,
    /// The paths that best distinguish failing from passing runs first. Ties are ordered like `Newest`.
    Failures,
}

/// Which untested paths to show, and in which order.
pub struct UntestedSelection<'a> {
    /// A function's name or a pattern, as in [`crate::PathSelection`]; `None` selects all functions.
    pub function: Option<&'a str>,
    /// Maximum number of paths.
    pub top: usize,
    /// The order; `None` selects [`UntestedOrder::Failures`] if there are failing runs, and [`UntestedOrder::Count`] otherwise.
    pub order: Option<UntestedOrder>,
}

/// Input for a report of untested paths.
#[derive(Clone, Copy)]
pub struct UntestedReportInput<'v, 'a> {
    /// A view of the profile, from which the known paths were removed.
    pub view: &'v ProfileView<'a>,
    /// For each path, the runs that executed it.
    pub sightings: &'v UntestedPathRecorder,
    /// Paths that tests took.
    pub known: &'v KnownPaths,
    /// The runs that were merged into the profile.
    pub runs: &'v [RunLabel],
}

/// An executed path that is not among the known paths.
pub struct UntestedPath<'v, 'a> {
    /// The function that contains the path.
    pub function: &'v Function<'a>,
    /// The path's number in the function.
    pub id: u64,
    /// True for a complete path, false for an unfinished one.
    pub complete: bool,
    /// Number of executions.
    pub count: u64,
    /// Edges on the path that no known path takes.
    pub new_edges: Vec<Edge>,
    /// The runs that executed the path.
    pub seen: UntestedPathRuns,
    /// The path as source lines.
    pub listing: PathListing,
}

/// An edge that no known path takes.
pub struct UntestedEdge<'v, 'a> {
    /// The function that contains the edge.
    pub function: &'v Function<'a>,
    /// The edge, by its number in the function's graph.
    pub edge: Edge,
    /// Number of executions.
    pub count: u64,
}

/// The untested paths and edges to show, and sums over all selected paths.
pub struct ResidualReport<'v, 'a> {
    input: UntestedReportInput<'v, 'a>,
    /// The paths to show, in order.
    pub shown: Vec<UntestedPath<'v, 'a>>,
    /// Untested edges in the selected functions, most executed first.
    pub edges: Vec<UntestedEdge<'v, 'a>>,
    /// Number of selected paths, including paths beyond the maximum.
    pub found: usize,
    /// Number of unfinished paths among the selected paths.
    pub unfinished: usize,
    /// Number of untested paths, selected or not.
    pub all: usize,
    /// Sums over the selected complete paths.
    pub summary: UntestedSummary,
}

impl<'v, 'a> ResidualReport<'v, 'a> {
    /// Selects paths and orders them. Fails if no function matches the selection.
    pub fn new(input: UntestedReportInput<'v, 'a>, selection: &UntestedSelection) -> Result<ResidualReport<'v, 'a>, crate::ReportError> {
        let functions: Vec<&Function> = match selection.function {
            // A profile without untested paths has no functions, so the name cannot be checked.
            Some(_) if input.view.functions.is_empty() => Vec::new(),
            Some(name) => crate::select::find_functions(input.view, name)?,
            None => input.view.functions.iter().collect(),
        };
        let all: usize = input.view.functions.iter().map(|f| input.count_listable_paths(f)).sum();
        let mut shown: Vec<UntestedPath> = functions.iter().flat_map(|f| input.collect_paths(f)).collect();
        let order = selection.order.unwrap_or(match input.sightings.outcomes.failing {
            0 => UntestedOrder::Count,
            _ => UntestedOrder::Failures,
        });
        shown.sort_by(|a, b| {
            let by_order = match order {
                UntestedOrder::Count => Ordering::Equal,
                UntestedOrder::Newest => b.seen.first_ns.cmp(&a.seen.first_ns),
                UntestedOrder::Runs => b.seen.runs.cmp(&a.seen.runs),
                UntestedOrder::Failures => {
                    let by_score = input.ochiai_suspicion(b).total_cmp(&input.ochiai_suspicion(a));
                    by_score.then(a.complete.cmp(&b.complete)).then(b.seen.first_ns.cmp(&a.seen.first_ns))
                }
            };
            let tie_break = |u: &UntestedPath| (Reverse(u.count), u.function.name.full.clone(), u.id);
            by_order.then_with(|| tie_break(a).cmp(&tie_break(b)))
        });
        let (found, summary) = (shown.len(), input.summarise_paths(&shown));
        let unfinished = shown.iter().filter(|u| !u.complete).count();
        shown.truncate(selection.top);
        let mut edges: Vec<UntestedEdge> = functions.iter().flat_map(|f| input.collect_edges(f)).collect();
        edges.sort_by_key(|e| Reverse(e.count));
        Ok(ResidualReport { input, shown, edges, found, unfinished, all, summary })
    }

    /// Returns true if there is nothing to report: no path is selected, and every execution can be attributed to a path.
    pub fn is_empty(&self) -> bool {
        self.found == 0 && self.input.sightings.without_path == UndistinguishedExecutionCounts::default()
    }

    /// Returns the untested executions as a share of all executions (0 to 1). Returns `None` if the program does not count known paths or
    /// executed no paths.
    pub fn share(&self) -> Option<f64> {
        let all = self.input.sightings.executions;
        (self.input.sightings.counts_known && all > 0).then(|| self.summary.executions as f64 / all as f64)
    }

    /// Returns the functions of the shown paths, reduced to these paths.
    pub fn functions(&self) -> Vec<Function<'a>> {
        let of = |function: &Function<'a>| -> BTreeSet<(bool, u64)> {
            self.shown.iter().filter(|p| std::ptr::eq(p.function, function)).map(|p| (p.complete, p.id)).collect()
        };
        let functions = self.input.view.functions.iter().map(|function| (function, of(function)));
        functions.filter(|(_, ids)| !ids.is_empty()).map(|(function, ids)| function.restricted_to(&ids)).collect()
    }

    /// Returns the run in which a path was first executed.
    pub fn first_run_of(&self, path: &UntestedPath) -> Option<&RunLabel> {
        self.input.runs.get(path.seen.first_run)
    }

    /// Renders the report as text.
    pub fn text(&self, sources: &SourceCache, options: &TextOptions) -> String {
        let page = &PageLayout::new(options);
        let runs = plural(self.input.runs.len() as u128, "run", "runs");
        let profile = self.input.view.profile;
        let program = words::program_name(&profile.run, profile.images.first().map(|i| i.path.as_str()));
        let mut out = format!(
            "{}, {}\n",
            page.paint(paint::TITLE, &format!("Untested paths of {}", escape::escape_line(&program))),
            page.paint(paint::DIM, &runs)
        );
        out.push_str(&self.render_overview());
        out.push_str(&self.describe_unlisted_paths());
        for (rank, path) in self.shown.iter().enumerate() {
            out.push_str(&self.render_path_title(rank + 1, path, page));
            out.push_str(&render_path(path.function, &path.listing, sources, page));
            out.push('\n');
        }
        if self.found > self.shown.len() {
            out.push_str(&format!("{} of {} shown (--top)\n", self.shown.len(), plural(self.found as u128, "path", "paths")));
        }
        out
    }

    fn render_overview(&self) -> String {
        let UntestedSummary { paths, executions, known_edges_only, in_functions_without_new_edges, edges, functions, .. } = self.summary;
        if self.found == 0 {
            return match self.all {
                0 => "No path is untested.\n".into(),
                all => {
                    format!("{} excluded by --function.\n", plural(all as u128, "untested path is", "untested paths are"))
                }
            };
        }
        let unfinished = match self.unfinished {
            0 => String::new(),
            n => format!("; also {}", plural(n as u128, "unfinished path", "unfinished paths")),
        };
        let share = self.share().map_or(String::new(), |s| format!(", {} of all", words::percent(s)));
        format!(
            "{} in {}, {}{share}; {}{unfinished}\n{} new although every edge is known; {} in functions without untested edges\n\n",
            plural(paths.into(), "path", "paths"),
            plural(functions.into(), "function", "functions"),
            plural(executions, "execution", "executions"),
            plural(edges.into(), "untested edge", "untested edges"),
            plural(known_edges_only.into(), "path is", "paths are"),
            count(in_functions_without_new_edges.into()),
        )
    }

    /// Describes executions that cannot be listed because the build does not distinguish their paths.
    fn describe_unlisted_paths(&self) -> String {
        let UndistinguishedExecutionCounts { untested, unclear } = self.input.sightings.without_path;
        let line = |executions: u128, of: &str| match executions {
            0 => String::new(),
            _ => {
                let executions = plural(executions, "execution", "executions");
                format!("{executions} of {of} cannot be listed because the build counts them together\n\n")
            }
        };
        line(untested, "more untested paths") + &line(unclear, "paths that may or may not be untested")
    }

    fn render_path_title(&self, rank: usize, path: &UntestedPath, page: &PageLayout) -> String {
        let what = if path.complete { "path" } else { "unfinished path" };
        let head = format!("{}  {what} {}", page.render_entry(rank, path.function), path.id);
        let edges = match path.new_edges.len() {
            0 => "every edge is known".to_owned(),
            n => plural(n as u128, "untested edge", "untested edges"),
        };
        let all = self.input.sightings.outcomes;
        let ended = match all.failing {
            0 => String::new(),
            _ => format!(
                " ({} of {} and {} of {})",
                count(path.seen.outcomes.failing.into()),
                plural(all.failing.into(), "failing run", "failing runs"),
                count(path.seen.outcomes.passing.into()),
                plural(all.passing.into(), "passing run", "passing runs")
            ),
        };
        let taken = format!(
            "taken {} in {}{ended}; {edges}",
            plural(path.count.into(), "time", "times"),
            plural(path.seen.runs.into(), "run", "runs")
        );
        let first = self.describe_first_run(path).map_or(String::new(), |f| format!("      {}\n", page.paint(paint::DIM, &f)));
        format!("{head}\n      {taken}\n{first}")
    }

    fn describe_first_run(&self, path: &UntestedPath) -> Option<String> {
        let run = self.first_run_of(path)?;
        let when = if path.seen.first_ns == 0 { "at an unknown time".into() } else { words::format_utc_time(path.seen.first_ns) };
        let number = run.number.map_or(String::new(), |n| format!("run {n}: "));
        Some(format!("first {when} by {number}{}", run.words.replace(char::is_control, " ")))
    }

    /// Returns the report as JSON. The user guide documents the schema.
    pub fn json(&self, sources: &SourceCache) -> Value {
        let paths = self.shown.iter().enumerate().map(|(at, p)| {
            let mut out = json::listing_json(p.function, &p.listing, sources);
            let more = json!({
                "rank": at + 1,
                "function": p.function.name.full,
                "linkage_name": p.function.name.linkage,
                "image": p.function.image.path,
                "image_identity": p.function.image.identity.to_string(),
                "unit": p.function.unit.unit.to_string(),
                "file": p.function.file(),
                "line": p.function.line(),
                "id": number(p.id),
                "complete": p.complete,
                "count": number(p.count),
                "runs": number(p.seen.runs),
                "failing_runs": number(p.seen.outcomes.failing),
                "passing_runs": number(p.seen.outcomes.passing),
                "suspicion": (self.input.sightings.outcomes.failing > 0).then(|| self.input.ochiai_suspicion(p)),
                "first_seen_ns": number(p.seen.first_ns),
                "first_run": self.first_run_of(p).map(|r| json!({ "number": r.number, "command": r.words })),
                "new_edges": p.new_edges.iter().map(|e| e.0).collect::<Vec<_>>(),
                "all_edges_tested": p.new_edges.is_empty(),
            });
            out.extend(more.as_object().cloned().unwrap_or_default());
            out.extend(targets::target_json(p.function, &p.listing));
            Value::Object(out)
        });
        let edges = self.edges.iter().map(|e| {
            let (from, to) = find_edge_lines(e);
            json!({ "function": e.function.name.full, "file": e.function.file(), "edge": e.edge.0, "from_line": from, "to_line": to,
                "count": number(e.count) })
        });
        let mut summary = untested_summary_json(&self.summary, self.share(), self.input.sightings.counted.len());
        summary["unfinished_paths"] = json!(self.unfinished);
        let UndistinguishedExecutionCounts { untested, unclear } = self.input.sightings.without_path;
        summary["untested_executions_without_path"] = number(untested);
        summary["unclear_executions_without_path"] = number(unclear);
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "residual",
            "runs": self.input.runs.iter().map(|r| json!({ "number": r.number, "command": r.words })).collect::<Vec<_>>(),
            "summary": summary,
            "found": self.found,
            "paths": paths.collect::<Vec<_>>(),
            "edges": edges.collect::<Vec<_>>(),
        })
    }
}

fn untested_summary_json(summary: &UntestedSummary, share: Option<f64>, counted: usize) -> Value {
    json!({
        "untested_paths": summary.paths,
        "counted_paths": counted,
        "untested_executions": number(summary.executions),
        "share_of_executions": share,
        "all_edges_tested": summary.known_edges_only,
        "untested_paths_in_functions_without_untested_edges": summary.in_functions_without_new_edges,
        "untested_edges": summary.edges,
        "functions": summary.functions,
        "functions_with_untested_edges": summary.functions_with_new_edges,
    })
}

impl<'v, 'a> UntestedReportInput<'v, 'a> {
    fn find_known_function(&self, function: &Function) -> Option<&'v trodden_unit::KnownFunction> {
        untested::known_paths_of(self.known, &function.unit.map, function.map)
    }

    /// Returns how well a path distinguishes failing from passing runs: its Ochiai coefficient, from 0 to 1.
    fn ochiai_suspicion(&self, path: &UntestedPath) -> f64 {
        path.seen.outcomes.ochiai(self.sightings.outcomes)
    }

    fn find_untested_path_runs(&self, function: &Function, id: u64) -> Option<UntestedPathRuns> {
        self.sightings.paths.get(&(function.unit.unit, function.map.first_counter + id)).cloned()
    }

    fn count_listable_paths(&self, function: &Function) -> usize {
        let unfinished = function.paths.unfinished.iter().filter(|u| u.count > 0 && self.find_untested_path_runs(function, u.id).is_some());
        function.paths.complete.len() + unfinished.count()
    }

    fn summarise_paths(&self, paths: &[UntestedPath]) -> UntestedSummary {
        let mut functions: BTreeMap<*const Function, (&Function, UntestedCountsOfFunction)> = BTreeMap::new();
        for path in paths.iter().filter(|p| p.complete) {
            let (_, new) =
                functions.entry(std::ptr::from_ref(path.function)).or_insert_with(|| (path.function, UntestedCountsOfFunction::default()));
            new.paths += 1;
            new.executions += u128::from(path.count);
            new.known_edges_only += u64::from(path.new_edges.is_empty());
            new.edges.extend(&path.new_edges);
        }
        let mut summary = UntestedSummary::default();
        for (function, new) in functions.into_values() {
            summary.add(&new);
            // Whether the function has untested edges depends on all of its paths, not only on the selected ones.
            let all = untested::count_new_paths(function.map, self.find_known_function(function), &function.paths);
            if new.edges.is_empty() && !all.edges.is_empty() {
                summary.in_functions_without_new_edges -= new.paths;
            }
        }
        summary
    }

    fn collect_paths(&self, function: &'v Function<'a>) -> Vec<UntestedPath<'v, 'a>> {
        let known = self.find_known_function(function);
        let new = |path: &[_]| untested::edges_on_no_known_path(function.map, known, path).into_iter().collect();
        let report = |path: CountedPath| {
            let seen = self.find_untested_path_runs(function, path.id);
            Some(UntestedPath {
                function,
                id: path.id,
                complete: path.is_complete(),
                count: path.executions(),
                new_edges: new(path.path),
                seen: if path.is_complete() { seen.unwrap_or_default() } else { seen.filter(|_| path.count > 0)? },
                listing: PathListing::from_path(function, path),
            })
        };
        function.paths.all().filter_map(report).collect()
    }

    fn collect_edges(&self, function: &'v Function<'a>) -> Vec<UntestedEdge<'v, 'a>> {
        let known = self.find_known_function(function);
        let mut counts = BTreeMap::<Edge, u64>::new();
        for path in &function.paths.complete {
            for edge in untested::edges_on_no_known_path(function.map, known, &path.path) {
                let sum = counts.entry(edge).or_default();
                *sum = sum.saturating_add(path.count);
            }
        }
        counts.into_iter().map(|(edge, count)| UntestedEdge { function, edge, count }).collect()
    }
}

fn find_edge_lines(edge: &UntestedEdge) -> (Option<u32>, Option<u32>) {
    let flow = edge.function.map.graph.edge(edge.edge);
    (last_line(edge.function, flow.from), first_line(edge.function, flow.to))
}

/// Renders a comparison of hot paths: how hot the hottest paths of the tests are in the field. `view` shows the complete profile from the
/// field.
pub fn render_hot_paths(view: &ProfileView, hot: &[KnownHotPath], share: f64, options: &TextOptions) -> String {
    let page = &PageLayout::new(options);
    let stay = hot.iter().filter(|h| h.rank.is_some_and(|r| r <= hot.len())).count();
    let taken = hot.iter().filter(|h| h.rank.is_some()).count();
    let mut out = format!("{}\n", page.paint(paint::TITLE, "Do hot paths stay hot?"));
    out.push_str(&format!(
        "{} of the tests' {} {} also among the {} hottest in the field. The field executed {taken} of them, which are {} of its \
            executions.\n\n",
        stay,
        plural(hot.len() as u128, "hottest path", "hottest paths"),
        if stay == 1 { "is" } else { "are" },
        hot.len(),
        words::percent(share)
    ));
    out.push_str(&format!("{}  {}  {}  {}\n", align_right("tests", 6), align_right("field", 6), align_right("times", 8), "path"));
    let functions = view.functions_by_map_index();
    for (at, path) in hot.iter().enumerate() {
        let rank = path.rank.map_or("-".to_owned(), |r| r.to_string());
        let (name, lines) = functions.get(&path.function).map_or(("?".to_owned(), String::new()), |f| {
            let outline = f.paths.complete.iter().find(|p| p.id == path.path).map(|p| PathListing::from_path(f, p).outline(12));
            (f.name.short.clone(), outline.unwrap_or_default())
        });
        let name = page.paint(paint::NAME, &name);
        let numbers =
            (align_right(&(at + 1).to_string(), 6), align_right(&rank, 6), align_right(&words::format_brief_count(path.field), 8));
        out.push_str(&format!("{}  {}  {}  {name} {} {lines}\n", numbers.0, numbers.1, numbers.2, path.path));
    }
    out
}

/// Returns the comparison of hot paths as JSON.
pub fn hot_paths_json(view: &ProfileView, hot: &[KnownHotPath], share: f64) -> Value {
    let functions = view.functions_by_map_index();
    let path = |(at, p): (usize, &KnownHotPath)| {
        let name = functions.get(&p.function).map(|f| f.name.full.as_str());
        json!({ "tests_rank": at + 1, "field_rank": p.rank, "function": name, "id": number(p.path), "tests_count": number(p.tested),
            "field_count": number(p.field) })
    };
    json!({ "share_of_field": share, "paths": hot.iter().enumerate().map(path).collect::<Vec<_>>() })
}
