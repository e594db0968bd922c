//! The paper's two conditions for realizable distributions, for comparison with the pairwise condition.
//!
//! Source: D. Saha et al., section 4.1, theorems 4.1 (graph condition) and 4.2 (path condition), which the paper states as equivalent.

use super::automaton::{AutomatonState, StateAction, StateRole};
use super::condition::{Violation, branch, members, target};
use super::program::{WitnessFunctionId, WitnessKind, WitnessProgram, WitnessSet};
use super::pushdown::Pushdown;
use super::sets::{Adjacency, components, disjoint};
use super::structure::PushdownStructure;
use super::view::{END, StateGraph, first_of};
use super::{Distribution, Weights};
use std::collections::HashSet;

/// The violations of the two theorems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedTheoremsCheck {
    /// Pairs of successors that the graph condition rejects.
    pub graph: Vec<Violation>,
    /// Pairs of successors that the path condition rejects.
    pub path: Vec<Violation>,
}

impl PublishedTheoremsCheck {
    /// Returns true if both conditions hold.
    pub fn is_realizable(&self) -> bool {
        self.graph.is_empty() && self.path.is_empty()
    }
}

/// An error: a function has parallel edges, which the theorems exclude.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "function `{function}` has parallel edges (from node {from} to node {to}), which the theorems of the published method do not cover. \
     Use the pairwise condition"
)]
pub struct ParallelEdges {
    /// Name of the function.
    pub function: String,
    /// Source node of the edges.
    pub from: u32,
    /// Target node of the edges.
    pub to: u32,
}

/// Checks both conditions.
///
/// *Graph condition.* A diamond is a pair of paths from a fork `p`, one over `q1` and one over `q2`, that meet at a join. Each diamond is
/// broken by a profile that also breaks all directed cycles through `p -> q1` and `p -> q2`; and the profiles together break all directed
/// cycles. A witness at the fork or at the join breaks no diamond. There are too many diamonds to list, but which profiles break those
/// cycles depends only on `p`, `q1` and `q2`. A diamond that none of these profiles breaks is a pair of paths that avoid the witnesses of
/// all these profiles; two searches find such a pair.
///
/// *Path condition.* For two successors that both lead back to `p`, some profile has disjoint sets W. For others, the unions of the sets W
/// over all profiles are disjoint. The end of the run is in none of these unions, because the exit has the lowest precedence, but not both
/// successors may reach it without a witness of any profile. (The second and third clauses of the printed theorem also demand that one
/// profile has all witnesses of the unions. No distribution in which several profiles have witnesses after the branch satisfies this, so it
/// would reject the paper's own distributions for figures 1, 4 and 9. The handbook has the example.)
///
/// Both conditions consider one function at a time, with an edge exit -> entry if the function is entered more than once, and ignore
/// indirect calls. They assume no parallel edges. O(profiles x branches x edges).
///
/// # Errors
/// Edges are witnesses, and some of them are parallel.
pub fn check_published_theorems(program: &WitnessProgram, distribution: &Distribution) -> Result<PublishedTheoremsCheck, ParallelEdges> {
    if distribution.kind == WitnessKind::Edges {
        program.function_ids().try_for_each(|f| reject_parallel_edges(program, f))?;
    }
    let structure = PushdownStructure::new(Pushdown::new(program, distribution.kind));
    let (weights, members) = (Weights::estimate(program), members(program, distribution));
    let mut check = PublishedTheoremsCheck::default();
    for function in program.function_ids() {
        let view = StateGraph::new(&structure, distribution.kind, &weights, function);
        let local = |member: &WitnessSet| view.witness.iter().map(|w| w.is_some_and(|w| member.contains(w))).collect();
        let profiles: Vec<Vec<bool>> = members.iter().map(local).collect();
        CheckedFunction { structure: &structure, view: &view, profiles: &profiles }.check(&mut check);
    }
    Ok(check)
}

fn reject_parallel_edges(program: &WitnessProgram, function: WitnessFunctionId) -> Result<(), ParallelEdges> {
    let of = program.function(function);
    let mut seen = HashSet::new();
    match of.graph.edges().map(|e| (of.graph.from(e), of.graph.to(e))).find(|ends| !seen.insert(*ends)) {
        Some((from, to)) => Err(ParallelEdges { function: of.name.clone(), from: from.0, to: to.0 }),
        None => Ok(()),
    }
}

struct CheckedFunction<'a> {
    structure: &'a PushdownStructure,
    view: &'a StateGraph,
    profiles: &'a [Vec<bool>],
}

impl CheckedFunction<'_> {
    fn check(&self, check: &mut PublishedTheoremsCheck) {
        let all = self.mark_witnesses_of(&(0..self.profiles.len()).collect::<Vec<_>>());
        let unbroken = self.mark_cycles_without(&all);
        for state in 0..self.view.state_count() as u32 {
            let data = self.structure.pushdown.state(AutomatonState(self.view.first.0 + state));
            let chooses = matches!(data.action, StateAction::Choose(_)) && data.role != StateRole::Call;
            if !chooses || !self.structure.reached[self.view.first.index() + state as usize] {
                continue;
            }
            let next = &self.view.next[state as usize];
            for (i, &a) in next.iter().enumerate() {
                for &b in &next[i + 1..] {
                    // A cycle that no profile breaks is rejected at the branch where it can be left.
                    let endless = unbroken[a as usize] != unbroken[b as usize] && unbroken[state as usize];
                    if endless || self.has_open_diamond(state, a, b) {
                        check.graph.push(self.violation(state, a, b));
                    }
                    if !self.meets_path_condition(state, a, b) {
                        check.path.push(self.violation(state, a, b));
                    }
                }
            }
        }
    }

    fn violation(&self, state: u32, a: u32, b: u32) -> Violation {
        let global = |s: u32| AutomatonState(self.view.first.0 + s);
        let (state, successors) = (global(state), [global(a), global(b)]);
        let pushdown = &self.structure.pushdown;
        Violation { branch: branch(pushdown, state), targets: successors.map(|s| target(pushdown, state, s)), state, successors }
    }

    fn mark_witnesses_of(&self, of: &[usize]) -> Vec<bool> {
        (0..self.view.state_count()).map(|s| of.iter().any(|m| self.profiles[*m][s])).collect()
    }

    /// Marks the states on directed cycles that avoid the states of `member`.
    fn mark_cycles_without(&self, member: &[bool]) -> Vec<bool> {
        let free = |s: u32| !member[s as usize];
        let pairs: Vec<(u32, u32)> = (0..self.view.state_count() as u32)
            .filter(|s| free(*s))
            .flat_map(|s| self.view.next[s as usize].iter().filter(|n| free(**n)).map(move |n| (s, *n)))
            .collect();
        let component = components(&Adjacency::new(self.view.state_count(), &pairs));
        let mut cyclic = vec![false; self.view.state_count() + 1];
        pairs.iter().filter(|(a, b)| component[*a as usize] == component[*b as usize]).for_each(|(a, _)| {
            cyclic[component[*a as usize] as usize] = true;
        });
        component.iter().map(|c| cyclic[*c as usize]).collect()
    }

    /// Returns the states reached from `from`, [`END`] included, without passing through a state of `stops`. Reached states of `stops`
    /// are included.
    fn find_reached_states(&self, from: u32, stops: &[bool]) -> HashSet<u32> {
        let (mut seen, mut work) = (HashSet::new(), vec![from]);
        while let Some(state) = work.pop() {
            if !seen.insert(state) || stops[state as usize] {
                continue;
            }
            if self.view.ends[state as usize] {
                seen.insert(END);
            }
            work.extend(&self.view.next[state as usize]);
        }
        seen
    }

    /// Returns true if there is a diamond over `a` and `b` that is not broken by any profile that also breaks all its cycles.
    fn has_open_diamond(&self, fork: u32, a: u32, b: u32) -> bool {
        let breaks_cycles = |m: &usize| {
            let member = &self.profiles[*m];
            member[fork as usize] || [a, b].iter().all(|q| member[*q as usize] || !self.find_reached_states(*q, member).contains(&fork))
        };
        let breaking_cycles: Vec<usize> = (0..self.profiles.len()).filter(breaks_cycles).collect();
        let stops = self.mark_witnesses_of(&breaking_cycles);
        let (over_a, over_b) = (self.find_reached_states(a, &stops), self.find_reached_states(b, &stops));
        over_a.iter().any(|join| over_b.contains(join))
    }

    fn meets_path_condition(&self, fork: u32, a: u32, b: u32) -> bool {
        let none = vec![false; self.view.state_count()];
        let loops = |q: u32| self.find_reached_states(q, &none).contains(&fork);
        let sets: Vec<[Vec<u32>; 2]> = self.profiles.iter().map(|m| [a, b].map(|q| first_of(self.view, m, q))).collect();
        if loops(a) && loops(b) {
            return sets.iter().any(|[a, b]| disjoint(a, b));
        }
        let all = |side: usize| {
            let mut all: Vec<u32> = sets.iter().flat_map(|s| s[side].clone()).filter(|w| *w != END).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let union = self.mark_witnesses_of(&(0..self.profiles.len()).collect::<Vec<_>>());
        let unseen = [a, b].iter().all(|q| first_of(self.view, &union, *q).contains(&END));
        !unseen && disjoint(&all(0), &all(1))
    }
}
