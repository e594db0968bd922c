//! Execution counts of source lines and branches, computed from counts of blocks, edges and paths.
//!
//! **What a line's count means.** A line's code may be in several blocks and, after inlining, in several functions. Each function or
//! inlined body that contains the line has an *instance* of the line. The line's count is the sum over its instances. An instance's count
//! is the maximum over its blocks' counts and the entry counts of the bodies inlined at calls on the line ([`crate::inlined`]). So a line
//! with several blocks is not counted twice, and calls count whether or not they are inlined.
//!
//! Counts refer to the optimised code. A line without code has no count, rather than a count of 0. If the optimiser unrolled a loop, each
//! copy of the loop's code executes some of the iterations. If it vectorised the loop, one iteration of the code represents several
//! iterations of the source.
//!
//! A line gets a count of 0 only if its own code proves that it was not executed. Four kinds of code prove nothing, and a line that has no
//! other code gets no count: 1. a jump after the code of other lines, such as the jump at a closing brace; 2. code that the optimiser moved
//! into a later branch that was never taken; 3. a body that was never entered, if a different body of the same function was entered, or may
//! have been entered and has no code left; 4. cleanup during unwinding, which has the positions of closing braces. For code compiled by
//! clang, the graph before optimisation shows additional lines that must have been executed ([`implied`]).
//!
//! A function's calls are its entries and the entries of its inlined bodies. Branches are counted in the optimised code. The counts of
//! copies of a source branch are added up by line, column and direction.

use crate::inlined;
use crate::view::{Function, ProfileView, file_of};
use std::collections::{BTreeMap, BTreeSet};
use trodden_analysis::changes::normalize;
use trodden_flow::Node;
use trodden_unit::{EdgeKind, SourcePosition};

mod implied;
mod unexecuted;

/// Execution counts of source lines, functions and branches, by file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineCounts {
    /// Counts by file name.
    pub files: BTreeMap<String, FileCounts>,
}

/// Execution counts in one source file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileCounts {
    /// Number of executions of each line that has code.
    pub lines: BTreeMap<u32, u64>,
    /// Number of calls to each function declared in the file, by line and linkage name.
    pub functions: BTreeMap<(u32, String), u64>,
    /// Branches by line and column.
    pub branches: BTreeMap<(u32, u32), BTreeMap<BranchDirection, OutcomeCount>>,
    /// Lines that follow a call in their block, where every execution of the block stopped in the call.
    pub stopped: BTreeSet<u32>,
}

impl FileCounts {
    /// Adds the line and branch counts of `other`, which has a different name for the same file.
    pub fn add(&mut self, other: &FileCounts) {
        other.lines.iter().for_each(|(line, count)| *self.lines.entry(*line).or_default() += count);
        for (place, directions) in &other.branches {
            let own = self.branches.entry(*place).or_default();
            for (direction, counts) in directions {
                let sum = own.entry(*direction).or_default();
                *sum = OutcomeCount { reached: sum.reached + counts.reached, taken: sum.taken + counts.taken };
            }
        }
    }
}

/// An outcome of a branch. Reports list outcomes in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BranchDirection {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// The switch's condition has this value.
    Case(i64),
    /// None of the cases.
    Default,
    /// One of the targets of an indirect branch, by its index.
    Indirect(u32),
}

/// How often a branch was executed, and how often it had one outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCount {
    /// Number of executions of the branch.
    pub reached: u64,
    /// Number of executions with this outcome.
    pub taken: u64,
}

impl ProfileView<'_> {
    /// Returns the count of a line; `None` if it has none. The coverage mapping has precedence over `derived`, the counts derived from
    /// blocks, if it contains the file.
    pub fn line(&self, derived: &LineCounts, file: &str, line: u32) -> Option<u64> {
        match self.mapped.get(file).or_else(|| self.mapped.get(&normalize(file))) {
            Some(lines) => lines.get(&line).copied(),
            None => derived.line(file, line),
        }
    }
}

impl LineCounts {
    /// Computes line, call and branch counts of the given functions.
    pub fn from_functions<'v, 'a: 'v>(functions: impl IntoIterator<Item = &'v Function<'a>>) -> LineCounts {
        let (mut counts, mut unentered) = (LineCounts::default(), Vec::new());
        let functions: Vec<&Function> = functions.into_iter().filter(|f| !unexecuted::is_empty_and_unentered(f)).collect();
        for function in &functions {
            let entries = inlined::count_inlined_entries(function);
            unentered.extend(counts.add_lines(function, &entries));
            counts.add_stopped_executions(function);
            counts.add_branches(function);
            counts.add_function(function);
            counts.add_inlined_functions(function, &entries);
        }
        let declared: BTreeSet<(&str, u32)> = unentered.iter().map(|[_, declared]| *declared).collect();
        let functions_without_code = unexecuted::find_functions_without_code(&functions, &counts, &declared);
        unentered.retain(|[_, declared]| !functions_without_code.contains(declared));
        counts.add_unentered_lines(unentered);
        implied::correct_zero_counts(&mut counts, &functions);
        counts
    }

    /// Returns the count of a line; `None` if it has none.
    pub fn line(&self, file: &str, line: u32) -> Option<u64> {
        self.files.get(file)?.lines.get(&line).copied()
    }

    /// Returns the calls of all functions declared on a line; `None` if there are none.
    pub(crate) fn calls_of_functions_declared_at(&self, (file, line): (&str, u32)) -> Option<u64> {
        let named = self.files.get(file)?.functions.range((line, String::new())..(line + 1, String::new()));
        named.map(|(_, calls)| *calls).reduce(u64::saturating_add)
    }

    fn file_counts(&mut self, function: &Function, position: SourcePosition) -> Option<&mut FileCounts> {
        let file = file_of(function.unit_map(), position)?;
        if !self.files.contains_key(file) {
            self.files.insert(file.to_string(), FileCounts::default());
        }
        self.files.get_mut(file)
    }

    /// Adds the lines of the function and of inlined bodies that were entered. Returns the lines of the other bodies, each followed by the
    /// declaration of the body's function.
    fn add_lines<'a>(&mut self, function: &Function<'a>, entries: &BTreeMap<u32, u64>) -> Vec<[(&'a str, u32); 2]> {
        let map = function.unit_map();
        let entered = |position: SourcePosition| entries.get(&position.scope).map_or(function.paths.call_count() > 0, |n| *n > 0);
        let mut unentered = Vec::new();
        for (position, count) in line_instances(function, entries) {
            let declared = map.scopes.get(position.scope as usize).and_then(|s| Some((map.files.get(s.file as usize)?.as_str(), s.line)));
            match (file_of(map, position), declared) {
                (Some(file), Some(declared)) if count == 0 && !entered(position) => unentered.push([(file, position.line), declared]),
                _ => self.add(function, position, count),
            }
        }
        unentered
    }

    fn add_stopped_executions(&mut self, function: &Function) {
        let stopped = inlined::count_stops_by_block(function, &function.paths);
        for (at, (block, &count)) in function.map.blocks.iter().zip(&function.paths.blocks).enumerate() {
            if count == 0 || stopped[at] < count {
                continue;
            }
            for position in block.positions.iter().skip(block.up_to_calls as usize).filter(|p| p.line > 0) {
                if let Some(file) = self.file_counts(function, *position) {
                    file.stopped.insert(position.line);
                }
            }
        }
    }

    fn add(&mut self, function: &Function, position: SourcePosition, count: u64) {
        if let Some(file) = self.file_counts(function, position) {
            let line = file.lines.entry(position.line).or_default();
            *line = line.saturating_add(count);
        }
    }

    /// Adds the lines of inlined bodies that were not entered. Omits a body if a different body of the same function was entered.
    fn add_unentered_lines(&mut self, lines: Vec<[(&str, u32); 2]>) {
        let calls =
            self.files.iter().flat_map(|(file, counts)| counts.functions.iter().map(move |((line, _), n)| ((file.as_str(), *line), *n)));
        let called: BTreeSet<(String, u32)> = calls.filter(|(_, n)| *n > 0).map(|((file, line), _)| (file.to_owned(), line)).collect();
        for [(file, line), (of, declared)] in lines {
            if !called.contains(&(of.to_owned(), declared)) {
                self.files.entry(file.to_owned()).or_default().lines.entry(line).or_default();
            }
        }
    }

    fn add_branches(&mut self, function: &Function) {
        for (edge, &taken) in function.map.graph.flow_edges().zip(&function.paths.edges) {
            let Some(direction) = branch_direction(edge.kind) else { continue };
            let branch = function.map.blocks.get(edge.from.index()).and_then(|b| b.branch).filter(|p| p.line > 0);
            let Some(position) = branch else { continue };
            let reached = function.paths.blocks.get(edge.from.index()).copied().unwrap_or(0);
            if let Some(file) = self.file_counts(function, position) {
                let known = file.branches.entry((position.line, position.column)).or_default().entry(direction).or_default();
                known.reached = known.reached.saturating_add(reached);
                known.taken = known.taken.saturating_add(taken);
            }
        }
    }

    fn add_inlined_functions(&mut self, function: &Function, entries: &BTreeMap<u32, u64>) {
        for (scope, &count) in entries {
            let Some(body) = function.unit_map().scopes.get(*scope as usize) else { continue };
            let position = SourcePosition { scope: *scope, file: body.file, line: body.line, column: 0 };
            let name = if body.linkage_name.is_empty() { &body.name } else { &body.linkage_name };
            if let Some(file) = self.file_counts(function, position).filter(|_| body.line > 0) {
                let calls = file.functions.entry((body.line, name.clone())).or_default();
                *calls = calls.saturating_add(count);
            }
        }
    }

    fn add_function(&mut self, function: &Function) {
        let (Some(position), Some(line)) = (function.map.position, function.line()) else { return };
        let entries = function.paths.call_count();
        if let Some(file) = self.file_counts(function, position) {
            let calls = file.functions.entry((line, function.name.linkage.clone())).or_default();
            *calls = calls.saturating_add(entries);
        }
    }
}

/// Returns the positions of all line instances in a function, with their counts. The module's documentation defines line instances.
fn line_instances(function: &Function, entries: &BTreeMap<u32, u64>) -> Vec<(SourcePosition, u64)> {
    let mut instances = LineInstanceCounts::default();
    instances.add(function.map.position, function.paths.call_count());
    let (cleanups, stopped) = (unexecuted::find_cleanup_blocks(function), inlined::count_stops_by_block(function, &function.paths));
    for (at, (block, &count)) in function.map.blocks.iter().zip(&function.paths.blocks).enumerate() {
        if count == 0 && cleanups[at] {
            continue;
        }
        let others =
            |jump: &SourcePosition| block.positions.iter().any(|p| (p.scope, p.file, p.line) != (jump.scope, jump.file, jump.line));
        let jump = block.branch.filter(|jump| count == 0 && ends_unconditionally(function, at) && others(jump));
        let shown = block.positions.iter().copied().chain(block.branch).filter(|p| Some(*p) != jump);
        let untaken = if count == 0 { unexecuted::find_untaken_branches(function, Node(at as u32)) } else { BTreeSet::new() };
        // A path that stopped in a call did not execute the code after the call.
        let after_calls = inlined::count_executions_after_calls(function, at, count, count.saturating_sub(stopped[at]));
        let count_of = |p: &SourcePosition| {
            let place = block.positions.iter().position(|known| known == p).unwrap_or(usize::MAX);
            after_calls.iter().rev().find(|(first, _)| *first <= place).map_or(count, |(_, executions)| *executions)
        };
        let shown = shown.filter(|p| count > 0 || !unexecuted::is_code_moved(function, &untaken, *p, entries));
        shown.for_each(|p| instances.add(Some(p), count_of(&p)));
    }
    for (number, &count) in entries {
        let Some(scope) = function.unit_map().scopes.get(*number as usize) else { continue };
        instances.add(scope.inlined_at, count);
        instances.add(Some(SourcePosition { scope: *number, file: scope.file, line: scope.line, column: 0 }), count);
    }
    instances.0.into_values().collect()
}

/// Maps each line instance, identified by (scope, file, line), to the maximum count of its code.
#[derive(Default)]
struct LineInstanceCounts(BTreeMap<(u32, u32, u32), (SourcePosition, u64)>);

impl LineInstanceCounts {
    fn add(&mut self, position: Option<SourcePosition>, count: u64) {
        let Some(position) = position.filter(|p| p.line > 0) else { return };
        let instance = self.0.entry((position.scope, position.file, position.line)).or_insert((position, 0));
        instance.1 = instance.1.max(count);
    }
}

fn ends_unconditionally(function: &Function, block: usize) -> bool {
    let graph = &function.map.graph;
    let mut kinds = graph.out(Node(block as u32)).iter().map(|e| graph.kind(*e)).filter(|k| *k != EdgeKind::Reach);
    kinds.all(|k| matches!(k, EdgeKind::Always | EdgeKind::Return))
}

fn branch_direction(kind: EdgeKind) -> Option<BranchDirection> {
    match kind {
        EdgeKind::True => Some(BranchDirection::True),
        EdgeKind::False => Some(BranchDirection::False),
        EdgeKind::Case(value) => Some(BranchDirection::Case(value)),
        EdgeKind::Default => Some(BranchDirection::Default),
        EdgeKind::Indirect(place) => Some(BranchDirection::Indirect(place)),
        _ => None,
    }
}
