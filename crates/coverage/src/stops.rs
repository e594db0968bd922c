//! Source positions where executions of a function ended early: calls that did not return, and loops that were left by a signal. Such a
//! position is called a *stop*.
//!
//! A stop in inlined code belongs to several functions: to the inlined function, and, at the position of the inlined call, to each function
//! that it was inlined into. If a function catches an exception, its callers continue and have no stop.

use crate::caveats::CaveatReason;
use crate::demangled::linkage_name;
use crate::file_names::FileNames;
use crate::handling::{LandingPadHandling, find_handling};
use crate::second_returns::has_second_return;
use crate::tail_calls::RelevantTailCalls;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_analysis::changes::normalize;
use trodden_flow::{Edge, Node};
use trodden_profile::forks::balance_forks;
use trodden_profile::{FunctionPaths, ImageProfile};
use trodden_report::ProfileView;
use trodden_report::inlined::{count_call_returns, count_stops_by_block};
use trodden_report::view::{Function, file_of};
use trodden_unit::{EdgeKind, SourcePosition};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionStop {
    /// The name of the source file in the coverage mapping, without `.` and `..`.
    pub file: String,
    /// Line and column of the call.
    pub place: (u64, u64),
    /// Positions of code that was executed before the call although it follows the call in the source. Such code may compute the call's
    /// arguments.
    pub before: Vec<(u64, u64)>,
    pub count: i128,
}

type StopsByPosition = BTreeMap<(String, (u64, u64)), ExecutionStop>;

/// The stops of all functions, by the index of the image and the function's name in LLVM's profiles (`main`, `file.c;local`).
#[derive(Debug, Default)]
pub struct ExecutionStops {
    functions: HashMap<(usize, String), StopsByPosition>,
    caveats: HashMap<(usize, String), BTreeSet<CaveatReason>>,
}

impl ExecutionStops {
    /// Collects the stops of all functions. The index of an image is its position in `images`.
    pub fn from_view(view: &ProfileView, images: &[&ImageProfile], names_of_files: &FileNames) -> ExecutionStops {
        let mut stops = ExecutionStops::default();
        let tail_calls = RelevantTailCalls::new(view);
        for function in view.functions.iter().filter(|f| f.is_executed()) {
            let Some(image) = images.iter().position(|image| std::ptr::eq(*image, function.image)) else { continue };
            let Some(edges) = &function.unit.map.edge_profile else { continue };
            let number = function.unit.map.functions.iter().position(|map| std::ptr::eq(map, function.map));
            let Some(number) = number else { continue };
            let names = edges.names.iter().map(|name| (linkage_name(name), name.as_str())).collect();
            let forks: Vec<Edge> = edges.fork_edges_of(number).collect();
            // After a fork, the counters of each process that continues the function include what was executed before the fork. The paths
            // are adjusted accordingly.
            let paths = balance_forks(function.map, &function.paths, &forks).ok().flatten();
            // This is also true if a callee forked.
            let is_continued = paths.is_some();
            let paths = paths.map_or(Cow::Borrowed(&function.paths), Cow::Owned);
            let file_of =
                |file: &str| names_of_files.name_in_mapping(view.profile, function.image, file).unwrap_or_else(|| normalize(file));
            StopCollector { function, paths, image, names, file_of: &file_of, tail_calls: &tail_calls, stops: &mut stops }
                .collect(is_continued);
        }
        stops
    }

    pub fn caveats_of_function(&self, images: &BTreeSet<usize>, name: &str) -> BTreeSet<CaveatReason> {
        let all = images.iter().filter_map(|image| self.caveats.get(&(*image, name.to_owned())));
        all.flatten().copied().collect()
    }

    pub fn stops_of_function(&self, images: &BTreeSet<usize>, name: &str) -> Vec<ExecutionStop> {
        let all = images.iter().filter_map(|image| self.functions.get(&(*image, name.to_owned())));
        all.flat_map(|stops| stops.values().cloned()).collect()
    }
}

struct StopCollector<'v, 'a> {
    function: &'v Function<'a>,
    paths: Cow<'v, FunctionPaths>,
    image: usize,
    /// Maps linkage names of the unit's functions to their names in LLVM's profiles.
    names: HashMap<&'v str, &'v str>,
    /// Translates a file name from debug information to the file's name in the coverage mapping.
    file_of: &'v dyn Fn(&str) -> String,
    tail_calls: &'v RelevantTailCalls,
    stops: &'v mut ExecutionStops,
}

impl StopCollector<'_, '_> {
    fn collect(&mut self, is_continued: bool) {
        self.add_caveats(is_continued);
        let function = self.function;
        let paths = self.paths.clone();
        let stopped = count_stops_by_block(function, &paths);
        for (at, (block, &entered)) in function.map.blocks.iter().zip(&paths.blocks).enumerate().filter(|(_, (_, n))| **n > 0) {
            let left = entered.saturating_sub(stopped[at]);
            let (mut before, mut first, mut previous) = (entered, 0, None);
            for (call, returned) in count_call_returns(function, at, entered, left) {
                // The calls in this call's arguments were made first. Code before those may belong to an earlier iteration of an unrolled
                // loop.
                let up_to_call = call.up_to_call as usize;
                let near = block.positions.get(first.min(up_to_call)..up_to_call).unwrap_or_default();
                let near: Vec<SourcePosition> = near.iter().copied().chain(previous).collect();
                self.add_ended_executions(call.position, &near, before.saturating_sub(returned), None);
                (before, first, previous) = (returned, up_to_call, call.position);
            }
            let mut edges =
                function.map.graph.out(Node(at as u32)).iter().map(|edge| (function.map.graph.edge(*edge), paths.edges[edge.index()]));
            if let Some((_, count)) = edges.clone().find(|(edge, _)| edge.kind == EdgeKind::NoReturn) {
                self.add_ended_executions(block.positions.last().copied(), &block.positions, count, None);
            }
            if let Some((edge, count)) = edges.find(|(edge, count)| edge.kind == EdgeKind::Unwind && *count > 0) {
                let handler = function.map.blocks.get(edge.to.index()).and_then(|block| block.positions.first());
                let handler = handler.map(|position| position.scope);
                let catching_scope = match find_handling(function, &paths, edge.to) {
                    LandingPadHandling::Passed => None,
                    LandingPadHandling::Caught(scope) => Some(scope),
                    LandingPadHandling::Unknown => {
                        handler.into_iter().for_each(|scope| self.mark_callers(scope));
                        handler
                    }
                };
                self.add_ended_executions(block.branch, &block.positions, count, catching_scope);
            }
        }
        for lost in paths.lost.iter().filter(|lost| lost.count > 0) {
            let head = function.map.blocks.get(lost.head.index()).and_then(|block| block.positions.first().copied());
            self.add_ended_executions(head, &[], lost.count.unsigned_abs(), None);
        }
    }

    fn add_caveats(&mut self, is_continued: bool) {
        let function = self.function;
        if is_continued {
            self.add_caveat(function.map.plain_name(), CaveatReason::Forked);
            // The counters of each process also include code that is inlined into the function.
            let map = function.unit_map();
            let scopes: BTreeSet<u32> = function.map.blocks.iter().flat_map(|b| &b.positions).map(|p| p.scope).collect();
            for scope in scopes.into_iter().filter_map(|scope| map.scopes.get(scope as usize)).filter(|scope| scope.inlined_at.is_some()) {
                self.add_caveat(if scope.linkage_name.is_empty() { &scope.name } else { &scope.linkage_name }, CaveatReason::Forked);
            }
        }
        if has_second_return(function) {
            self.add_caveat(function.map.plain_name(), CaveatReason::ReturnedTwice);
        }
        if self.tail_calls.has_relevant_tail_call(function) {
            self.add_caveat(function.map.plain_name(), CaveatReason::TailCall);
        }
    }

    fn add_caveat(&mut self, name: &str, reason: CaveatReason) {
        if let Some(name) = self.names.get(name) {
            self.stops.caveats.entry((self.image, (*name).to_owned())).or_default().insert(reason);
        }
    }

    /// Adds a caveat to the functions around the inlined code that has an exception handler, because it is unknown whether these functions
    /// continue.
    fn mark_callers(&mut self, handler: u32) {
        let map = self.function.unit_map();
        let mut next = map.scopes.get(handler as usize).and_then(|scope| scope.inlined_at);
        while let Some(scope) = next.and_then(|call| map.scopes.get(call.scope as usize)) {
            let name = match scope.inlined_at {
                None => self.function.map.plain_name(),
                Some(_) if scope.linkage_name.is_empty() => &scope.name,
                Some(_) => &scope.linkage_name,
            };
            self.add_caveat(name, CaveatReason::UnwoundThroughInlined);
            let inner = next.map_or(0, |call| call.scope);
            next = scope.inlined_at.filter(|call| call.scope < inner);
        }
    }

    /// Adds `count` executions that ended at a call, to the function that makes the call and to the functions into which it is inlined. If
    /// `catching_scope` catches the exception, functions around that scope are omitted. `before` has the positions before the call in its
    /// block.
    fn add_ended_executions(&mut self, call: Option<SourcePosition>, before: &[SourcePosition], count: u64, catching_scope: Option<u32>) {
        if count == 0 {
            return;
        }
        let Some(call) = call else { return self.add_unknown_stop() };
        let mut next = Some(call);
        while let Some(position) = next {
            self.add_stop(position, before, count.into());
            let scope = self.function.unit_map().scopes.get(position.scope as usize);
            next = scope.filter(|_| catching_scope != Some(position.scope)).and_then(|scope| scope.inlined_at);
            next = next.filter(|call| call.scope < position.scope);
        }
    }

    fn add_unknown_stop(&mut self) {
        if let Some(name) = self.names.get(self.function.map.plain_name()) {
            let unknown = ExecutionStop { file: String::new(), place: (0, 0), before: Vec::new(), count: 1 };
            self.stops.functions.entry((self.image, (*name).to_owned())).or_default().insert((String::new(), (0, 0)), unknown);
        }
    }

    fn add_stop(&mut self, position: SourcePosition, before: &[SourcePosition], count: i128) {
        let map = self.function.unit_map();
        let (Some(scope), Some(file)) = (map.scopes.get(position.scope as usize), file_of(map, position)) else { return };
        let name = match scope.inlined_at {
            None => self.function.map.plain_name(),
            Some(_) if scope.linkage_name.is_empty() => &scope.name,
            Some(_) => &scope.linkage_name,
        };
        let Some(name) = self.names.get(name) else { return };
        let place = (u64::from(position.line), u64::from(position.column));
        let file = (self.file_of)(file);
        let of_function = self.stops.functions.entry((self.image, (*name).to_owned())).or_default();
        let empty = || ExecutionStop { file: file.clone(), place, before: Vec::new(), count: 0 };
        let stop = of_function.entry((file.clone(), place)).or_insert_with(empty);
        stop.count += count;
        let is_near = |p: &&SourcePosition| (p.scope, p.file) == (position.scope, position.file) && p.line > position.line;
        stop.before.extend(before.iter().filter(is_near).map(|p| (u64::from(p.line), u64::from(p.column))));
        stop.before.sort_unstable();
        stop.before.dedup();
    }
}
