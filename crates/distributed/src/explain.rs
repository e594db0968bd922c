//! Where an execution leaves the model: the blocks of a run that watched all of them are followed through the
//! automaton, all of whose choices are assumed possible at once. It says which step the graph lacks, where merging can
//! only say that something is wrong.

use crate::model::Model;
use std::collections::HashSet;
use std::rc::Rc;
use trodden_witness::WitnessKind;
use trodden_witness::automaton::{AutomatonState, StateAction};
use trodden_witness::pushdown::Pushdown;

/// A call under way.
struct Frame {
    call: AutomatonState,
    parent: Stack,
}

type Stack = Option<Rc<Frame>>;

/// Configurations that are assumed possible at a time.
const MOST: usize = 4096;

/// A step that the model does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingStep {
    /// Blocks before it.
    pub position: u64,
    /// The block that was left; `None` at the beginning.
    pub from: Option<u64>,
    /// The block that followed.
    pub to: u64,
}

/// The first step of an execution, given by the addresses of its blocks, that the model does not have.
pub fn first_missing(model: &Model, addresses: impl Iterator<Item = u64>) -> Option<MissingStep> {
    let pushdown = Pushdown::new(&model.program, WitnessKind::Nodes);
    let mut possible: Vec<(AutomatonState, Stack)> = vec![(pushdown.root(), None)];
    let mut from = None;
    for (position, to) in (0..).zip(addresses) {
        let next = followed(model, &pushdown, &possible, to);
        if next.is_empty() {
            return Some(MissingStep { position, from, to });
        }
        (possible, from) = (next, Some(to));
    }
    None
}

/// Configurations in which the block at an address has just been entered.
fn followed(model: &Model, pushdown: &Pushdown, possible: &[(AutomatonState, Stack)], to: u64) -> Vec<(AutomatonState, Stack)> {
    let mut work: Vec<(AutomatonState, Stack)> = Vec::new();
    let mut seen: HashSet<(AutomatonState, usize)> = HashSet::new();
    possible.iter().for_each(|(state, stack)| act(pushdown, *state, stack, &mut work));
    // Stacks are distinguished by their addresses, so none may be freed before the end.
    let mut kept: Vec<Stack> = Vec::new();
    let mut found = Vec::new();
    while let Some((state, stack)) = work.pop() {
        kept.push(stack.clone());
        if !seen.insert((state, stack.as_ref().map_or(0, |s| Rc::as_ptr(s) as usize))) || seen.len() > MOST * 64 {
            continue;
        }
        let data = pushdown.state(state);
        if !data.executes {
            act(pushdown, state, &stack, &mut work);
        } else if model.addresses[data.witness.map_or(0, trodden_witness::Witness::index)] == Some(to) && found.len() < MOST {
            found.push((state, stack));
        }
    }
    found
}

/// What can come next.
fn act(pushdown: &Pushdown, state: AutomatonState, stack: &Stack, work: &mut Vec<(AutomatonState, Stack)>) {
    match &pushdown.state(state).action {
        StateAction::Choose(next) => work.extend(next.iter().map(|s| (*s, stack.clone()))),
        StateAction::Call { callee, .. } => {
            let frame = Rc::new(Frame { call: state, parent: stack.clone() });
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
