//! Decides whether an unexecuted block with code of a line proves that the line was not executed.
//!
//! The optimiser moves code to where its result is used, for example from an executed line before a branch into an arm that was never
//! taken. In the source, the code that a branch controls comes after the branch. So if a line comes before every untaken branch that leads
//! to its code, the code was moved. Code that is reached by a backward `goto` looks moved too, so its line gets no count instead of a count
//! of 0.

use super::LineCounts;
use crate::view::{Function, inline_chain};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use trodden_flow::Node;
use trodden_unit::{EdgeKind, SourcePosition, UnitMap};

/// Returns true if a function is empty and was never entered. Inlining such a function leaves no code, so it is unknown whether it was
/// called.
pub fn is_empty_and_unentered(function: &Function) -> bool {
    function.paths.call_count() == 0 && matches!(&function.map.blocks[..], [block] if block.instructions <= 1)
}

/// Determines for each block whether it is executed only for cleanup, while an exception unwinds through the function.
pub fn find_cleanup_blocks(function: &Function) -> Vec<bool> {
    let exit = function.map.blocks.len();
    let before = |is_end: &dyn Fn(&trodden_unit::FlowEdge) -> bool| {
        let mut found = vec![false; exit + 1];
        let mut worklist: Vec<Node> = function.map.graph.flow_edges().filter(|e| is_end(e)).map(|e| e.from).collect();
        while let Some(block) = worklist.pop() {
            if !std::mem::replace(&mut found[block.index()], true) {
                worklist.extend(function.predecessors(block));
            }
        }
        found
    };
    let others = before(&|e| e.to.index() == exit && !matches!(e.kind, EdgeKind::Resume | EdgeKind::Reach));
    let resumes = before(&|e| e.kind == EdgeKind::Resume);
    resumes.iter().zip(&others).map(|(resumes, others)| *resumes && !*others).collect()
}

/// Returns true if the optimiser moved the code of a position into an unexecuted block, so that the block proves nothing about the line.
/// `untaken` has the blocks whose untaken branches lead to the block.
pub fn is_code_moved(function: &Function, untaken: &BTreeSet<Node>, position: SourcePosition, entries: &BTreeMap<u32, u64>) -> bool {
    // If a body was never entered, none of its lines was executed, whether moved or not.
    if entries.get(&position.scope) == Some(&0) || function.paths.call_count() == 0 {
        return false;
    }
    let lines: Vec<u32> = untaken.iter().filter_map(|from| branch_line(function, *from, position)).collect();
    !lines.is_empty() && lines.iter().all(|line| position.line < *line)
}

/// Returns the executed blocks from which `block` is reached through unexecuted blocks only.
pub fn find_untaken_branches(function: &Function, block: Node) -> BTreeSet<Node> {
    let (mut found, mut left, mut seen) = (BTreeSet::new(), vec![block], vec![false; function.paths.blocks.len()]);
    while let Some(at) = left.pop() {
        for from in function.predecessors(at) {
            match function.paths.blocks.get(from.index()) {
                Some(0) if !std::mem::replace(&mut seen[from.index()], true) => left.push(from),
                Some(1..) => _ = found.insert(from),
                _ => {}
            }
        }
    }
    found
}

/// Returns the line of a block's branch in the scope and file of `position`.
fn branch_line(function: &Function, block: Node, position: SourcePosition) -> Option<u32> {
    let known = function.map.blocks.get(block.index())?;
    let map = function.unit_map();
    let line =
        |p: SourcePosition| inline_chain(map, p).into_iter().find(|p| (p.scope, p.file) == (position.scope, position.file)).map(|p| p.line);
    let branch = known.branch.filter(|b| b.line > 0).and_then(line);
    branch.or_else(|| known.positions.iter().copied().filter_map(line).max())
}

/// Returns the functions in `places` (file and line of each declaration) that may have been called without being counted. A call is not
/// counted if the function was inlined and its code was merged with the surrounding code. This may apply to a template instance or to the
/// copy in a different unit.
pub fn find_functions_without_code<'p>(
    functions: &[&Function],
    counts: &LineCounts,
    places: &BTreeSet<(&'p str, u32)>,
) -> BTreeSet<(&'p str, u32)> {
    let mut units: HashSet<*const UnitMap> = HashSet::new();
    let maps = functions.iter().map(|f| f.unit_map()).filter(|map| units.insert(std::ptr::from_ref(*map)));
    let wanted: BTreeMap<(&str, u32), (&'p str, u32)> = places.iter().map(|place| (*place, *place)).collect();
    let mut found = BTreeSet::new();
    for map in maps {
        let graphs = &map.line_graphs;
        let place = |file: u32, line: u32| wanted.get(&(graphs.files.get(file as usize)?.as_str(), line)).copied();
        let of_places = graphs.functions.iter().zip(0..).filter_map(|(graph, number)| Some((place(graph.file, graph.line)?, number)));
        let of_places: Vec<_> = of_places.filter(|(place, _)| !found.contains(place)).collect();
        if of_places.is_empty() {
            continue;
        }
        let instances = RemainingCallsOfUnit::new(map, counts);
        found.extend(of_places.into_iter().filter(|(_, number)| instances.may_have_run_without_code(*number)).map(|(place, _)| place));
    }
    found
}

struct RemainingCallsOfUnit<'a> {
    map: &'a UnitMap,
    /// Number of calls to each function that still has code, inlined or not, by linkage name; `None` if the number is unknown.
    calls: HashMap<&'a str, Option<u64>>,
    /// The callers of each function. Functions are indices into the unit's line graphs.
    callers: HashMap<u32, Vec<u32>>,
}

impl<'a> RemainingCallsOfUnit<'a> {
    fn new(map: &'a UnitMap, counts: &LineCounts) -> Self {
        let mut counted: HashMap<&str, u64> = HashMap::new();
        for ((_, name), calls) in counts.files.values().flat_map(|file| &file.functions) {
            *counted.entry(name.as_str()).or_default() += calls;
        }
        let names = map.functions.iter().map(|f| f.name.as_str());
        let names = names.chain(map.scopes.iter().map(|s| if s.linkage_name.is_empty() { &s.name } else { &s.linkage_name }.as_str()));
        let calls = names.map(|name| (name, counted.get(name).copied())).collect();
        let mut callers: HashMap<u32, Vec<u32>> = HashMap::new();
        for (graph, number) in map.line_graphs.functions.iter().zip(0..) {
            graph.calls.iter().for_each(|(_, called)| callers.entry(*called).or_default().push(number));
        }
        Self { map, calls, callers }
    }

    /// Returns true if a function has no code left and one of its direct or indirect callers may have been executed.
    fn may_have_run_without_code(&self, number: u32) -> bool {
        let name = |number: u32| self.map.line_graphs.functions[number as usize].name.as_str();
        let (mut left, mut seen) = (vec![number], HashSet::from([number]));
        if self.calls.contains_key(name(number)) {
            return false;
        }
        while let Some(called) = left.pop() {
            for &caller in self.callers.get(&called).into_iter().flatten() {
                match self.calls.get(name(caller)) {
                    Some(Some(0)) => {}
                    Some(_) => return true,
                    None if seen.insert(caller) => left.push(caller),
                    None => {}
                }
            }
        }
        false
    }
}
