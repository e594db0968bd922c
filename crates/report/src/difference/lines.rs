//! Compares functions of two builds by source lines if their graphs differ, because then their path numbers cannot be compared.
//!
//! Different builds may inline, duplicate and merge code differently, so source functions are compared, wherever their code is. A line's
//! count is the sum over all copies of its code ([`crate::lines`]), divided by the number of calls to the line's function. Lines are
//! matched by their distance from the function's declaration, since code before the function may have changed.
//!
//! The comparison has three limitations: in an edited function, lines after the edit are compared with the wrong lines; lines that have
//! code in only one of the builds are not compared; and unrolling, vectorising or rotating a loop changes its lines' counts.

use crate::lines::LineCounts;
use crate::view::{Function, ProfileView, file_of};
use crate::words::base_name;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_profile::{DiffOptions, PathChange, ProfileDifference, UnitAndFunctionIndex};
use trodden_unit::{Identity, SourcePosition, UnitMap};

/// The source functions whose line counts differ between two builds.
#[derive(Clone, Debug, Default)]
pub struct LineDifference {
    /// Source functions with changed lines, ordered by their largest change.
    pub functions: Vec<FunctionLines>,
    /// Number of source functions that were compared.
    pub compared: usize,
}

/// The changed lines of a function.
#[derive(Clone, Debug)]
pub struct FunctionLines {
    /// The function's linkage name. For a template, it is the name of one instance.
    pub name: String,
    /// File that declares the function, in the second build.
    pub file: String,
    /// Numbers of calls in the first and in the second build, including inlined calls.
    pub calls: (u64, u64),
    /// Number of lines that were compared.
    pub compared: usize,
    /// The changed lines in source order.
    pub lines: Vec<LineChange>,
}

/// A line that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct LineChange {
    /// What changed. [`PathChange::Share`] means the number of executions per call of the function.
    pub change: PathChange,
    /// Line numbers in the first and in the second build.
    pub lines: (u32, u32),
    /// Numbers of executions in the first and in the second build.
    pub counts: (u64, u64),
    /// Numbers of executions per call of the function, in the first and in the second build.
    pub per_call: (f64, f64),
}

impl LineChange {
    fn change_per_call(&self) -> f64 {
        (self.per_call.1 - self.per_call.0).abs()
    }
}

impl FunctionLines {
    fn largest_change(&self) -> f64 {
        self.lines.iter().map(LineChange::change_per_call).fold(0.0, f64::max)
    }
}

/// Compares the functions whose paths `found` could not compare, by source lines. Functions that were compared are removed from `found`'s
/// lists of functions without a counterpart.
#[must_use]
pub fn compare(before: &ProfileView, after: &ProfileView, found: &mut ProfileDifference, options: &DiffOptions) -> LineDifference {
    let mut difference = LineDifference::default();
    if found.unmatched_before.is_empty() && found.unmatched_after.is_empty() {
        return difference;
    }
    let (old, new) = (SourceFunctions::new(before), SourceFunctions::new(after));
    let (unmatched_old, unmatched_new) = (find_functions(before, &found.unmatched_before), find_functions(after, &found.unmatched_after));
    let mut pairs: BTreeSet<(DeclarationFileAndLine, DeclarationFileAndLine)> = BTreeSet::new();
    pairs.extend(find_declarations(&unmatched_old).into_iter().filter_map(|one| Some((one, old.find_counterpart(one, &new)?))));
    pairs.extend(find_declarations(&unmatched_new).into_iter().filter_map(|other| Some((new.find_counterpart(other, &old)?, other))));
    let (mut compared_old, mut compared_new) = (BTreeSet::new(), BTreeSet::new());
    for (one, other) in pairs {
        let Some((lines, function)) = compare_function(&old, one, &new, other, options) else { continue };
        difference.compared += usize::from(lines > 0);
        difference.functions.extend(function);
        compared_old.insert(one);
        compared_new.insert(other);
    }
    difference.functions.sort_by(|a, b| b.largest_change().total_cmp(&a.largest_change()).then_with(|| a.name.cmp(&b.name)));
    retain_names_not_compared(&mut found.only_before, &unmatched_old, &compared_old);
    retain_names_not_compared(&mut found.only_after, &unmatched_new, &compared_new);
    difference
}

type DeclarationFileAndLine<'a> = (&'a str, u32);

/// A program's source functions that have machine code, either their own or inlined into other functions.
struct SourceFunctions<'a> {
    counts: LineCounts,
    functions: BTreeMap<DeclarationFileAndLine<'a>, SourceFunction<'a>>,
    /// The declarations of each function, by the file's base name and the function's linkage name.
    named: HashMap<(&'a str, &'a str), BTreeSet<DeclarationFileAndLine<'a>>>,
}

#[derive(Default)]
struct SourceFunction<'a> {
    /// The function's linkage names. A template has one for each instance.
    names: BTreeSet<&'a str>,
    lines: BTreeSet<u32>,
}

impl<'a> SourceFunctions<'a> {
    fn new(view: &ProfileView<'a>) -> SourceFunctions<'a> {
        let counts = LineCounts::from_functions(&view.functions);
        let mut all = SourceFunctions { counts, functions: BTreeMap::new(), named: HashMap::new() };
        for function in &view.functions {
            let map = function.unit_map();
            for position in collect_code_positions(function) {
                let Some((declaration, name)) = find_declaration(map, position.scope) else { continue };
                let known = all.functions.entry(declaration).or_default();
                known.names.insert(name);
                if file_of(map, position) == Some(declaration.0) {
                    known.lines.insert(position.line);
                }
                all.named.entry((base_name(declaration.0), name)).or_default().insert(declaration);
            }
        }
        all
    }

    /// Returns the function's declaration in the other build. A declaration in the same file is preferred; otherwise it must be the only
    /// one in files with the same base name.
    fn find_counterpart(&self, of: DeclarationFileAndLine<'a>, other: &SourceFunctions<'a>) -> Option<DeclarationFileAndLine<'a>> {
        let names = &self.functions.get(&of)?.names;
        let found: BTreeSet<DeclarationFileAndLine> =
            names.iter().filter_map(|name| other.named.get(&(base_name(of.0), *name))).flatten().copied().collect();
        let only = || found.first().copied().filter(|_| found.len() == 1);
        found.iter().copied().find(|(file, _)| *file == of.0).or_else(only)
    }
}

/// Returns the source positions of a function's code, including the calls that were replaced by inlined code.
fn collect_code_positions(function: &Function) -> BTreeSet<SourcePosition> {
    let blocks = function.map.blocks.iter().flat_map(|block| block.positions.iter().copied().chain(block.branch));
    let mut left: Vec<SourcePosition> = blocks.chain(function.map.position).collect();
    let mut found = BTreeSet::new();
    while let Some(position) = left.pop() {
        if found.insert(position) {
            left.extend(function.unit_map().scopes.get(position.scope as usize).and_then(|scope| scope.inlined_at));
        }
    }
    found
}

/// Returns the declaration and linkage name of the function that a scope belongs to; `None` if the debug information lacks the
/// declaration's line.
fn find_declaration(map: &UnitMap, scope: u32) -> Option<(DeclarationFileAndLine<'_>, &str)> {
    let scope = map.scopes.get(scope as usize).filter(|scope| scope.line > 0)?;
    let name = if scope.linkage_name.is_empty() { &scope.name } else { &scope.linkage_name };
    Some(((map.files.get(scope.file as usize)?, scope.line), name))
}

fn find_functions<'v, 'a>(view: &'v ProfileView<'a>, places: &[UnitAndFunctionIndex]) -> Vec<&'v Function<'a>> {
    let by_place: HashMap<(Identity, usize), &Function> = view.functions_by_map_index();
    places.iter().filter_map(|place| by_place.get(place).copied()).collect()
}

/// Returns the declarations of all functions whose code is in `functions`, including inlined ones.
fn find_declarations<'a>(functions: &[&Function<'a>]) -> BTreeSet<DeclarationFileAndLine<'a>> {
    let of = |function: &&Function<'a>| {
        let map = function.unit_map();
        let scopes: BTreeSet<u32> = collect_code_positions(function).into_iter().map(|position| position.scope).collect();
        scopes.into_iter().filter_map(|scope| Some(find_declaration(map, scope)?.0)).collect::<Vec<_>>()
    };
    functions.iter().flat_map(of).collect()
}

/// Removes the names of functions that were compared by lines.
fn retain_names_not_compared(names: &mut Vec<String>, unmatched: &[&Function], compared: &BTreeSet<DeclarationFileAndLine>) {
    let is_compared = |function: &Function| {
        let own = function.map.position.and_then(|position| find_declaration(function.unit_map(), position.scope));
        own.is_some_and(|(own, _)| compared.contains(&own))
    };
    let left: BTreeSet<&str> = unmatched.iter().filter(|f| !is_compared(f)).map(|f| f.map.plain_name()).collect();
    names.retain(|name| left.contains(&**name));
}

/// Returns the number of compared lines, and the function with its changes if it has any. Returns `None` if the builds have no code lines
/// in common.
fn compare_function(
    old: &SourceFunctions,
    one: DeclarationFileAndLine,
    new: &SourceFunctions,
    other: DeclarationFileAndLine,
    options: &DiffOptions,
) -> Option<(usize, Option<FunctionLines>)> {
    let (before, after) = (old.functions.get(&one)?, new.functions.get(&other)?);
    let calls =
        (old.counts.calls_of_functions_declared_at(one).unwrap_or(0), new.counts.calls_of_functions_declared_at(other).unwrap_or(0));
    let (mut compared, mut lines) = (0, Vec::new());
    for &line in &before.lines {
        let moved = i64::from(line) - i64::from(one.1) + i64::from(other.1);
        let Some(moved) = u32::try_from(moved).ok().filter(|moved| after.lines.contains(moved)) else { continue };
        let (Some(a), Some(b)) = (old.counts.line(one.0, line), new.counts.line(other.0, moved)) else { continue };
        compared += 1;
        lines.extend(compare_line((line, moved), (a, b), calls).filter(|change| is_reported(change, options)));
    }
    if compared == 0 {
        return None;
    }
    let differs = !lines.is_empty() || options.report_counts && calls.0 != calls.1;
    let name = after.names.first().copied().unwrap_or_default().to_owned();
    Some((compared, differs.then(|| FunctionLines { name, file: other.0.to_owned(), calls, compared, lines })))
}

fn compare_line(lines: (u32, u32), (old, new): (u64, u64), calls: (u64, u64)) -> Option<LineChange> {
    // A function that was already running when counting started may have executions but no calls. With one call assumed, the counts
    // themselves are compared.
    let calls = (calls.0.max(1), calls.1.max(1));
    let change = match (old, new) {
        (0, 0) => return None,
        (0, _) => PathChange::Appeared,
        (_, 0) => PathChange::Vanished,
        // Ratios are compared as integer products, because rounding could make equal ratios differ.
        (a, b) if u128::from(a) * u128::from(calls.1) != u128::from(b) * u128::from(calls.0) => PathChange::Share,
        (a, b) if a != b => PathChange::Count,
        _ => return None,
    };
    let per_call = (old as f64 / calls.0 as f64, new as f64 / calls.1 as f64);
    Some(LineChange { change, lines, counts: (old, new), per_call })
}

fn is_reported(line: &LineChange, options: &DiffOptions) -> bool {
    let enough = line.counts.0.max(line.counts.1) >= options.min_count;
    match line.change {
        PathChange::Count => enough && options.report_counts,
        _ => enough && line.change_per_call() >= options.min_function_share,
    }
}
