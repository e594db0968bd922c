//! Which successor of a branch agrees with all traces.
//!
//! The sets W of a branch's successors are put together when the branch is met first. For each profile the last few answers are
//! remembered, so that a branch in a loop mostly costs a comparison per trace.

use super::{ReconstructError, Reconstruction, Reconstructor, Trace, TraceEnding};
use crate::automaton::AutomatonState;
use crate::condition;
use crate::first::{FirstSets, SymbolSets};
use crate::program::{Witness, WitnessFunctionId};
use crate::sets::END;
use crate::structure::Scope;
use std::collections::HashMap;

/// Answers that are remembered for a branch and a profile.
const REMEMBERED: usize = 8;
/// No answer: no trace has this symbol.
const NOTHING: (u32, u64) = (END - 1, 0);

/// What was needed so far.
#[derive(Default)]
pub(super) struct DecisionTables {
    branches: HashMap<AutomatonState, MetBranch>,
    components: HashMap<u32, ComponentSets>,
}

/// A branch that was met: its successors and, for each profile, their sets W.
struct MetBranch {
    next: Vec<AutomatonState>,
    parts: Vec<Vec<SymbolSets>>,
    /// For each profile some symbols, and which successors have them in their sets, as bits.
    remembered: Vec<[(u32, u64); REMEMBERED]>,
}

/// The sets W of a component, for each profile.
struct ComponentSets {
    scope: Scope,
    sets: Vec<FirstSets>,
}

/// What comes next in a trace: at its end the symbol for that, or anything if it was cut.
fn symbol(next: Option<Witness>, ending: TraceEnding) -> Option<u32> {
    next.map(|witness| witness.0).or((ending == TraceEnding::Complete).then_some(END))
}

impl MetBranch {
    /// The only successor that agrees with the next symbols, if there is one and the successors are few.
    fn agreeing<I: Iterator<Item = Witness>>(
        &mut self,
        sets: &[FirstSets],
        traces: &mut [Trace<I>],
        ending: TraceEnding,
    ) -> Option<AutomatonState> {
        if self.next.len() > u64::BITS as usize {
            return None;
        }
        let mut left = u64::MAX >> (u64::BITS as usize - self.next.len());
        for (profile, trace) in traces.iter_mut().enumerate() {
            let Some(symbol) = symbol(trace.peek(), ending) else { continue };
            let remembered = &mut self.remembered[profile][symbol as usize % REMEMBERED];
            if remembered.0 != symbol {
                let has = |(at, parts): (usize, &SymbolSets)| u64::from(sets[profile].has(*parts, symbol)) << at;
                *remembered = (symbol, self.parts[profile].iter().enumerate().map(has).sum());
            }
            left &= remembered.1;
        }
        (left.count_ones() == 1).then(|| self.next[left.trailing_zeros() as usize])
    }
}

impl<I: Iterator<Item = Witness>> Reconstructor<'_, I> {
    /// The successor of a branch that agrees with all traces; `None` where traces that were cut leave several.
    pub(super) fn choose(&mut self, state: AutomatonState) -> Result<Option<AutomatonState>, ReconstructError> {
        let of = self.of;
        let met = self.tables.branches.entry(state).or_insert_with(|| of.branch(state));
        if let Some(one) = met.agreeing(&of.sets, &mut self.traces, self.ending) {
            return Ok(Some(one));
        }
        let mut at_end = false;
        let mut left: Vec<usize> = (0..met.next.len()).collect();
        for (profile, trace) in self.traces.iter_mut().enumerate() {
            let Some(symbol) = symbol(trace.peek(), self.ending) else {
                at_end = true;
                continue;
            };
            left.retain(|i| of.sets[profile].has(met.parts[profile][*i], symbol));
        }
        if left.len() > 1 {
            let next: Vec<AutomatonState> = met.next.clone();
            at_end |= self.ask_component(state, &next, &mut left);
        }
        let met = &self.tables.branches[&state];
        match left.as_slice() {
            [one] => Ok(Some(met.next[*one])),
            [] => {
                let next = self.traces.iter_mut().map(Trace::peek).collect();
                Err(ReconstructError::NoSuccessor { branch: condition::branch(self.pushdown(), state), blocks: self.blocks, next })
            }
            _ if at_end => Ok(None),
            _ => {
                let targets = left.iter().map(|i| condition::target(self.pushdown(), state, met.next[*i])).collect();
                Err(ReconstructError::Ambiguous { branch: condition::branch(self.pushdown(), state), targets, blocks: self.blocks })
            }
        }
    }

    /// Drops successors that do not agree with the next symbols of the branch's own component; whether a trace that was cut has no more
    /// of them.
    fn ask_component(&mut self, state: AutomatonState, next: &[AutomatonState], left: &mut Vec<usize>) -> bool {
        let (of, mut at_end) = (self.of, false);
        let function = of.structure.pushdown.state(state).function;
        let component = of.structure.component[function.index()];
        let own = self.tables.components.entry(component).or_insert_with(|| of.component(function));
        for (profile, trace) in self.traces.iter_mut().enumerate() {
            let found = trace.find(|w| of.component_of.get(w.index()) == Some(&component));
            let Some(symbol) = symbol(found, self.ending) else {
                at_end = true;
                continue;
            };
            let sets = &own.sets[profile];
            left.retain(|i| sets.has(sets.parts(&of.structure, &own.scope, next[*i]), symbol));
        }
        at_end
    }
}

impl Reconstruction {
    fn branch(&self, state: AutomatonState) -> MetBranch {
        let next = condition::successors(&self.structure.pushdown, &self.members, state);
        let parts = |sets: &FirstSets| next.iter().map(|s| sets.parts(&self.structure, &self.whole, *s)).collect();
        let parts: Vec<Vec<SymbolSets>> = self.sets.iter().map(parts).collect();
        MetBranch { remembered: vec![[NOTHING; REMEMBERED]; parts.len()], parts, next }
    }

    fn component(&self, function: WitnessFunctionId) -> ComponentSets {
        let scope = self.structure.component_of(function);
        let sets = self.members.iter().map(|m| FirstSets::new(&self.structure, &scope, m)).collect();
        ComponentSets { scope, sets }
    }
}
