//! `trodden instrument --watch EXPRESSION`: a program that acts by itself at the end of each path that matches.
//!
//! It is a residual build ([`trodden_flow::residual`]) to which every path is known but those that match: so these are
//! counted exactly, and acted on, where they end, in the thread that took them, and functions without such a path have
//! no code put in. Which paths match is decided here, by trying all paths of the functions that are meant.
//!
//! Paths that came to a call and did not go on are known, too: that a call does not come back is known only when the program has ended.

use crate::context::context;
use crate::notes::{note, warn};
use anyhow::{Result, bail, ensure};
use std::collections::HashSet;
use std::path::Path;
use trodden_analysis::expression::joined::{is_cut, is_whole};
use trodden_analysis::expression::{BlockSet, End, Expression, Matcher};
use trodden_profile::{PathWalk, Walks, has_usual_numbers};
use trodden_recording::copies::units;
use trodden_report::found::{UNKNOWN, words};
use trodden_report::select::matching_names;
use trodden_report::words::plural;
use trodden_report::{Name, ReportError};
use trodden_unit::{FunctionMap, KnownPaths, UnitMap};

/// Functions with more paths are not watched: each path is tried.
const MOST_PATHS: u64 = 1 << 20;

/// What to do where paths are cut. Tables would keep them whole, too, but cannot be watched.
const REMEDY: &str =
    "`trodden-lab with --max-paths 65536 -- instrument PROGRAM --output NEW` makes a program whose paths are whole; watch that";

/// All paths of a program but those that match.
///
/// # Errors
/// The expression cannot be read, says what is not known while a program runs, or matches no path of the program; or
/// the program counts such that its paths cannot be tried.
pub fn others(text: &str, program: &Path) -> Result<KnownPaths> {
    let expression: Expression = text.parse()?;
    let calls = expression.patterns.iter().flatten().any(|s| s.end == Some(End::Call));
    ensure!(!calls, "`call` cannot be watched: that a call does not come back is known only when the program has ended");
    let maps: Vec<UnitMap> = units(program, context().store().ok().as_ref())?.into_iter().map(|(_, map)| map).collect();
    let functions: Vec<(&UnitMap, &FunctionMap)> = maps.iter().flat_map(|m| m.functions.iter().map(move |f| (m, f))).collect();
    let meant = meant(&expression, &functions, program)?;
    let mut others = KnownPaths::default();
    let (mut matching, mut holders) = (0usize, 0usize);
    let mut nowhere: Option<Vec<&BlockSet>> = None;
    let mut open: Vec<String> = Vec::new();
    for (at, (map, function)) in functions.iter().enumerate() {
        check(function)?;
        let mut left: Vec<u64> = (0..function.counters).collect();
        if meant.contains(&at) {
            let matcher = Matcher::new(&expression, map, function);
            let missing = matcher.nowhere();
            nowhere = Some(nowhere.map_or(missing.clone(), |n| n.into_iter().filter(|p| missing.contains(p)).collect()));
            if is_cut(function) && !matcher.nowhere_in_all_patterns() {
                open.push(Name::from_linkage(&function.name).short);
            }
            let (walks, needs_whole) = (Walks::from_function(function)?, expression.needs_whole_paths(function));
            let decides = |w: &PathWalk| w.end.is_some() && (!needs_whole || is_whole(function, &w.blocks, w.end));
            left.retain(|id| !walks.walk(*id).is_some_and(|w| decides(&w) && matcher.matches(&w.blocks, w.beginning, w.end)));
        }
        let found = function.counters as usize - left.len();
        (matching, holders) = (matching + found, holders + usize::from(found > 0));
        others.add(map, function, left.into_iter().map(|id| (id, 0)), &vec![0; function.edges.len()])?;
    }
    if let Some(place) = nowhere.unwrap_or_default().first() {
        bail!(ReportError::NoSuchPlace { place: words(place) });
    }
    let cut =
        open.first().map(|first| format!("paths of `{first}` are cut, and a path whose pieces match only together is not seen: {REMEDY}"));
    match (matching, cut) {
        (0, None) => bail!("no path of {} matches `{text}`", program.display()),
        (0, Some(cut)) => bail!("{UNKNOWN}: {cut}"),
        (_, Some(cut)) => warn(cut),
        (_, None) => {}
    }
    let (paths, functions) = (plural(matching as u128, "path", "paths"), plural(holders as u128, "function", "functions"));
    note(format_args!("{paths} of {functions} {} watched", if matching == 1 { "is" } else { "are" }));
    Ok(others)
}

/// Whether each path of a function can be tried.
fn check(function: &FunctionMap) -> Result<()> {
    ensure!(
        has_usual_numbers(function)?,
        "`{}` does not count its paths as usual: for --watch, take a program built without tables and with the usual scheme",
        function.name
    );
    ensure!(
        function.counters <= MOST_PATHS,
        "`{}` has {} paths, and --watch tries at most {MOST_PATHS} of a function: `trodden-lab with --max-paths \
            65536 -- instrument PROGRAM --output NEW` makes a program with fewer; watch that",
        function.name,
        function.counters
    );
    Ok(())
}

/// The functions that the expression means, by their places.
fn meant(expression: &Expression, functions: &[(&UnitMap, &FunctionMap)], program: &Path) -> Result<HashSet<usize>> {
    let Some(text) = &expression.function else { return Ok((0..functions.len()).collect()) };
    let names: Vec<Name> = functions.iter().map(|(_, f)| Name::from_linkage(&f.name)).collect();
    let meant: HashSet<usize> = matching_names(names.iter(), text)?.into_iter().collect();
    if meant.is_empty() {
        bail!(
            "no instrumented function of {} is called `{text}`: give its name, or a regular expression for full names",
            program.display()
        );
    }
    Ok(meant)
}
