//! Static properties of a pushdown automaton: reachable states, exits of functions, and recursion.
//!
//! How control can leave a function without a witness is a least fixed point, computed with a worklist; each state changes at most three
//! times. Everything else is computed by searches and strongly connected components. O(states + transitions).
use super::automaton::{AutomatonState, StateAction};
use super::program::WitnessFunctionId;
use super::pushdown::Pushdown;
use super::sets::{Adjacency, components};

/// Control can leave the function by returning.
pub const RETURNS: u8 = 1;
/// Control can leave the function by unwinding.
pub const UNWINDS: u8 = 2;
/// The run can end.
pub const ENDS: u8 = 4;

/// Static properties of a pushdown automaton.
pub struct PushdownStructure {
    /// The automaton.
    pub pushdown: Pushdown,
    /// How control can leave the function from each state, as bits ([`RETURNS`], [`UNWINDS`], [`ENDS`]).
    pub exits: Vec<u8>,
    /// For each state, whether runs can reach it.
    pub reached: Vec<bool>,
    /// The recursive component of each function.
    pub component: Vec<u32>,
    /// For each function, whether a run may enter it more than once.
    pub repeated: Vec<bool>,
    recursive: Vec<bool>,
    dependents: Adjacency,
    ranges: Vec<(u32, u32)>,
}

impl PushdownStructure {
    /// Analyses an automaton.
    pub fn new(pushdown: Pushdown) -> PushdownStructure {
        let (ranges, dependents) = (state_ranges(&pushdown), find_dependents(&pushdown));
        let mut structure = PushdownStructure {
            pushdown,
            exits: Vec::new(),
            reached: Vec::new(),
            component: Vec::new(),
            repeated: Vec::new(),
            recursive: Vec::new(),
            dependents,
            ranges,
        };
        structure.exits = structure.exits_without_witness(&structure.whole(), &|_| false);
        structure.reached = structure.find_reachable_states();
        structure.component = structure.call_components();
        structure.repeated = structure.mark_functions_entered_repeatedly();
        structure
    }

    /// Returns the scope of the whole program.
    pub fn whole(&self) -> WitnessScope {
        let functions = (0..self.pushdown.function_count() as u32).map(WitnessFunctionId).collect();
        self.scope(functions)
    }

    /// Returns the scope of a function's recursive component.
    pub fn component_of(&self, function: WitnessFunctionId) -> WitnessScope {
        let of = self.component[function.index()];
        self.scope((0..self.component.len() as u32).map(WitnessFunctionId).filter(|f| self.component[f.index()] == of).collect())
    }

    /// Returns the states of a function.
    pub fn states_of(&self, function: WitnessFunctionId) -> impl Iterator<Item = AutomatonState> + use<> {
        let (from, to) = self.ranges[function.index()];
        (from..to).map(AutomatonState)
    }

    fn scope(&self, functions: Vec<WitnessFunctionId>) -> WitnessScope {
        let whole = functions.len() == self.pushdown.function_count();
        let mut base = vec![OUTSIDE_SCOPE; self.pushdown.function_count()];
        let mut states = Vec::new();
        for function in &functions {
            base[function.index()] = states.len() as u32;
            states.extend(self.states_of(*function));
        }
        WitnessScope { functions, states, base, whole }
    }

    /// Returns the index of a state in a scope, or `None` if its function is outside the scope.
    pub fn place(&self, scope: &WitnessScope, state: AutomatonState) -> Option<u32> {
        let function = self.pushdown.state(state).function;
        let base = scope.base[function.index()];
        (base != OUTSIDE_SCOPE).then(|| base + state.0 - self.ranges[function.index()].0)
    }

    /// Returns how control can leave the function from each state of the scope without passing a witness.
    pub fn exits_without_witness(&self, scope: &WitnessScope, is_witness: &dyn Fn(AutomatonState) -> bool) -> Vec<u8> {
        let mut exits = vec![0u8; scope.states.len()];
        let mut work: Vec<AutomatonState> = scope.states.clone();
        let of = |exits: &[u8], state: AutomatonState| match self.place(scope, state) {
            Some(place) => exits[place as usize],
            None => self.exits[state.index()],
        };
        while let Some(state) = work.pop() {
            let Some(place) = self.place(scope, state) else { continue };
            if is_witness(state) {
                continue;
            }
            let new = match &self.pushdown.state(state).action {
                StateAction::Choose(next) => next.iter().fold(0, |all, s| all | of(&exits, *s)),
                StateAction::Return => RETURNS,
                StateAction::Unwind => UNWINDS,
                StateAction::End => ENDS,
                StateAction::Call { callee, after, unwound } => {
                    let region = of(&exits, self.pushdown.entry(*callee));
                    let after_return = if region & RETURNS != 0 { of(&exits, *after) } else { 0 };
                    let after_unwinding = if region & UNWINDS != 0 { of(&exits, *unwound) } else { 0 };
                    (region & ENDS) | after_return | after_unwinding
                }
            };
            if new != exits[place as usize] {
                exits[place as usize] = new;
                work.extend(self.dependents.of(state.0).iter().map(|s| AutomatonState(*s)));
            }
        }
        exits
    }

    fn find_reachable_states(&self) -> Vec<bool> {
        let mut reached = vec![false; self.pushdown.state_count()];
        let mut work = vec![self.pushdown.root()];
        while let Some(state) = work.pop() {
            if std::mem::replace(&mut reached[state.index()], true) {
                continue;
            }
            self.for_each_step(state, &|s| self.exits[s.index()], |to| work.push(to));
        }
        reached
    }

    /// Calls `visit` with each possible next state: for a call, the callee's entry, and the states after the call that `exits` allows.
    pub fn for_each_step(&self, state: AutomatonState, exits: &dyn Fn(AutomatonState) -> u8, mut visit: impl FnMut(AutomatonState)) {
        match &self.pushdown.state(state).action {
            StateAction::Choose(next) => next.iter().for_each(|s| visit(*s)),
            StateAction::Call { callee, after, unwound } => {
                let entry = self.pushdown.entry(*callee);
                visit(entry);
                if exits(entry) & RETURNS != 0 {
                    visit(*after);
                }
                if exits(entry) & UNWINDS != 0 {
                    visit(*unwound);
                }
            }
            StateAction::Return | StateAction::Unwind | StateAction::End => {}
        }
    }

    fn call_components(&self) -> Vec<u32> {
        let mut pairs = Vec::new();
        for state in self.pushdown.states().filter(|s| self.reached[s.index()]) {
            let data = self.pushdown.state(state);
            if let StateAction::Call { callee, .. } = data.action {
                pairs.push((data.function.0, callee.0));
            }
        }
        components(&Adjacency::new(self.pushdown.function_count(), &pairs))
    }

    /// Returns true if a function can call itself, directly or indirectly.
    pub fn is_recursive(&self, function: WitnessFunctionId) -> bool {
        self.recursive[function.index()]
    }

    /// Marks the functions that may be entered more than once: those called from several places, in a cycle, recursively, or by such a
    /// function.
    fn mark_functions_entered_repeatedly(&mut self) -> Vec<bool> {
        let in_cycle = self.mark_states_on_cycles();
        self.recursive = vec![false; self.pushdown.function_count()];
        let mut repeated = vec![false; self.pushdown.function_count()];
        let (mut called, mut calls) = (vec![0u32; repeated.len()], Vec::new());
        for state in self.pushdown.states().filter(|s| self.reached[s.index()]) {
            let data = self.pushdown.state(state);
            let StateAction::Call { callee, .. } = data.action else { continue };
            called[callee.index()] += 1;
            calls.push((data.function.0, callee.0));
            let recursive = self.component[callee.index()] == self.component[data.function.index()];
            self.recursive[callee.index()] |= recursive;
            repeated[callee.index()] |= called[callee.index()] > 1 || recursive || in_cycle[state.index()];
        }
        let calls = Adjacency::new(repeated.len(), &calls);
        let mut work: Vec<u32> = (0..repeated.len() as u32).filter(|f| repeated[*f as usize]).collect();
        while let Some(function) = work.pop() {
            for &callee in calls.of(function) {
                if !std::mem::replace(&mut repeated[callee as usize], true) {
                    work.push(callee);
                }
            }
        }
        repeated
    }

    fn mark_states_on_cycles(&self) -> Vec<bool> {
        let mut pairs = Vec::new();
        self.pushdown.states().for_each(|s| self.pushdown.for_each_next(s, |to| pairs.push((s.0, to.0))));
        let component = components(&Adjacency::new(self.pushdown.state_count(), &pairs));
        let mut in_cycle = vec![false; component.len()];
        let mut first = vec![u32::MAX; component.len()];
        for (state, of) in (0u32..).zip(&component) {
            match first[*of as usize] {
                u32::MAX => first[*of as usize] = state,
                other => (in_cycle[other as usize], in_cycle[state as usize]) = (true, true),
            }
        }
        pairs.iter().filter(|(from, to)| from == to).for_each(|(from, _)| in_cycle[*from as usize] = true);
        in_cycle
    }
}

const OUTSIDE_SCOPE: u32 = u32::MAX;

fn state_ranges(pushdown: &Pushdown) -> Vec<(u32, u32)> {
    let mut ranges = vec![(0, 0); pushdown.function_count()];
    for state in pushdown.states() {
        let range = &mut ranges[pushdown.state(state).function.index()];
        if range.1 == 0 {
            range.0 = state.0;
        }
        range.1 = state.0 + 1;
    }
    ranges
}

/// Returns, for each state, the states whose exits depend on the exits of this state.
fn find_dependents(pushdown: &Pushdown) -> Adjacency {
    let mut pairs = Vec::new();
    for state in pushdown.states() {
        pushdown.for_each_next(state, |to| pairs.push((to.0, state.0)));
        if let StateAction::Call { callee, .. } = pushdown.state(state).action {
            pairs.push((pushdown.entry(callee).0, state.0));
        }
    }
    Adjacency::new(pushdown.state_count(), &pairs)
}

/// The functions whose witnesses are considered: all, or those of one recursive component.
pub struct WitnessScope {
    /// The functions, ascending.
    pub functions: Vec<WitnessFunctionId>,
    /// States of the functions.
    pub states: Vec<AutomatonState>,
    /// Whether this is the whole program.
    pub whole: bool,
    base: Vec<u32>,
}

impl WitnessScope {
    /// Returns true if the scope contains a function.
    pub fn has(&self, function: WitnessFunctionId) -> bool {
        self.base[function.index()] != OUTSIDE_SCOPE
    }
}
