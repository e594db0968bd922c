//! Finds the first step of an execution that is missing from the model. Merging partial traces only shows that the model is wrong
//! somewhere.
//!
//! The input is the sequence of blocks from a run that recorded every block. The search follows it through the model's pushdown automaton,
//! and tracks all states in which the automaton may be.

use crate::model::WitnessModel;
use std::collections::HashSet;
use std::rc::Rc;
use trodden_witness::WitnessKind;
use trodden_witness::automaton::{AutomatonState, StateAction};
use trodden_witness::pushdown::Pushdown;

struct ExplainedFrame {
    call: AutomatonState,
    parent: AutomatonStack,
}

type AutomatonStack = Option<Rc<ExplainedFrame>>;

const MAX_AUTOMATON_CONFIGURATIONS: usize = 4096;

/// A step of an execution that the model does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingStep {
    /// Number of blocks that the execution entered before the step.
    pub position: u64,
    /// Address of the block before the step; `None` at the beginning.
    pub from: Option<u64>,
    /// Address of the block that the execution entered.
    pub to: u64,
}

/// Returns the first step of an execution that is missing from the model; `None` if the model has every step. `addresses` are those of the
/// executed blocks.
pub fn find_first_missing_step(model: &WitnessModel, addresses: impl Iterator<Item = u64>) -> Option<MissingStep> {
    let pushdown = Pushdown::new(&model.program, WitnessKind::Nodes);
    let mut possible: Vec<(AutomatonState, AutomatonStack)> = vec![(pushdown.root(), None)];
    let mut from = None;
    for (position, to) in (0..).zip(addresses) {
        let next = configurations_entering(model, &pushdown, &possible, to);
        if next.is_empty() {
            return Some(MissingStep { position, from, to });
        }
        (possible, from) = (next, Some(to));
    }
    None
}

fn configurations_entering(
    model: &WitnessModel,
    pushdown: &Pushdown,
    possible: &[(AutomatonState, AutomatonStack)],
    to: u64,
) -> Vec<(AutomatonState, AutomatonStack)> {
    let mut work: Vec<(AutomatonState, AutomatonStack)> = Vec::new();
    let mut seen: HashSet<(AutomatonState, usize)> = HashSet::new();
    possible.iter().for_each(|(state, stack)| push_successors(pushdown, *state, stack, &mut work));
    // Stacks are compared by their addresses in memory, so none of them may be freed before the search ends.
    let mut kept: Vec<AutomatonStack> = Vec::new();
    let mut found = Vec::new();
    while let Some((state, stack)) = work.pop() {
        kept.push(stack.clone());
        if !seen.insert((state, stack.as_ref().map_or(0, |s| Rc::as_ptr(s) as usize))) || seen.len() > MAX_AUTOMATON_CONFIGURATIONS * 64 {
            continue;
        }
        let data = pushdown.state(state);
        if !data.executes {
            push_successors(pushdown, state, &stack, &mut work);
        } else if model.addresses[data.witness.map_or(0, trodden_witness::Witness::index)] == Some(to)
            && found.len() < MAX_AUTOMATON_CONFIGURATIONS
        {
            found.push((state, stack));
        }
    }
    found
}

fn push_successors(pushdown: &Pushdown, state: AutomatonState, stack: &AutomatonStack, work: &mut Vec<(AutomatonState, AutomatonStack)>) {
    match &pushdown.state(state).action {
        StateAction::Choose(next) => work.extend(next.iter().map(|s| (*s, stack.clone()))),
        StateAction::Call { callee, .. } => {
            let frame = Rc::new(ExplainedFrame { call: state, parent: stack.clone() });
            work.push((pushdown.entry(*callee), Some(frame)));
        }
        StateAction::Return | StateAction::Unwind => {
            let Some(frame) = stack else { return };
            let StateAction::Call { after, unwound, .. } = pushdown.state(frame.call).action else { return };
            let returns = pushdown.state(state).action == StateAction::Return;
            work.push((if returns { after } else { unwound }, frame.parent.clone()));
        }
        StateAction::End => {}
    }
}
