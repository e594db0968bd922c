//! Counts paths over iterations in a stream ([`trodden_unit::iterations`]).

use super::counters::{CounterLookup, FunctionIndex, PathRole};
use super::nesting::{Nesting, NestingStep};
use super::symbol::Symbol;
use std::collections::{BTreeMap, HashMap};

/// Counts the paths over iterations of one thread, as lists of events.
pub struct IterationReader<'p, 'a> {
    lookup: &'p CounterLookup<'a>,
    nesting: Nesting<'p, 'a>,
    iterations: usize,
    frames: Vec<FrameHistory>,
    counts: HashMap<Vec<u32>, u64>,
}

#[derive(Clone, Default)]
struct FrameHistory {
    /// Counters of at most K - 1 paths, the most recent one last.
    paths: Vec<u32>,
    /// Whether the frame may have had earlier paths that are not in the stream.
    is_incomplete: bool,
}

impl<'p, 'a> IterationReader<'p, 'a> {
    /// Creates a reader without counts, for paths over `iterations` iterations.
    pub fn new(lookup: &'p CounterLookup<'a>, iterations: usize) -> IterationReader<'p, 'a> {
        IterationReader { lookup, nesting: Nesting::new(lookup), iterations, frames: Vec::new(), counts: HashMap::new() }
    }

    /// Processes the next symbol.
    pub fn feed(&mut self, symbol: Symbol) {
        match self.nesting.feed(symbol) {
            NestingStep::Entered(_) => {
                let is_incomplete = matches!(symbol, Symbol::Inherited(_));
                self.frames.push(FrameHistory { paths: Vec::new(), is_incomplete });
            }
            NestingStep::Path { counter, role, depth } => self.feed_path(counter, role, depth),
            NestingStep::Unwound(_) => self.frames.truncate(self.nesting.frames().len()),
            NestingStep::Unknown => {}
        }
    }

    fn feed_path(&mut self, counter: u32, role: PathRole, depth: usize) {
        self.frames.resize(depth, FrameHistory { paths: Vec::new(), is_incomplete: true });
        let Some(frame) = self.frames.last_mut().filter(|_| role != PathRole::Call) else { return };
        let before = frame.paths.len();
        frame.paths.push(counter);
        if before + 1 == self.iterations || !frame.is_incomplete {
            *self.counts.entry(frame.paths.clone()).or_default() += 1;
        }
        match role {
            PathRole::Leaves => drop(self.frames.pop()),
            // After a path that stops at a call that does not return, the frame can continue by `longjmp`.
            _ if before + 1 == self.iterations => drop(frame.paths.remove(0)),
            _ => {}
        }
    }

    /// Returns the executions of each path over iterations, as a list of events, by function.
    pub fn finish(self) -> BTreeMap<FunctionIndex, Vec<(Vec<u64>, u64)>> {
        let mut counts: BTreeMap<FunctionIndex, Vec<(Vec<u64>, u64)>> = BTreeMap::new();
        for (path, count) in self.counts {
            let events: Option<Vec<(FunctionIndex, u64)>> = path.iter().map(|counter| self.lookup.path(*counter)).collect();
            if let Some((function, events)) = events.and_then(|events| Some((events.first()?.0, events))) {
                counts.entry(function).or_default().push((events.into_iter().map(|(_, event)| event).collect(), count));
            }
        }
        counts
    }
}
