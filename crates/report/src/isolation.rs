//! Writes paths suspected of causing failures, as text and JSON.

use crate::json::SCHEMA_VERSION;
use crate::paint::{self, truncate_text};
use crate::path_listing::PathListing;
use crate::source::SourceCache;
use crate::text::{PageLayout, TextOptions, render_path};
use crate::view::{Function, ProfileView};
use crate::words::{count, plural};
use serde_json::{Value, json};
use trodden_analysis::isolate::{FailureIsolation, RunTally, SuspiciousPath, SuspiciousnessFormula, UnitFunction};
use trodden_flow::DagEdgeId;
use trodden_unit::experiment::Spelling;

/// Which suspects to show.
pub struct SuspectSelection<'a> {
    /// Ranks the suspects.
    pub formula: SuspiciousnessFormula,
    /// Maximum number of suspects; 0 shows all.
    pub top: usize,
    /// A function's name, or a pattern for names; `None` selects all functions.
    pub function: Option<&'a str>,
}

/// Paths ranked by suspicion, with their functions.
pub struct RankedSuspects<'v, 'a> {
    runs: RunTally,
    formula: SuspiciousnessFormula,
    found: usize,
    shown: Vec<(SuspiciousPath, &'v Function<'a>)>,
}

impl<'v, 'a> RankedSuspects<'v, 'a> {
    /// Ranks the paths of the compared runs. `view` must show the merged profile of all these runs. Fails if no function matches the
    /// selection.
    pub fn new(
        isolation: &FailureIsolation,
        view: &'v ProfileView<'a>,
        selection: &SuspectSelection,
    ) -> Result<RankedSuspects<'v, 'a>, crate::ReportError> {
        let functions = view.functions_by_map_index();
        let edges = |key: UnitFunction, id: u64| functions.get(&key).map_or_else(Vec::new, |f| edges_of_path(f, id));
        let mut all = isolation.suspects(selection.formula, edges);
        if let Some(name) = selection.function {
            let named = crate::select::find_functions(view, name)?;
            all.retain(|s| functions.get(&s.function).is_some_and(|f| named.iter().any(|c| std::ptr::eq(*c, *f))));
        }
        let found = all.len();
        let shown =
            all.into_iter().filter_map(|s| functions.get(&s.function).map(|f| (s, *f))).take(crate::select::limit(selection.top)).collect();
        Ok(RankedSuspects { runs: isolation.runs(), formula: selection.formula, found, shown })
    }

    /// Renders the suspects as text.
    pub fn text(&self, sources: &SourceCache, options: &TextOptions) -> String {
        let page = &PageLayout::new(options);
        let runs = format!(
            "{} failing and {} passing {}",
            count(self.runs.failing.into()),
            count(self.runs.passing.into()),
            singular_or_plural_run(self.runs)
        );
        let mut out = format!("{}  {}\n", page.paint(paint::TITLE, "Suspicious paths"), page.paint(paint::DIM, &runs));
        if self.shown.is_empty() {
            return out + "No failing run executed a path of these functions.\n";
        }
        let shown =
            format!("by {}; {} of {} shown\n\n", self.formula.name(), self.shown.len(), plural(self.found as u128, "path", "paths"));
        out.push_str(&shown);
        for (rank, (suspect, function)) in self.shown.iter().enumerate() {
            out.push_str(&render_suspect_title(rank + 1, suspect, function, page));
            if let Some(listing) = list_path(function, suspect) {
                out.push_str(&render_path(function, &listing, sources, page));
            }
            out.push('\n');
        }
        out
    }

    /// Returns the suspects as JSON. The user guide documents the schema.
    pub fn json(&self) -> Value {
        let suspects = self.shown.iter().enumerate().map(|(at, (s, function))| {
            json!({
                "rank": at + 1,
                "function": function.name.full,
                "linkage_name": function.name.linkage,
                "image": function.image.path,
                "file": function.file(),
                "line": function.line(),
                "path": s.id,
                "complete": s.complete,
                "outline": list_path(function, s).map(|listing| listing.outline(usize::MAX)),
                "failing": s.runs.failing,
                "passing": s.runs.passing,
                "function_failing": s.executed.failing,
                "function_passing": s.executed.passing,
                "new_edges": s.new_edges,
                "ochiai": s.ochiai,
                "tarantula": s.tarantula,
                "increase": s.increase.0,
                "increase_margin_95": s.increase.1,
                "importance": s.importance,
            })
        });
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "isolation",
            "failing_runs": self.runs.failing,
            "passing_runs": self.runs.passing,
            "by": self.formula.name(),
            "suspects_found": self.found,
            "suspects": suspects.collect::<Vec<_>>(),
        })
    }
}

fn singular_or_plural_run(runs: RunTally) -> &'static str {
    if runs.failing + runs.passing == 1 { "run" } else { "runs" }
}

fn edges_of_path(function: &Function, id: u64) -> Vec<DagEdgeId> {
    function.paths.all().find(|p| p.id == id).map_or_else(Vec::new, |p| p.path.to_vec())
}

fn list_path(function: &Function, suspect: &SuspiciousPath) -> Option<PathListing> {
    function.paths.find(suspect.complete, suspect.id).map(|path| PathListing::from_path(function, path))
}

fn render_suspect_title(rank: usize, suspect: &SuspiciousPath, function: &Function, page: &PageLayout) -> String {
    let SuspiciousPath { runs, executed, .. } = suspect;
    let what = if suspect.complete { "path" } else { "unfinished path" };
    let head = format!("{}  {what} {}", page.render_entry(rank, function), suspect.id);
    let taken = format!(
        "in {} of {} failing and {} of {} passing runs that executed the function",
        runs.failing, executed.failing, runs.passing, executed.passing
    );
    let scores = format!(
        "ochiai {:.3}, tarantula {:.3}, importance {:.3} (increase {:+.2} ± {:.2})",
        suspect.ochiai, suspect.tarantula, suspect.importance, suspect.increase.0, suspect.increase.1
    );
    let edges = match suspect.new_edges {
        0 if runs.passing > 0 => "passing runs took this path, too".to_owned(),
        0 => "passing runs took all of its edges, but never this path".to_owned(),
        n => format!("{} no passing run took", plural(n.into(), "edge that", "edges that")),
    };
    let line = |text: &str| format!("      {}\n", page.paint(paint::DIM, &truncate_text(text, page.width - 6)));
    format!("{head}\n{}{}{}", line(&taken), line(&scores), line(&edges))
}
