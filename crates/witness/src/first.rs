//! The sets of witnesses that can come first after a state: the sets W of the paper (section 3.1), for whole programs.
//!
//! `W_m(q)` contains the witnesses of profile `m` that can be the first recorded witness when control is at state `q`, and [`END`] if the
//! run can end before any witness. It has three parts: witnesses reached inside the function of `q` and its callees (*local*); if the
//! function can return before any witness, the witnesses after its calls; and if the function can unwind before any witness, the witnesses
//! after its unwinding. Two summaries of callees, "can return without a witness" and "can unwind without a witness", ensure that a call
//! returns only to its caller.

use super::automaton::{AutomatonState, StateAction};
use super::program::{WitnessFunctionId, WitnessSet};
use super::sets::{Adjacency, EMPTY, END, InternedSymbolSets, SetId, unions_of_reachable_sets};
use super::structure::{ENDS, PushdownStructure, RETURNS, UNWINDS, WitnessScope};

/// The sets W of one profile in one scope.
///
/// In a [`WitnessScope`] that is one recursive component of the call graph, witnesses of other functions are ignored, their calls are steps
/// without witnesses, and a return to another function is followed by any entry of the component that can be entered again, or by the end.
///
/// Unions over strongly connected components: O(states + sizes of the distinct sets).
pub struct FirstWitnessSets {
    /// The sets.
    pub sets: InternedSymbolSets,
    exits: Vec<u8>,
    local: Vec<SetId>,
    after_return: Vec<SetId>,
    after_unwinding: Vec<SetId>,
}

/// The three parts of a set W: the symbols that can come first inside the function, after its return, and after its unwinding.
pub type FirstSymbolSets = [SetId; 3];

impl FirstWitnessSets {
    /// Computes the sets of the profile whose witnesses are `members`.
    pub fn new(structure: &PushdownStructure, scope: &WitnessScope, members: &WitnessSet) -> FirstWitnessSets {
        let is_witness = |state: AutomatonState| structure.pushdown.state(state).witness.is_some_and(|w| members.contains(w));
        let exits = structure.exits_without_witness(scope, &is_witness);
        let mut sets = InternedSymbolSets::new();
        let local = find_local_first_sets(structure, scope, &exits, &is_witness, &mut sets);
        let follow = find_follow_sets(structure, scope, &exits, &local, &mut sets);
        let (mut after_return, mut after_unwinding) = (follow, Vec::new());
        after_unwinding.extend(after_return.drain(scope.functions.len()..));
        FirstWitnessSets { sets, exits, local, after_return, after_unwinding }
    }

    /// Returns the three parts of the set W of a state: the witnesses that can come first from this state on, its own included. The state
    /// must be in the scope.
    pub fn first_symbol_sets(&self, structure: &PushdownStructure, scope: &WitnessScope, state: AutomatonState) -> FirstSymbolSets {
        let place = structure.place(scope, state).expect("the state is in the scope") as usize;
        let function = structure.pushdown.state(state).function;
        let at = scope.functions.binary_search(&function).expect("the function is in the scope");
        let exits = self.exits[place];
        let returned = if exits & RETURNS != 0 { self.after_return[at] } else { EMPTY };
        let unwound = if exits & UNWINDS != 0 { self.after_unwinding[at] } else { EMPTY };
        [self.local[place], returned, unwound]
    }

    /// Returns true if two sets W have no symbol in common.
    pub fn disjoint(&self, a: FirstSymbolSets, b: FirstSymbolSets) -> bool {
        a.iter().all(|x| b.iter().all(|y| self.sets.disjoint(*x, *y)))
    }

    /// Returns true if a set W contains a symbol.
    pub fn has(&self, parts: FirstSymbolSets, symbol: u32) -> bool {
        parts.iter().any(|set| self.sets.has(*set, symbol))
    }
}

/// Returns, for each state of the scope, the witnesses that can come first before its function is left, those of callees included.
fn find_local_first_sets(
    structure: &PushdownStructure,
    scope: &WitnessScope,
    exits: &[u8],
    is_witness: &dyn Fn(AutomatonState) -> bool,
    sets: &mut InternedSymbolSets,
) -> Vec<SetId> {
    let (mut pairs, mut own) = (Vec::new(), vec![Vec::new(); scope.states.len()]);
    let exits_of = |state: AutomatonState| match structure.place(scope, state) {
        Some(place) => exits[place as usize],
        None => structure.exits[state.index()],
    };
    for (&state, place) in scope.states.iter().zip(0u32..) {
        let data = structure.pushdown.state(state);
        if is_witness(state) {
            own[place as usize].push(sets.single(data.witness.expect("a witness state has a witness").0));
            continue;
        }
        if data.action == StateAction::End {
            own[place as usize].push(sets.single(END));
        }
        structure.for_each_step(state, &exits_of, |to| match structure.place(scope, to) {
            Some(to) => pairs.push((place, to)),
            // Functions outside the scope are skipped, but the run may end in them.
            None if structure.exits[to.index()] & ENDS != 0 => own[place as usize].push(sets.single(END)),
            None => {}
        });
    }
    unions_of_reachable_sets(sets, &Adjacency::new(scope.states.len(), &pairs), &own)
}

/// Returns, for each function of the scope, the symbols that can follow its return; then, for each function in the same order, the symbols
/// that can follow its unwinding.
fn find_follow_sets(
    structure: &PushdownStructure,
    scope: &WitnessScope,
    exits: &[u8],
    local: &[SetId],
    sets: &mut InternedSymbolSets,
) -> Vec<SetId> {
    let count = scope.functions.len();
    let at = |function: WitnessFunctionId| scope.functions.binary_search(&function).expect("the function is in the scope") as u32;
    let (mut pairs, mut own) = (Vec::new(), vec![Vec::new(); 2 * count]);
    for &state in &scope.states {
        let data = structure.pushdown.state(state);
        let StateAction::Call { callee, after, unwound } = data.action else { continue };
        if !structure.reached[state.index()] || !scope.has(callee) {
            continue;
        }
        let caller = at(data.function);
        for (follower, target) in [(at(callee), after), (at(callee) + count as u32, unwound)] {
            let target = structure.place(scope, target).expect("the state is in the caller") as usize;
            own[follower as usize].push(local[target]);
            if exits[target] & RETURNS != 0 {
                pairs.push((follower, caller));
            }
            if exits[target] & UNWINDS != 0 {
                pairs.push((follower, caller + count as u32));
            }
        }
    }
    if !scope.whole {
        let reentered = symbols_after_component(structure, scope, local, sets);
        own.iter_mut().for_each(|own| own.push(reentered));
    }
    unions_of_reachable_sets(sets, &Adjacency::new(2 * count, &pairs), &own)
}

/// Returns the symbols that the component can record after control has left it: the first witnesses from those of its functions that can be
/// entered more than once, or the end.
fn symbols_after_component(structure: &PushdownStructure, scope: &WitnessScope, local: &[SetId], sets: &mut InternedSymbolSets) -> SetId {
    let mut all = vec![sets.single(END)];
    for &function in scope.functions.iter().filter(|f| structure.repeated[f.index()]) {
        let entry = structure.place(scope, structure.pushdown.entry(function)).expect("the function is in the scope");
        all.push(local[entry as usize]);
    }
    sets.union(&mut all)
}
