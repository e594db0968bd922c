//! Decides which successor of a branch agrees with all traces.
//!
//! The sets of the witnesses that can come first after each successor (the sets W) are collected when the branch is first reached. The last
//! few answers for each profile are cached, so that a branch in a loop usually costs one comparison per trace.

use super::{ReadAheadTrace, ReconstructError, Reconstruction, Reconstructor, TraceEnding};
use crate::automaton::AutomatonState;
use crate::condition;
use crate::first::{FirstSymbolSets, FirstWitnessSets};
use crate::program::{Witness, WitnessFunctionId};
use crate::sets::END;
use crate::structure::WitnessScope;
use std::collections::HashMap;

const CACHE_SIZE: usize = 8;
/// An empty cache entry; no trace has this symbol.
const EMPTY_ENTRY: (u32, u64) = (END - 1, 0);

#[derive(Default)]
pub(super) struct DecisionTables {
    branches: HashMap<AutomatonState, ReachedBranch>,
    components: HashMap<u32, ComponentSets>,
}

/// A branch that was reached: its successors and, for each profile, the sets of the witnesses that can come first after each successor.
struct ReachedBranch {
    next: Vec<AutomatonState>,
    parts: Vec<Vec<FirstSymbolSets>>,
    /// For each profile, cached symbols, each with a bit mask of the successors whose sets contain the symbol.
    cache: Vec<[(u32, u64); CACHE_SIZE]>,
}

struct ComponentSets {
    scope: WitnessScope,
    sets: Vec<FirstWitnessSets>,
}

/// Returns the next symbol of a trace. At the trace's end, returns [`END`], or `None` (any symbol is possible) if the trace was truncated.
fn next_symbol(next: Option<Witness>, ending: TraceEnding) -> Option<u32> {
    next.map(|witness| witness.0).or((ending == TraceEnding::Complete).then_some(END))
}

impl ReachedBranch {
    /// Returns the only successor that agrees with the next symbols of all traces. Returns `None` if no or several successors agree, or if
    /// there are too many successors for a bit mask.
    fn find_only_agreeing_successor<I: Iterator<Item = Witness>>(
        &mut self,
        sets: &[FirstWitnessSets],
        traces: &mut [ReadAheadTrace<I>],
        ending: TraceEnding,
    ) -> Option<AutomatonState> {
        if self.next.len() > u64::BITS as usize {
            return None;
        }
        let mut left = u64::MAX >> (u64::BITS as usize - self.next.len());
        for (profile, trace) in traces.iter_mut().enumerate() {
            let Some(symbol) = next_symbol(trace.peek(), ending) else { continue };
            let cache = &mut self.cache[profile][symbol as usize % CACHE_SIZE];
            if cache.0 != symbol {
                let has = |(at, parts): (usize, &FirstSymbolSets)| u64::from(sets[profile].has(*parts, symbol)) << at;
                *cache = (symbol, self.parts[profile].iter().enumerate().map(has).sum());
            }
            left &= cache.1;
        }
        (left.count_ones() == 1).then(|| self.next[left.trailing_zeros() as usize])
    }
}

impl<I: Iterator<Item = Witness>> Reconstructor<'_, I> {
    /// Returns the successor of a branch that agrees with all traces, or `None` if truncated traces leave several.
    pub(super) fn choose_successor(&mut self, state: AutomatonState) -> Result<Option<AutomatonState>, ReconstructError> {
        let of = self.reconstruction;
        let known = self.tables.branches.entry(state).or_insert_with(|| of.branch(state));
        if let Some(one) = known.find_only_agreeing_successor(&of.sets, &mut self.traces, self.ending) {
            return Ok(Some(one));
        }
        let mut at_end = false;
        let mut left: Vec<usize> = (0..known.next.len()).collect();
        for (profile, trace) in self.traces.iter_mut().enumerate() {
            let Some(symbol) = next_symbol(trace.peek(), self.ending) else {
                at_end = true;
                continue;
            };
            left.retain(|i| of.sets[profile].has(known.parts[profile][*i], symbol));
        }
        if left.len() > 1 {
            let next: Vec<AutomatonState> = known.next.clone();
            at_end |= self.consult_component(state, &next, &mut left);
        }
        let known = &self.tables.branches[&state];
        match left.as_slice() {
            [one] => Ok(Some(known.next[*one])),
            [] => {
                let next = self.traces.iter_mut().map(ReadAheadTrace::peek).collect();
                Err(ReconstructError::NoSuccessor { branch: condition::branch(self.pushdown(), state), blocks: self.blocks, next })
            }
            _ if at_end => Ok(None),
            _ => {
                let targets = left.iter().map(|i| condition::target(self.pushdown(), state, known.next[*i])).collect();
                Err(ReconstructError::Ambiguous { branch: condition::branch(self.pushdown(), state), targets, blocks: self.blocks })
            }
        }
    }

    /// Drops successors that do not agree with the next symbols of the branch's own component. Returns true if a truncated trace has no
    /// further symbol of that component.
    fn consult_component(&mut self, state: AutomatonState, next: &[AutomatonState], left: &mut Vec<usize>) -> bool {
        let (of, mut at_end) = (self.reconstruction, false);
        let function = of.structure.pushdown.state(state).function;
        let component = of.structure.component[function.index()];
        let own = self.tables.components.entry(component).or_insert_with(|| of.component(function));
        for (profile, trace) in self.traces.iter_mut().enumerate() {
            let found = trace.find_symbol(|w| of.component_of.get(w.index()) == Some(&component));
            let Some(symbol) = next_symbol(found, self.ending) else {
                at_end = true;
                continue;
            };
            let sets = &own.sets[profile];
            left.retain(|i| sets.has(sets.first_symbol_sets(&of.structure, &own.scope, next[*i]), symbol));
        }
        at_end
    }
}

impl Reconstruction {
    fn branch(&self, state: AutomatonState) -> ReachedBranch {
        let next = condition::successors(&self.structure.pushdown, &self.members, state);
        let parts = |sets: &FirstWitnessSets| next.iter().map(|s| sets.first_symbol_sets(&self.structure, &self.whole, *s)).collect();
        let parts: Vec<Vec<FirstSymbolSets>> = self.sets.iter().map(parts).collect();
        ReachedBranch { cache: vec![[EMPTY_ENTRY; CACHE_SIZE]; parts.len()], parts, next }
    }

    fn component(&self, function: WitnessFunctionId) -> ComponentSets {
        let scope = self.structure.component_of(function);
        let sets = self.members.iter().map(|m| FirstWitnessSets::new(&self.structure, &scope, m)).collect();
        ComponentSets { scope, sets }
    }
}
