//! Places in the source where executions of a function ended before its end: calls that did not return, and loops that a signal left.
//!
//! A place belongs to the function that has the code, and to those that it was inlined into, each at its call. Where an exception is
//! caught in a function, callers of it go on.

use std::collections::{BTreeMap, HashMap};
use trodden_analysis::changes::plain;
use trodden_report::View;
use trodden_report::inlined::{returns, stopped};
use trodden_report::view::{Function, file_of};
use trodden_unit::{EdgeKind, Position};

/// Executions that ended at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Source file, without `.` and `..`.
    pub file: String,
    /// Line and column of the call.
    pub place: (u64, u64),
    /// Lines and columns behind the call at which its arguments may be: those of code that came before it.
    pub before: Vec<(u64, u64)>,
    /// How many executions.
    pub count: i128,
}

/// The stops of a function, by file, line and column.
type StopsOfFunction = BTreeMap<(String, (u64, u64)), Stop>;

/// Places by LLVM's name of the function (`main`, `file.c;local`).
#[derive(Debug, Default)]
pub struct Stops(HashMap<String, StopsOfFunction>);

impl Stops {
    /// Of all functions. Functions that fork are left out: the child completes what its parent began.
    pub fn from_view(view: &View) -> Stops {
        let mut stops = Stops::default();
        for function in view.functions.iter().filter(|f| f.is_executed()) {
            let Some(edges) = &function.unit.map.edge_profile else { continue };
            let number = function.unit.map.functions.iter().position(|map| std::ptr::eq(map, function.map));
            if number.is_some_and(|number| edges.forks_of(number).next().is_none()) {
                let names = edges.names.iter().map(|name| (linkage(name), name.as_str())).collect();
                Collector { function, names, stops: &mut stops }.collect();
            }
        }
        stops
    }

    /// Whether every execution came to the end of its function.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of a function.
    pub fn of(&self, name: &str) -> Vec<Stop> {
        self.0.get(name).into_iter().flat_map(|stops| stops.values().cloned()).collect()
    }
}

/// The linkage name in LLVM's name of a function: that of a local function begins with its file.
pub fn linkage(name: &str) -> &str {
    name.rsplit_once([';', ':']).map_or(name, |(_, linkage)| linkage)
}

struct Collector<'v, 'a> {
    function: &'v Function<'a>,
    /// LLVM's names of the unit's functions by linkage name.
    names: HashMap<&'v str, &'v str>,
    stops: &'v mut Stops,
}

impl Collector<'_, '_> {
    fn collect(&mut self) {
        let function = self.function;
        let stopped = stopped(function);
        for (at, (block, &entered)) in function.map.blocks.iter().zip(&function.paths.blocks).enumerate().filter(|(_, (_, n))| **n > 0) {
            let left = entered.saturating_sub(stopped[at]);
            let (mut before, mut first, mut previous) = (entered, 0, None);
            for (call, returned) in returns(function, at, entered, left) {
                // Calls in arguments come first. Code before them may be of an iteration that was unrolled.
                let up_to_call = call.up_to_call as usize;
                let near = block.positions.get(first.min(up_to_call)..up_to_call).unwrap_or_default();
                let near: Vec<Position> = near.iter().copied().chain(previous).collect();
                self.add(call.position, &near, before.saturating_sub(returned), None);
                (before, first, previous) = (returned, up_to_call, call.position);
            }
            let mut edges = function.out[at].iter().map(|edge| (&function.map.edges[edge.index()], function.paths.edges[edge.index()]));
            if let Some((_, count)) = edges.clone().find(|(edge, _)| edge.kind == EdgeKind::NoReturn) {
                self.add(block.positions.last().copied(), &block.positions, count, None);
            }
            if let Some((edge, count)) = edges.find(|(edge, count)| edge.kind == EdgeKind::Unwind && *count > 0) {
                let handler = function.map.blocks.get(edge.to.index()).and_then(|block| block.positions.first());
                self.add(block.branch, &block.positions, count, handler.map(|position| position.scope));
            }
        }
        for lost in function.paths.lost.iter().filter(|lost| lost.count > 0) {
            let head = function.map.blocks.get(lost.head.index()).and_then(|block| block.positions.first().copied());
            self.add(head, &[], lost.count.unsigned_abs(), None);
        }
    }

    /// Adds executions that ended at a call, with the positions before it in its block, to its function and the callers up to the scope
    /// that goes on.
    fn add(&mut self, call: Option<Position>, before: &[Position], count: u64, goes_on: Option<u32>) {
        if count == 0 {
            return;
        }
        let Some(call) = call else { return self.add_unknown() };
        let mut next = Some(call);
        while let Some(position) = next {
            self.add_in(position, before, count.into());
            let scope = self.function.units_map().scopes.get(position.scope as usize);
            next = scope.filter(|_| goes_on != Some(position.scope)).and_then(|scope| scope.inlined_at);
            next = next.filter(|call| call.scope < position.scope);
        }
    }

    /// Adds a stop at no known place to the function.
    fn add_unknown(&mut self) {
        if let Some(name) = self.names.get(self.function.map.plain_name()) {
            let unknown = Stop { file: String::new(), place: (0, 0), before: Vec::new(), count: 1 };
            self.stops.0.entry((*name).to_owned()).or_default().insert((String::new(), (0, 0)), unknown);
        }
    }

    fn add_in(&mut self, position: Position, before: &[Position], count: i128) {
        let map = self.function.units_map();
        let (Some(scope), Some(file)) = (map.scopes.get(position.scope as usize), file_of(map, position)) else { return };
        let name = match scope.inlined_at {
            None => self.function.map.plain_name(),
            Some(_) if scope.linkage_name.is_empty() => &scope.name,
            Some(_) => &scope.linkage_name,
        };
        let Some(name) = self.names.get(name) else { return };
        let place = (u64::from(position.line), u64::from(position.column));
        let of_function = self.stops.0.entry((*name).to_owned()).or_default();
        let empty = || Stop { file: plain(file), place, before: Vec::new(), count: 0 };
        let stop = of_function.entry((plain(file), place)).or_insert_with(empty);
        stop.count += count;
        let is_near = |p: &&Position| (p.scope, p.file) == (position.scope, position.file) && p.line > position.line;
        stop.before.extend(before.iter().filter(is_near).map(|p| (u64::from(p.line), u64::from(p.column))));
        stop.before.sort_unstable();
        stop.before.dedup();
    }
}
