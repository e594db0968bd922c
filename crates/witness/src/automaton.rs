//! The states of a program's pushdown automaton ([`pushdown`](super::pushdown)), each with at most one witness and one action.

use super::program::{Witness, WitnessFunctionId};
use trodden_flow::graph::Node;
use trodden_flow::indices;

/// A state of the automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AutomatonState(pub u32);

indices!(AutomatonState);

/// What follows when a state has been entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateAction {
    /// Control passes to one of these states; with none, it stays here for ever.
    Choose(Box<[AutomatonState]>),
    /// A function is entered.
    Call {
        /// The function.
        callee: WitnessFunctionId,
        /// Where control goes on when it returns.
        after: AutomatonState,
        /// Where control goes on when it unwinds.
        unwound: AutomatonState,
    },
    /// The function returns.
    Return,
    /// The function is left by unwinding.
    Unwind,
    /// The run ends.
    End,
}

/// Why a state with several successors has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A node, or what follows its last call: its successors are those of the node.
    Node,
    /// An edge.
    Edge,
    /// A call: its successors are callees.
    Call,
    /// What a call of unknown code comes to: return, the end of the run, unwinding.
    Opaque,
    /// Unwinding: its successors are landing pads, and passing the frame over.
    Unwinding,
    /// Code outside: its successors are external entries, and leaving.
    Outside,
}

/// A state with what belongs to it.
#[derive(Clone, Debug)]
pub struct StateData {
    /// The witness that is recorded when the state is entered.
    pub witness: Option<Witness>,
    /// Whether entering the state executes the block of its node.
    pub executes: bool,
    /// Its function; for the two that were added, a number that no function of the program has.
    pub function: WitnessFunctionId,
    /// Its node, or the one that its edge leads to.
    pub node: Node,
    /// What it is.
    pub role: Role,
    /// What follows.
    pub action: StateAction,
}
