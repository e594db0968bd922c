//! The states of a program's pushdown automaton ([`pushdown`](super::pushdown)). Each has exactly one action, and at most one witness,
//! which is a node or an edge whose executions are recorded.

use super::program::{Witness, WitnessFunctionId};
use trodden_flow::graph::Node;
use trodden_flow::indices;

/// A state of the automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AutomatonState(pub u32);

indices!(AutomatonState);

/// The action after a state has been entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateAction {
    /// Control passes to one of these states. If there are none, control stays in the current state forever.
    Choose(Box<[AutomatonState]>),
    /// A function is called.
    Call {
        /// The called function.
        callee: WitnessFunctionId,
        /// The state that follows when the function returns.
        after: AutomatonState,
        /// The state that follows when the function unwinds.
        unwound: AutomatonState,
    },
    /// The function returns.
    Return,
    /// The function is left by unwinding.
    Unwind,
    /// The run ends.
    End,
}

/// The kind of a state, which determines the meaning of its successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateRole {
    /// A node, or the point after its last call; the successors are those of the node.
    Node,
    /// An edge.
    Edge,
    /// A call; the successors are its callees.
    Call,
    /// A call of unknown code; the successors are its possible outcomes: return, end of the run, unwinding.
    Opaque,
    /// Unwinding; the successors are the landing pads, and unwinding out of the function.
    Unwinding,
    /// Code outside the program, or the root; the successors of code outside are its calls of external entries, and its return.
    Outside,
}

/// The data of a state.
#[derive(Clone, Debug)]
pub struct AutomatonStateData {
    /// Witness that is recorded when the state is entered.
    pub witness: Option<Witness>,
    /// Whether entering the state executes the block of its node.
    pub executes: bool,
    /// Function of the state. The two functions that the automaton adds (outside, root) have numbers above the program's functions.
    pub function: WitnessFunctionId,
    /// Node of the state; for an edge, the node that it leads to.
    pub node: Node,
    /// Kind of the state.
    pub role: StateRole,
    /// Action after the state has been entered.
    pub action: StateAction,
}
