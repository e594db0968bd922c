//! The pairwise condition: a sufficient test that a distribution is realizable.
//!
//! For every reachable branch and every two of its successors `q1` and `q2`, some profile `m` must distinguish them by the next witness:
//! the sets of first witnesses `W_m(q1)` and `W_m(q2)` are disjoint ([`first`](super::first)). Branches are nodes with several successors,
//! indirect calls, calls of unknown code with several outcomes, unwinding with landing pads, and code outside that can call several
//! entries. A profile may distinguish two successors by the next symbol of its trace, which needs a lookahead of one symbol, or by the next
//! symbol of the branch's own recursive component, which needs an unbounded lookahead ([`Lookahead`]).

use super::Distribution;
use super::automaton::{AutomatonState, StateAction, StateRole};
use super::first::{FirstSymbolSets, FirstWitnessSets};
use super::program::{Witness, WitnessFunctionId, WitnessKind, WitnessProgram, WitnessSet};
use super::pushdown::Pushdown;
use super::structure::{PushdownStructure, WitnessScope};
use std::collections::BTreeMap;
use trodden_flow::graph::{Edge, Node};

/// How far a trace must be read to distinguish two successors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lookahead {
    /// To its next symbol.
    NextSymbol,
    /// To the next symbol of the branch's own function or its recursive component, after any number of other symbols.
    OwnComponent,
}

/// A branch of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BranchNode {
    /// The end of a node.
    Node(WitnessFunctionId, Node),
    /// A node's indirect call, or its call of unknown code.
    Call(WitnessFunctionId, Node),
    /// The outcome of a call of unknown code in a node.
    Opaque(WitnessFunctionId, Node),
    /// The unwinding of a node's calls.
    Unwinding(WitnessFunctionId, Node),
    /// Code outside.
    Outside,
}

/// A successor of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BranchTarget {
    /// A node and, if edges are witnesses, the edge that leads to it.
    Node(Node, Option<Edge>),
    /// The called function.
    Function(WitnessFunctionId),
    /// Execution continues in the same block after the call.
    Continues,
    /// The function, or code outside, returns.
    Returns,
    /// The frame is left by unwinding.
    Unwinds,
    /// The run ends.
    Ends,
}

/// Two successors of a branch that no profile distinguishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The branch.
    pub branch: BranchNode,
    /// The two successors.
    pub targets: [BranchTarget; 2],
    /// The state of the branch.
    pub state: AutomatonState,
    /// The states of the two successors.
    pub successors: [AutomatonState; 2],
}

/// The result of checking a distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionCheck {
    /// Pairs of successors that no profile distinguishes, in the order of the branches.
    pub violations: Vec<Violation>,
    /// Branches that need [`Lookahead::OwnComponent`].
    pub unbounded_lookahead: Vec<BranchNode>,
}

impl ConditionCheck {
    /// Returns true if the condition holds.
    pub fn is_realizable(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Checks the pairwise condition with both lookaheads.
///
/// The condition is sufficient: the next symbol of every trace is in the set of the true successor, and for any other successor, the next
/// symbol of the distinguishing profile's trace is not in that successor's set. The condition is not necessary: in general, the question is
/// whether words of a trace monoid have a unique decomposition, which is undecidable. Two parallel edges that are not witnesses count as
/// one edge. Complexity for k profiles: O(k x (states + sizes of the sets) + pairs).
pub fn check_pairwise(program: &WitnessProgram, distribution: &Distribution) -> ConditionCheck {
    let structure = PushdownStructure::new(Pushdown::new(program, distribution.kind));
    check_structure(&structure, &members(program, distribution), Lookahead::OwnComponent)
}

/// Returns the witnesses of each profile.
pub fn members(program: &WitnessProgram, distribution: &Distribution) -> Vec<WitnessSet> {
    mark_witnesses(program, distribution.kind, &distribution.profiles)
}

/// Returns the witnesses of each profile as a set.
pub fn mark_witnesses(program: &WitnessProgram, kind: WitnessKind, profiles: &[Vec<Witness>]) -> Vec<WitnessSet> {
    let set = |profile: &Vec<Witness>| WitnessSet::from_members(program.witness_count(kind), profile.iter().copied());
    profiles.iter().map(set).collect()
}

/// Checks the condition with at most the given lookahead. `members` are the witnesses of each profile.
pub fn check_structure(structure: &PushdownStructure, members: &[WitnessSet], max_lookahead: Lookahead) -> ConditionCheck {
    let branches = find_branches_with_successors(structure, members);
    let mut open: Vec<UndistinguishedBranch> = branches.into_iter().map(UndistinguishedBranch::with_all_pairs).collect();
    let whole = structure.whole();
    for member in members {
        let sets = FirstWitnessSets::new(structure, &whole, member);
        open.iter_mut().for_each(|o| o.distinguish_by_first_sets(structure, &whole, &sets));
        open.retain(|o| !o.pairs.is_empty());
    }
    let mut unbounded_lookahead = Vec::new();
    if max_lookahead == Lookahead::OwnComponent && !open.is_empty() {
        unbounded_lookahead = distinguish_by_components(structure, members, &mut open);
    }
    let violations = open.iter().flat_map(|o| o.violations(&structure.pushdown)).collect();
    ConditionCheck { violations, unbounded_lookahead }
}

/// Drops the pairs that are distinguished by symbols of the branch's own component. Returns the branches that needed these symbols.
fn distinguish_by_components(
    structure: &PushdownStructure,
    members: &[WitnessSet],
    open: &mut Vec<UndistinguishedBranch>,
) -> Vec<BranchNode> {
    let mut by_component: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, undecided) in open.iter().enumerate() {
        let function = structure.pushdown.state(undecided.state).function;
        by_component.entry(structure.component[function.index()]).or_default().push(at);
    }
    let mut far = Vec::new();
    for of_component in by_component.values() {
        let scope = structure.component_of(structure.pushdown.state(open[of_component[0]].state).function);
        for member in members {
            let sets = FirstWitnessSets::new(structure, &scope, member);
            for &at in of_component {
                let before = open[at].pairs.len();
                open[at].distinguish_by_first_sets(structure, &scope, &sets);
                if open[at].pairs.len() < before {
                    far.push(branch(&structure.pushdown, open[at].state));
                }
            }
        }
    }
    far.sort_unstable();
    far.dedup();
    open.retain(|o| !o.pairs.is_empty());
    far
}

fn find_branches_with_successors(structure: &PushdownStructure, members: &[WitnessSet]) -> Vec<(AutomatonState, Vec<AutomatonState>)> {
    let reached = structure.pushdown.states().filter(|s| structure.reached[s.index()]);
    let with = reached.map(|state| (state, successors(&structure.pushdown, members, state)));
    with.filter(|(_, next)| next.len() > 1).collect()
}

/// Returns the successors of a state. Parallel edges that are not witnesses are merged.
pub fn successors(pushdown: &Pushdown, members: &[WitnessSet], state: AutomatonState) -> Vec<AutomatonState> {
    let StateAction::Choose(next) = &pushdown.state(state).action else { return Vec::new() };
    let mut kept: Vec<AutomatonState> = Vec::with_capacity(next.len());
    let is_plain = |s: AutomatonState| pushdown.state(s).witness.is_none_or(|w| !members.iter().any(|m| m.contains(w)));
    for &to in next {
        // Of parallel edges that no profile contains, only the first is kept.
        let data = pushdown.state(to);
        let parallel = |other: &AutomatonState| {
            let other_data = pushdown.state(*other);
            data.role == StateRole::Edge && other_data.role == StateRole::Edge && data.node == other_data.node && is_plain(*other)
        };
        if !(is_plain(to) && kept.iter().any(parallel)) {
            kept.push(to);
        }
    }
    kept
}

/// A branch with the pairs of its successors that have not been distinguished yet.
struct UndistinguishedBranch {
    state: AutomatonState,
    next: Vec<AutomatonState>,
    pairs: SuccessorPairs,
}

enum SuccessorPairs {
    All(usize),
    Remaining(Vec<(u32, u32)>),
}

impl SuccessorPairs {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        match self {
            SuccessorPairs::All(n) => n * (n - 1) / 2,
            SuccessorPairs::Remaining(pairs) => pairs.len(),
        }
    }
}

impl UndistinguishedBranch {
    fn with_all_pairs((state, next): (AutomatonState, Vec<AutomatonState>)) -> UndistinguishedBranch {
        UndistinguishedBranch { state, pairs: SuccessorPairs::All(next.len()), next }
    }

    fn distinguish_by_first_sets(&mut self, structure: &PushdownStructure, scope: &WitnessScope, sets: &FirstWitnessSets) {
        let parts: Vec<FirstSymbolSets> = self.next.iter().map(|s| sets.first_symbol_sets(structure, scope, *s)).collect();
        let same = |i: u32, j: u32| !sets.disjoint(parts[i as usize], parts[j as usize]);
        match &mut self.pairs {
            SuccessorPairs::Remaining(pairs) => pairs.retain(|(i, j)| same(*i, *j)),
            SuccessorPairs::All(count) => {
                let count = *count as u32;
                let left = (0..count).flat_map(|i| (i + 1..count).map(move |j| (i, j))).filter(|(i, j)| same(*i, *j)).collect();
                self.pairs = SuccessorPairs::Remaining(left);
            }
        }
    }

    fn violations<'a>(&'a self, pushdown: &'a Pushdown) -> impl Iterator<Item = Violation> + 'a {
        let all = match &self.pairs {
            SuccessorPairs::Remaining(pairs) => pairs.clone(),
            SuccessorPairs::All(count) => (0..*count as u32).flat_map(|i| (i + 1..*count as u32).map(move |j| (i, j))).collect(),
        };
        all.into_iter().map(move |(i, j)| {
            let successors = [self.next[i as usize], self.next[j as usize]];
            let targets = successors.map(|s| target(pushdown, self.state, s));
            Violation { branch: branch(pushdown, self.state), targets, state: self.state, successors }
        })
    }
}

/// Returns the branch of a state with several successors.
pub fn branch(pushdown: &Pushdown, state: AutomatonState) -> BranchNode {
    let data = pushdown.state(state);
    match data.role {
        StateRole::Node | StateRole::Edge => BranchNode::Node(data.function, data.node),
        StateRole::Call => BranchNode::Call(data.function, data.node),
        StateRole::Opaque => BranchNode::Opaque(data.function, data.node),
        StateRole::Unwinding => BranchNode::Unwinding(data.function, data.node),
        StateRole::Outside => BranchNode::Outside,
    }
}

/// Returns the branch target of a successor state.
pub fn target(pushdown: &Pushdown, from: AutomatonState, to: AutomatonState) -> BranchTarget {
    let (branch, data) = (pushdown.state(from), pushdown.state(to));
    let enters_node =
        matches!(branch.role, StateRole::Node | StateRole::Edge | StateRole::Unwinding) && pushdown.node(data.function, data.node) == to;
    match (&data.action, data.role) {
        (_, StateRole::Edge) => BranchTarget::Node(data.node, pushdown.edge(to)),
        _ if enters_node => BranchTarget::Node(data.node, None),
        (StateAction::Call { callee, .. }, _) if matches!(branch.role, StateRole::Call | StateRole::Outside) => {
            BranchTarget::Function(*callee)
        }
        (StateAction::Return, _) => BranchTarget::Returns,
        (StateAction::Unwind, _) => BranchTarget::Unwinds,
        (StateAction::Choose(_), StateRole::Unwinding) => BranchTarget::Unwinds,
        (StateAction::End, _) => BranchTarget::Ends,
        _ => BranchTarget::Continues,
    }
}
