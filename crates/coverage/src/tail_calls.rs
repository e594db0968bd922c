//! Finds functions whose last call was compiled to a jump (a tail call), so that it is unknown whether the call returned.
//!
//! The callee's frame replaces the function's frame, so only the function's caller observes whether the callee returned. Whether a tail
//! call returned matters in three kinds of functions: `main`, functions that were called where an execution ended, and functions to which
//! one of these jumps. A tail call to a function that always returns is harmless.

use std::collections::{BTreeMap, BTreeSet};
use trodden_report::inlined::count_stops_by_block;
use trodden_report::{Function, ProfileView};
use trodden_unit::EdgeKind;

/// Functions with a tail call that matters, by the address of their function map.
pub struct RelevantTailCalls(BTreeSet<usize>);

/// The names of called functions; `None` stands for an indirect call.
type CalleeNames<'v> = BTreeSet<Option<&'v str>>;

impl RelevantTailCalls {
    pub fn new(view: &ProfileView) -> RelevantTailCalls {
        let jumps: Vec<(&Function, CalleeNames)> =
            view.executed().map(|function| (function, find_tail_callees(function))).filter(|(_, callees)| !callees.is_empty()).collect();
        if jumps.is_empty() {
            return RelevantTailCalls(BTreeSet::new());
        }
        let ended: CalleeNames = view.executed().flat_map(find_callees_where_executions_ended).collect();
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        loop {
            let via: CalleeNames =
                jumps.iter().filter(|(f, _)| reached.contains(&map_address(f))).flat_map(|(_, callees)| callees.clone()).collect();
            let is_reached = |function: &Function| {
                let name = Some(function.map.plain_name());
                name == Some("main") || [&ended, &via].iter().any(|names| names.contains(&name) || names.contains(&None))
            };
            let next: BTreeSet<usize> = jumps.iter().filter(|(f, _)| is_reached(f)).map(|(f, _)| map_address(f)).collect();
            if next == reached {
                break;
            }
            reached = next;
        }
        let returning = find_always_returning(view, &jumps);
        let is_unknown = |callee: &Option<&str>| callee.is_none_or(|name| !returning.contains(name));
        let unknown = jumps.iter().filter(|(function, callees)| reached.contains(&map_address(function)) && callees.iter().any(is_unknown));
        RelevantTailCalls(unknown.map(|(function, _)| map_address(function)).collect())
    }

    /// Returns true if the function has a tail call and it matters whether that call returned.
    pub fn has_relevant_tail_call(&self, function: &Function) -> bool {
        self.0.contains(&map_address(function))
    }
}

fn map_address(function: &Function) -> usize {
    std::ptr::from_ref(function.map).addr()
}

/// Returns the functions to which a function jumped by tail calls.
fn find_tail_callees<'v>(function: &'v Function) -> CalleeNames<'v> {
    let edges = function.map.graph.flow_edges().zip(&function.paths.edges);
    let blocks: BTreeSet<_> =
        edges.filter(|(edge, count)| edge.kind == EdgeKind::TailCall && **count > 0).map(|(edge, _)| edge.from).collect();
    function.map.calls.iter().filter(|call| blocks.contains(&call.block)).map(|call| call.callee.as_deref()).collect()
}

/// Returns the functions called in those blocks in which an execution of the function ended.
fn find_callees_where_executions_ended<'v>(function: &'v Function) -> CalleeNames<'v> {
    let stopped = count_stops_by_block(function, &function.paths);
    let unwound =
        function.map.graph.flow_edges().zip(&function.paths.edges).filter(|(edge, count)| edge.kind == EdgeKind::Unwind && **count > 0);
    let unwound: BTreeSet<usize> = unwound.map(|(edge, _)| edge.from.index()).collect();
    let ended = |block: usize| stopped.get(block).is_some_and(|count| *count > 0) || unwound.contains(&block);
    let calls = function.map.calls.iter().filter(|call| ended(call.block.index()));
    let lost = function.paths.lost.iter().any(|lost| lost.count > 0).then_some(None);
    calls.map(|call| call.callee.as_deref()).chain(lost).collect()
}

/// Returns the names of functions that always returned, including those of library functions.
fn find_always_returning<'v>(view: &'v ProfileView, jumps: &[(&'v Function, CalleeNames<'v>)]) -> BTreeSet<&'v str> {
    let mut finished: BTreeMap<&str, bool> = BTreeMap::new();
    for function in &view.functions {
        let ends = |kind| function.map.graph.flow_edges().zip(&function.paths.edges).any(|(edge, count)| edge.kind == kind && *count > 0);
        let is_finished = function.paths.are_all_paths_finished() && !ends(EdgeKind::NoReturn) && !ends(EdgeKind::Resume);
        *finished.entry(function.map.plain_name()).or_insert(true) &= is_finished;
    }
    let mut returning: BTreeSet<&str> = finished.into_iter().filter(|(_, is_finished)| *is_finished).map(|(name, _)| name).collect();
    returning.extend(RETURNING_LIBRARY_FUNCTIONS);
    loop {
        let is_open = |callees: &CalleeNames| callees.iter().any(|callee| callee.is_none_or(|name| !returning.contains(name)));
        let open: Vec<&str> = jumps.iter().filter(|(_, callees)| is_open(callees)).map(|(f, _)| f.map.plain_name()).collect();
        let before = returning.len();
        open.iter().for_each(|name| _ = returning.remove(name));
        if returning.len() == before {
            return returning;
        }
    }
}

/// Library functions that always return, unless the process ends.
const RETURNING_LIBRARY_FUNCTIONS: [&str; 32] = [
    "_ZdaPv", "_ZdaPvm", "_ZdlPv", "_ZdlPvm", "abs", "calloc", "close", "fclose", "fflush", "fputc", "fputs", "free", "fwrite", "malloc",
    "memchr", "memcmp", "memcpy", "memmove", "memset", "printf", "putc", "putchar", "puts", "realloc", "snprintf", "strchr", "strcmp",
    "strcpy", "strdup", "strlen", "strncmp", "strtol",
];
