//! Writes the paths that match a path expression, as text and JSON.

use crate::error::ReportError;
use crate::json::{SCHEMA_VERSION, number};
use crate::measure::PathMeasure;
use crate::paint;
use crate::path_listing::PathListing;
use crate::select::{find_functions, limit, share};
use crate::source::SourceCache;
use crate::text::{PageLayout, TextOptions, describe_total, render_path};
use crate::view::{Function, ProfileView};
use crate::words::{count, percent, plural};
use serde_json::{Value, json};
use trodden_analysis::expression::joined::{self, PathPieceChain, PathPieceKey};
use trodden_analysis::expression::{ExpressionPlace, PathExpression, PathMatcher};
use trodden_flow::Node;
use trodden_profile::CountedPath;

/// Shown for [`ExpressionAnswer::Unknown`] if only a sequence of partial paths matches. A function with too many paths is counted in such
/// parts, and it is not known which parts were executed one after the other.
pub const UNKNOWN_BECAUSE_CUT: &str = "unknown: paths are cut";
/// Shown for [`ExpressionAnswer::Unknown`] if no counted path matches but some executions may not have been counted.
const UNKNOWN_BECAUSE_INCOMPLETE: &str = "unknown: no counted path matches, but not all executions were counted";

/// The answer to the question whether any execution took a path that matches an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionAnswer {
    /// A path matches.
    Yes,
    /// No path matches.
    No,
    /// It cannot be decided: paths are counted in pieces whose order is unknown, or not all executions were counted.
    Unknown,
}

impl ExpressionAnswer {
    /// Returns the answer's word in JSON.
    pub fn json_word(self) -> &'static str {
        match self {
            ExpressionAnswer::Yes => "yes",
            ExpressionAnswer::No => "no",
            ExpressionAnswer::Unknown => "unknown",
        }
    }
}

struct MatchedPath {
    function: usize,
    /// The path's number. A path that was counted in several pieces has the number of each piece, in order.
    ids: Vec<u64>,
    complete: bool,
    /// Number of executions. It is a lower bound if the path was counted in several pieces.
    count: u64,
    weight: u128,
    blocks: Vec<Node>,
    listing: PathListing,
}

/// The matches of an expression, and the functions in which matches may have been missed.
pub struct ExpressionMatches<'v, 'a> {
    expression: &'v str,
    view: &'v ProfileView<'a>,
    functions: Vec<&'v Function<'a>>,
    matches: Vec<MatchedPath>,
    /// Functions whose paths are counted in pieces, so that it cannot be decided whether an execution matched.
    undecided: Vec<usize>,
    /// Functions with executions that may not have been counted.
    incompletely_counted: Vec<usize>,
    /// Number of executions of all paths, matching or not, in the functions that have a match.
    executions: u128,
}

impl<'v, 'a> ExpressionMatches<'v, 'a> {
    /// Finds the paths of a profile that match an expression. `text` is the expression as the user wrote it. Fails if no function has the
    /// name in the expression, or if no block contains one of its positions.
    pub fn new(expression: &PathExpression, text: &'v str, view: &'v ProfileView<'a>) -> Result<ExpressionMatches<'v, 'a>, ReportError> {
        let functions = match &expression.function {
            Some(name) => find_functions(view, name)?,
            None => view.functions.iter().collect(),
        };
        let (mut matches, mut executions, mut undecided, mut incompletely_counted) = (Vec::new(), 0, Vec::new(), Vec::new());
        let mut nowhere: Option<Vec<ExpressionPlace>> = None;
        for (at, function) in functions.iter().enumerate() {
            let matcher = PathMatcher::new(expression, function.unit_map(), function.map);
            let missing: Vec<ExpressionPlace> = matcher.unmatched_places().into_iter().cloned().collect();
            nowhere = Some(nowhere.map_or(missing.clone(), |n| n.into_iter().filter(|p| missing.contains(p)).collect()));
            incompletely_counted
                .extend((missing.is_empty() && view.profile.may_miss_executions(function.unit, function.map)).then_some(at));
            let before = matches.len();
            let is_cut = joined::is_cut(function.map);
            if !expression.needs_whole_paths(function.map) {
                matches.extend(find_uncut_paths(at, function, &matcher));
            }
            if is_cut {
                let found = joined::join(&matcher, function.map, &function.paths);
                let known = |id: u64| matches[before..].iter().any(|m| m.ids == [id]);
                let new = found.certain.iter().filter(|c| !c.pieces.iter().any(|p| known(p.1))).map(|c| build_chain_match(at, function, c));
                let new: Vec<MatchedPath> = new.collect();
                matches.extend(new);
                undecided.extend(found.is_undecided.then_some(at));
            }
            if matches.len() > before {
                executions += function.total(PathMeasure::Count);
            }
        }
        if let Some(place) = nowhere.unwrap_or_default().first() {
            return Err(ReportError::NoSuchPlace { place: describe_position(place) });
        }
        matches.sort_by(|a, b| b.weight.cmp(&a.weight).then(b.count.cmp(&a.count)).then((a.function, &a.ids).cmp(&(b.function, &b.ids))));
        Ok(ExpressionMatches { expression: text, view, functions, matches, undecided, incompletely_counted, executions })
    }

    /// Answers whether any execution took a matching path.
    pub fn answer(&self) -> ExpressionAnswer {
        match (self.matches.is_empty(), self.undecided.is_empty() && self.incompletely_counted.is_empty()) {
            (false, _) => ExpressionAnswer::Yes,
            (true, true) => ExpressionAnswer::No,
            (true, false) => ExpressionAnswer::Unknown,
        }
    }

    /// Returns the names of functions whose paths are counted in pieces, so that it cannot be decided whether an execution matched.
    pub fn undecided_functions(&self) -> Vec<&str> {
        self.function_names(&self.undecided)
    }

    /// Returns the names of functions that contain the expression's positions and may have executions that were not counted.
    pub fn incompletely_counted_functions(&self) -> Vec<&str> {
        self.function_names(&self.incompletely_counted)
    }

    fn function_names(&self, functions: &[usize]) -> Vec<&str> {
        functions.iter().map(|at| self.functions[*at].name.short.as_str()).collect()
    }

    /// Returns the number of matching paths.
    pub fn paths(&self) -> usize {
        self.matches.len()
    }

    /// Returns the name of the function that contains all matches, or `their functions` if several functions do.
    fn matched_functions(&self) -> &str {
        let first = self.matches.first().map(|m| m.function);
        match first.filter(|first| self.matches.iter().all(|m| m.function == *first)) {
            Some(at) => &self.functions[at].name.short,
            None => "their functions",
        }
    }

    fn matched_executions(&self) -> u128 {
        self.matches.iter().map(|m| u128::from(m.count)).sum()
    }

    fn share(&self, found: &MatchedPath) -> f64 {
        share(found.weight, self.view.total(PathMeasure::Instructions))
    }

    /// Renders the result as text, with at most `top` paths.
    pub fn text(&self, sources: &SourceCache, options: &TextOptions, top: usize) -> String {
        let page = &PageLayout::new(options);
        let weight: u128 = self.matches.iter().map(|m| m.weight).sum();
        let paths = plural(self.matches.len() as u128, "path", "paths");
        let all = match self.matches.is_empty() {
            true if self.view.functions.is_empty() => "the profile has no executed paths".to_owned(),
            true if !self.undecided.is_empty() => UNKNOWN_BECAUSE_CUT.to_owned(),
            true if !self.incompletely_counted.is_empty() => UNKNOWN_BECAUSE_INCOMPLETE.to_owned(),
            true => "no executed path".to_owned(),
            false => format!(
                "{paths}, {} of {} executions of {}, {} of the instructions of {}",
                count(self.matched_executions()),
                count(self.executions),
                self.matched_functions(),
                percent(share(weight, self.view.total(PathMeasure::Instructions))),
                describe_total(self.view)
            ),
        };
        let mut out = format!("{}  {}\n", page.paint(paint::TITLE, self.expression), page.paint(paint::DIM, &all));
        for (rank, found) in self.matches.iter().take(limit(top)).enumerate() {
            let function = self.functions[found.function];
            let what = if found.complete { "path" } else { "unfinished path" };
            let ids: Vec<String> = found.ids.iter().map(u64::to_string).collect();
            let least = if ids.len() > 1 { "at least " } else { "" };
            let times = plural(found.count.into(), "time", "times");
            let numbers = format!("{what} {}  taken {least}{times}, {}", ids.join(" + "), percent(self.share(found)));
            out.push_str(&format!("\n{}  {numbers}\n", page.render_entry(rank + 1, function)));
            out.push_str(&render_path(function, &found.listing, sources, page));
        }
        if self.matches.len() > limit(top) {
            out.push_str(&format!("\n... and {} more (--top)\n", self.matches.len() - top));
        }
        out
    }

    /// Returns the result as JSON, with at most `top` paths. The user guide documents the schema.
    pub fn json(&self, top: usize) -> Value {
        let path = |m: &MatchedPath| {
            let function = self.functions[m.function];
            json!({
                "function": function.name.full, "linkage_name": function.name.linkage, "image": function.image.path,
                "file": function.file(), "line": function.line(), "path": number(m.ids[0]),
                    "pieces": m.ids.iter().map(|id| number(*id)).collect::<Vec<_>>(),
                "complete": m.complete, "count": number(m.count), "count_is_exact": m.ids.len() == 1,
                "share": self.share(m), "outline": m.listing.outline(usize::MAX),
                "blocks": m.blocks.iter().map(|b| b.0).collect::<Vec<_>>(),
            })
        };
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "found-paths",
            "expression": self.expression,
            "paths_found": self.matches.len(),
            "executions": number(self.matched_executions()),
            "executions_of_functions": number(self.executions),
            "answer": self.answer().json_word(),
            "functions_cut": self.undecided_functions(),
            "functions_not_counted_whole": self.incompletely_counted_functions(),
            "paths": self.matches.iter().take(limit(top)).map(path).collect::<Vec<_>>(),
        })
    }
}

fn find_uncut_paths(at: usize, function: &Function, matcher: &PathMatcher) -> Vec<MatchedPath> {
    let fits = |p: &CountedPath| p.count > 0 && matcher.matches(p.blocks, p.beginning, p.end);
    let found = |p: CountedPath| MatchedPath {
        function: at,
        ids: vec![p.id],
        complete: p.is_complete(),
        count: p.executions(),
        weight: u128::from(p.executions()) * u128::from(function.length(p.blocks)),
        blocks: p.blocks.to_vec(),
        listing: PathListing::from_path(function, p),
    };
    function.paths.all().filter(fits).map(found).collect()
}

fn build_chain_match(at: usize, function: &Function, chain: &PathPieceChain) -> MatchedPath {
    let listing = |(is_complete, id): &PathPieceKey| Some(PathListing::from_path(function, function.paths.find(*is_complete, *id)?));
    let listings: Vec<PathListing> = chain.pieces.iter().filter_map(listing).collect();
    MatchedPath {
        function: at,
        ids: chain.pieces.iter().map(|p| p.1).collect(),
        complete: chain.pieces.iter().all(|p| p.0),
        count: chain.min_count,
        weight: u128::from(chain.min_count) * u128::from(function.length(&chain.blocks)),
        blocks: chain.blocks.clone(),
        listing: PathListing::join_pieces(listings),
    }
}

/// Describes a position in an expression: `lines 3-5 of a.c`.
pub fn describe_position(place: &ExpressionPlace) -> String {
    match place {
        ExpressionPlace::Any => "_".into(),
        ExpressionPlace::Block(number) => format!("block b{number}"),
        ExpressionPlace::Lines { file, first, last } => {
            let lines = if first == last { format!("line {first}") } else { format!("lines {first}-{last}") };
            file.as_ref().map_or(lines.clone(), |f| format!("{lines} of {f}"))
        }
        ExpressionPlace::Inlined(name) => format!("inlined code of {name}"),
    }
}
