//! Selects and orders the functions and paths of a report.

use crate::error::ReportError;
use crate::escape;
use crate::measure::PathMeasure;
use crate::names::DemangledName;
use crate::view::{Function, ProfileView, file_of};
use crate::words::base_name;
use regex_lite::Regex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use trodden_profile::{FunctionPaths, PathCount};

/// Which functions and paths a report shows.
#[derive(Clone, Debug)]
pub struct PathSelection {
    /// A function's linkage, full or short name, or a regular expression for full names; `None` selects all functions.
    pub function: Option<String>,
    /// The measure by which paths are ordered and percentages computed.
    pub measure: PathMeasure,
    /// Maximum number of paths; 0 shows all.
    pub top: usize,
    /// Minimum share (0 to 1) of the complete program's weight that a path must have to be shown.
    pub min_share: f64,
}

impl Default for PathSelection {
    fn default() -> PathSelection {
        PathSelection { function: None, measure: PathMeasure::default(), top: 10, min_share: 0.0 }
    }
}

/// A path with its weight and share.
#[derive(Clone, Copy)]
pub struct RankedPath<'v, 'a> {
    /// The function that contains the path.
    pub function: &'v Function<'a>,
    /// The path's number, count and blocks.
    pub path: &'v PathCount,
    /// The path's weight by the selected measure.
    pub weight: u128,
    /// The weight as a share of the program's total, from 0 to 1.
    pub share: f64,
}

/// Selected paths, greatest weight first.
pub struct RankedPaths<'v, 'a> {
    /// The paths to show.
    pub paths: Vec<RankedPath<'v, 'a>>,
    /// The selected functions, including functions none of whose paths is shown.
    pub functions: Vec<&'v Function<'a>>,
    /// Number of executed paths in the selected functions.
    pub candidates: usize,
}

impl RankedPaths<'_, '_> {
    /// Returns the share of the program's total that the shown paths make up, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.paths.iter().map(|p| p.share).sum()
    }
}

impl PathSelection {
    /// Selects paths and sorts them by weight, greatest first. Fails if no function matches, or if the pattern is not a valid regular
    /// expression.
    pub fn rank<'v, 'a>(&self, view: &'v ProfileView<'a>) -> Result<RankedPaths<'v, 'a>, ReportError> {
        let functions = self.functions(view)?;
        let total = view.total(self.measure);
        let mut paths: Vec<RankedPath> = Vec::new();
        for function in &functions {
            for path in &function.paths.complete {
                let weight = function.weight(path, self.measure);
                paths.push(RankedPath { function, path, weight, share: share(weight, total) });
            }
        }
        let candidates = paths.len();
        paths.retain(|p| p.share >= self.min_share);
        paths.sort_by(|a, b| {
            let names = || a.function.name.full.cmp(&b.function.name.full);
            b.weight.cmp(&a.weight).then(b.path.count.cmp(&a.path.count)).then_with(names).then(a.path.id.cmp(&b.path.id))
        });
        paths.truncate(limit(self.top));
        Ok(RankedPaths { paths, functions, candidates })
    }

    /// Returns the selected functions. Fails like [`PathSelection::rank`].
    pub fn functions<'v, 'a>(&self, view: &'v ProfileView<'a>) -> Result<Vec<&'v Function<'a>>, ReportError> {
        match &self.function {
            None => Ok(view.functions.iter().collect()),
            Some(text) => find_functions(view, text),
        }
    }
}

/// Converts the value of `--top` to a maximum number of items, where 0 means no limit.
pub fn limit(top: usize) -> usize {
    if top == 0 { usize::MAX } else { top }
}

/// Returns the ratio of a part to the whole, or 0 if the whole is 0.
pub fn share(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns the functions that match a name or a pattern, most executed first. Fails if no function matches, or if the pattern is not a
/// valid regular expression.
pub fn find_functions<'v, 'a>(view: &'v ProfileView<'a>, text: &str) -> Result<Vec<&'v Function<'a>>, ReportError> {
    let found = matching_names(view.functions.iter().map(|f| &f.name), text)?;
    match found.is_empty() {
        true => Err(ReportError::NoSuchFunction {
            name: text.to_string(),
            similar: find_similar_names(view, text),
            inlined_into: find_inlining_functions(view, text),
        }),
        false => Ok(found.into_iter().map(|at| &view.functions[at]).collect()),
    }
}

/// Returns the indices of the names that match `text`. Four rules are tried until one yields a match: the name equals `text`; the name ends
/// with `text`; `text` is a regular expression that matches the name without its parameters; the regular expression matches the full name.
/// Fails if no name equals or ends with `text`, and `text` is not a valid regular expression.
pub fn matching_names<'n>(names: impl Iterator<Item = &'n DemangledName> + Clone, text: &str) -> Result<Vec<usize>, ReportError> {
    let indices =
        |is: &dyn Fn(&DemangledName) -> bool| names.clone().enumerate().filter(|(_, n)| is(n)).map(|(at, _)| at).collect::<Vec<usize>>();
    let named = indices(&|name| name.matches(text));
    if !named.is_empty() {
        return Ok(named);
    }
    let ending = indices(&|name| name.ends_with(text));
    if !ending.is_empty() {
        return Ok(ending);
    }
    let pattern = Regex::new(text).map_err(|e| ReportError::Pattern { pattern: text.to_string(), reason: e.to_string() })?;
    let matching = indices(&|name| pattern.is_match(&name.qualified));
    Ok(if matching.is_empty() { indices(&|name| pattern.is_match(&name.full)) } else { matching })
}

/// Returns the path with the given number, whether or not it was executed. If `id` is `None`, returns the path with the greatest weight, or
/// `None` if no path was executed. Fails if the function has no path with this number.
pub fn find_path<'v>(function: &'v Function, id: Option<u64>, measure: PathMeasure) -> Result<Option<Cow<'v, PathCount>>, ReportError> {
    let paths = &function.paths.complete;
    let heaviest = || paths.iter().max_by_key(|p| (function.weight(p, measure), p.count, std::cmp::Reverse(p.id)));
    let Some(id) = id else { return Ok(heaviest().map(Cow::Borrowed)) };
    if let Some(path) = paths.iter().find(|p| p.id == id) {
        return Ok(Some(Cow::Borrowed(path)));
    }
    let numbered = FunctionPaths::decode(function.map, [(id, 0)]).ok().and_then(|paths| paths.complete.into_iter().next());
    let none = || ReportError::NoSuchPath {
        function: function.name.full.clone(),
        path: id,
        paths: function.map.counters,
        known: paths.iter().map(|p| p.id).collect(),
    };
    numbered.map(|path| Some(Cow::Owned(path))).ok_or_else(none)
}

/// Returns the functions into which the named function was inlined, each with the position of the first call.
fn find_inlining_functions(view: &ProfileView, text: &str) -> Vec<(String, String)> {
    let mut places: BTreeMap<String, (String, u32)> = BTreeMap::new();
    for unit in view.profile.images.iter().flat_map(|image| &image.units) {
        let inlined = unit.map.scopes.iter().filter(|scope| scope.name == text || scope.linkage_name == text);
        for call in inlined.filter_map(|scope| scope.inlined_at) {
            let outermost = unit.map.inlined_chain(call).last().unwrap_or(call);
            let Some(caller) = unit.map.scopes.get(outermost.scope as usize) else { continue };
            let file = file_of(&unit.map, outermost).map_or("?", base_name);
            let place = places.entry(caller.name.clone()).or_insert_with(|| (file.to_owned(), outermost.line));
            if place.0 == file {
                place.1 = place.1.min(outermost.line);
            }
        }
    }
    places.into_iter().map(|(name, (file, line))| (escape::escape_line(&name), format!("{}:{line}", escape::escape_line(&file)))).collect()
}

fn find_similar_names(view: &ProfileView, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut candidates: Vec<(usize, &str)> =
        view.functions.iter().map(|f| (edit_distance(&f.name.short.to_lowercase(), &text), f.name.short.as_str())).collect();
    candidates.retain(|(distance, _)| *distance <= 1 + text.len() / 3);
    candidates.sort();
    candidates.dedup();
    candidates.into_iter().take(3).map(|(_, name)| name.to_string()).collect()
}

/// Returns the Levenshtein distance between two words. Its time is proportional to the product of their lengths.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_the_number_of_edits() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }
}
