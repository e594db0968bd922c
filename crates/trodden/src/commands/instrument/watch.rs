//! `trodden instrument --watch EXPRESSION`: makes a program that acts at the end of each path that matches an expression.
//!
//! The program is built like one that counts only untested paths ([`trodden_flow::residual`]); all paths that do not match are declared
//! tested. Matching paths are counted exactly, and the action runs where they end, in the thread that executed them. Functions without a
//! match get no code. To find the matches, this module tries all paths of the selected functions. Paths that end at a call that does not
//! return are never watched, because only the end of the program shows that the call has not returned.

use crate::context::driver_context;
use crate::notes::{note, warn};
use anyhow::{Result, bail, ensure};
use std::collections::HashSet;
use std::path::Path;
use trodden_analysis::expression::joined::{is_cut, is_whole};
use trodden_analysis::expression::{ExpressionPlace, PathExpression, PathMatcher, RequiredPathEnd};
use trodden_profile::{DecodedPath, PathDecoder, has_standard_numbering};
use trodden_recording::copies::read_units;
use trodden_report::found::{UNKNOWN_BECAUSE_CUT, describe_position};
use trodden_report::select::matching_names;
use trodden_report::words::plural;
use trodden_report::{DemangledName, ReportError};
use trodden_unit::{FunctionMap, KnownPaths, UnitMap};

/// Maximum number of paths in a watched function, because each path is matched separately.
const MAX_TRIED_PATHS: u64 = 1 << 20;

/// Advice for functions with so many paths that numbering splits them at some edges ("cut edges"). Counting in hash tables would avoid the
/// split, but such functions cannot be watched.
const CUT_EDGE_ADVICE: &str =
    "Watch a variant with whole paths, made by `trodden-lab with --max-paths 65536 -- instrument PROGRAM --output NEW`";

/// Returns all paths of a program that do not match the expression. Fails if the expression is malformed, uses `call` or matches no path,
/// or if a function has too many paths or numbers them by a scheme other than the standard one.
pub fn find_unmatched_paths(text: &str, program: &Path) -> Result<KnownPaths> {
    let expression: PathExpression = text.parse()?;
    let calls = expression.patterns.iter().flatten().any(|s| s.end == Some(RequiredPathEnd::Call));
    ensure!(
        !calls,
        "cannot watch for `call` (a call that does not return), because only the end of the program shows that. Remove `call` from the \
         expression"
    );
    let maps: Vec<UnitMap> = read_units(program, driver_context().store().ok().as_ref())?.into_iter().map(|(_, map)| map).collect();
    let functions: Vec<(&UnitMap, &FunctionMap)> = maps.iter().flat_map(|m| m.functions.iter().map(move |f| (m, f))).collect();
    let selected = select_functions(&expression, &functions, program)?;
    let mut unmatched = KnownPaths::default();
    let (mut matching, mut matching_functions) = (0usize, 0usize);
    let mut unmatched_places: Option<Vec<&ExpressionPlace>> = None;
    let mut undecided: Vec<String> = Vec::new();
    for (index, (map, function)) in functions.iter().enumerate() {
        check_path_count(function)?;
        let mut left: Vec<u64> = (0..function.counters).collect();
        if selected.contains(&index) {
            let matcher = PathMatcher::new(&expression, map, function);
            let missing = matcher.unmatched_places();
            unmatched_places = Some(unmatched_places.map_or(missing.clone(), |n| n.into_iter().filter(|p| missing.contains(p)).collect()));
            if is_cut(function) && !matcher.cannot_match() {
                undecided.push(DemangledName::from_linkage(&function.name).short);
            }
            let (walks, needs_whole) = (PathDecoder::from_function(function)?, expression.needs_whole_paths(function));
            let decides = |w: &DecodedPath| w.end.is_some() && (!needs_whole || is_whole(function, &w.blocks, w.end));
            left.retain(|id| !walks.decode(*id).is_some_and(|w| decides(&w) && matcher.matches(&w.blocks, w.beginning, w.end)));
        }
        let found = function.counters as usize - left.len();
        (matching, matching_functions) = (matching + found, matching_functions + usize::from(found > 0));
        unmatched.add(map, function, left.into_iter().map(|id| (id, 0)), &vec![0; function.graph.edge_count()])?;
    }
    if let Some(place) = unmatched_places.unwrap_or_default().first() {
        bail!(ReportError::NoSuchPlace { place: describe_position(place) });
    }
    let cut = undecided
        .first()
        .map(|first| format!("paths of `{first}` are cut, and a path that matches only as a whole is missed. {CUT_EDGE_ADVICE}"));
    match (matching, cut) {
        (0, None) => bail!("no path of {} matches `{text}`. To try an expression on a recorded run, use `trodden find`", program.display()),
        (0, Some(cut)) => bail!("{UNKNOWN_BECAUSE_CUT}: {cut}"),
        (_, Some(cut)) => warn(cut),
        (_, None) => {}
    }
    let (paths, functions) = (plural(matching as u128, "path", "paths"), plural(matching_functions as u128, "function", "functions"));
    note(format_args!("{paths} of {functions} {} watched", if matching == 1 { "is" } else { "are" }));
    Ok(unmatched)
}

/// Fails if a function has too many paths to match each of them, or does not number them by the standard scheme.
fn check_path_count(function: &FunctionMap) -> Result<()> {
    ensure!(
        has_standard_numbering(function)?,
        "cannot watch function `{}`, because its paths are not counted by the default scheme. Build the program without --scheme and \
         table-slots",
        function.name
    );
    ensure!(
        function.counters <= MAX_TRIED_PATHS,
        "cannot watch function `{}`: it has {} paths, and --watch can try at most {MAX_TRIED_PATHS}. Watch a variant with fewer paths, \
         made by `trodden-lab with --max-paths 65536 -- instrument PROGRAM --output NEW`",
        function.name,
        function.counters
    );
    Ok(())
}

fn select_functions(expression: &PathExpression, functions: &[(&UnitMap, &FunctionMap)], program: &Path) -> Result<HashSet<usize>> {
    let Some(text) = &expression.function else { return Ok((0..functions.len()).collect()) };
    let names: Vec<DemangledName> = functions.iter().map(|(_, f)| DemangledName::from_linkage(&f.name)).collect();
    let selected: HashSet<usize> = matching_names(names.iter(), text)?.into_iter().collect();
    if selected.is_empty() {
        bail!(
            "{} has no instrumented function `{text}`. Pass the function's name, or a regular expression for its full name",
            program.display()
        );
    }
    Ok(selected)
}
