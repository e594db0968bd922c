//! Joins fragments (parts of hot paths, each within one function) into complete paths.
//!
//! Paths that are incomplete at the end of a fragment continue in the fragments that follow it, in proportion to how often each of them
//! follows. Paths with the same number are handled together, so the cost depends on the number of different paths at each fragment, not on
//! executions.

use super::apportion::{apportion, apportion_within_limits};
use super::flows::{FragmentSuccessor, find_fragment_successors};
use super::fragment::{Fragment, FragmentFunction, NumberAction};
use crate::branch_import::ImportError;
use crate::probe_graphs::ProbeGraphs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use trodden_binary::ProbedFunction;

/// Maximum number of times a fragment is processed. More than once is needed only if fragments in which no path ends form a cycle, as for
/// a loop of instructions within a block.
const MAX_VISITS_PER_FRAGMENT: u32 = 64;

#[derive(Debug, Default)]
pub struct JoinedFragmentPaths {
    /// Number of executions, by image, function and path number.
    pub paths: BTreeMap<(usize, ProbedFunction, i64), u64>,
    /// Number of executions of paths within one fragment.
    pub whole: u64,
    /// Number of executions of paths joined from several fragments.
    pub joined: u64,
    pub fragments: u64,
    /// Number of transitions between fragments at which a path's number was lost, because several paths lead from one to the next.
    pub ambiguous: u64,
    pub without_end: u64,
    pub without_beginning: u64,
}

pub fn join(graphs: &mut ProbeGraphs, fragments: &[Fragment]) -> Result<JoinedFragmentPaths, ImportError> {
    let joins = find_fragment_successors(graphs, fragments)?;
    let ends =
        |actions: &[NumberAction], count: u64| actions.iter().filter(|a| matches!(a, NumberAction::Finish(_))).count() as u64 * count;
    let in_fragments: u64 = fragments.iter().map(|f| ends(&f.actions, f.count)).sum();
    let between: u64 = joins.iter().flatten().map(|join| ends(&join.actions, join.count)).sum();
    let mut joiner = FragmentJoiner { fragments, joins, open_paths: BTreeMap::new(), joined: JoinedFragmentPaths::default() };
    joiner.start_paths();
    joiner.carry_incomplete_paths();
    let mut joined = std::mem::take(&mut joiner.joined);
    joined.fragments = fragments.iter().map(|f| f.count).sum();
    let is_lost = |join: &&FragmentSuccessor| join.actions.contains(&NumberAction::Lose);
    joined.ambiguous = joiner.joins.iter().flatten().filter(is_lost).map(|join| join.count).sum();
    joined.without_beginning = (in_fragments + between).saturating_sub(joined.whole + joined.joined);
    Ok(joined)
}

/// An incomplete path: its number so far, and whether it began in an earlier fragment.
type IncompletePath = (i64, bool);
/// Number of executions of the incomplete paths at the end of a fragment.
type IncompletePathCounts = BTreeMap<IncompletePath, u64>;

struct FragmentJoiner<'a> {
    fragments: &'a [Fragment],
    joins: Vec<Vec<FragmentSuccessor>>,
    /// The incomplete paths at the end of each fragment, by the fragment's index.
    open_paths: BTreeMap<usize, IncompletePathCounts>,
    joined: JoinedFragmentPaths,
}

impl FragmentJoiner<'_> {
    /// Starts all paths that begin in a fragment or between two fragments.
    fn start_paths(&mut self) {
        let mut arrivals = vec![0_u64; self.fragments.len()];
        self.joins.iter().flatten().for_each(|join| arrivals[join.next] = arrivals[join.next].saturating_add(join.count));
        for (number, fragment) in self.fragments.iter().enumerate() {
            if let Some(path) = self.start_paths_along(fragment.function, &fragment.actions, fragment.count) {
                self.continue_paths_into_successors(number, IncompletePathCounts::from([(path, fragment.count)]));
            }
            for join in self.joins[number].clone().into_iter().filter(|join| contains_path_begin(&join.actions)) {
                // If the detector has dropped paths, a fragment's count may differ from the number of arrivals at its start.
                let share = self.fragments[join.next].count as f64 / arrivals[join.next] as f64;
                let count = if arrivals[join.next] == self.fragments[join.next].count {
                    join.count
                } else {
                    (join.count as f64 * share).round() as u64
                };
                if let Some(path) = self.start_paths_along(fragment.function, &join.actions, count) {
                    self.extend_path_by_fragment(join.next, path, count);
                }
            }
        }
    }

    /// Carries the incomplete paths through the fragments, in topological order as far as there is one.
    fn carry_incomplete_paths(&mut self) {
        let is_passed: Vec<bool> = self.fragments.iter().map(|f| keeps_path_incomplete(&f.actions)).collect();
        let follow = |join: &&FragmentSuccessor| keeps_path_incomplete(&join.actions) && is_passed[join.next];
        let mut before = vec![0_u32; self.fragments.len()];
        for (number, joins) in self.joins.iter().enumerate().filter(|(number, _)| is_passed[*number]) {
            joins.iter().filter(follow).filter(|join| join.next != number).for_each(|join| before[join.next] += 1);
        }
        let next: Vec<Vec<usize>> = self.joins.iter().map(|joins| joins.iter().filter(follow).map(|join| join.next).collect()).collect();
        let mut ready: VecDeque<usize> = (0..self.fragments.len()).filter(|number| is_passed[*number] && before[*number] == 0).collect();
        let mut visits = vec![0_u32; self.fragments.len()];
        while let Some(number) = ready.pop_front().or_else(|| self.open_paths.keys().next().copied()) {
            if visits[number] == 0 {
                for next in next[number].iter().filter(|next| **next != number && visits[**next] == 0) {
                    before[*next] -= 1;
                    ready.extend((before[*next] == 0).then_some(*next));
                }
            }
            visits[number] += 1;
            let Some(open_paths) = self.open_paths.remove(&number) else { continue };
            if visits[number] > MAX_VISITS_PER_FRAGMENT {
                self.joined.without_end += open_paths.values().sum::<u64>();
            } else {
                self.continue_paths_into_successors(number, open_paths);
            }
        }
    }

    fn continue_paths_into_successors(&mut self, number: usize, open_paths: IncompletePathCounts) {
        let joins = self.joins[number].clone();
        let total = open_paths.values().sum();
        let counts: Vec<f64> = joins.iter().map(|join| join.count as f64).collect();
        let mut left = apportion(total, &counts);
        self.joined.without_end += total - left.iter().sum::<u64>();
        let mut open_paths: Vec<(IncompletePath, u64)> = open_paths.into_iter().collect();
        open_paths.sort_by_key(|(_, count)| Reverse(*count));
        for ((sum, _), count) in open_paths {
            let weights: Vec<f64> = left.iter().map(|count| *count as f64).collect();
            for (at, part) in apportion_within_limits(count, &weights, &left).into_iter().enumerate().filter(|(_, part)| *part > 0) {
                left[at] -= part;
                if let Some(path) = self.apply_actions(self.fragments[number].function, &joins[at].actions, (sum, true), part) {
                    self.extend_path_by_fragment(joins[at].next, path, part);
                }
            }
        }
    }

    fn extend_path_by_fragment(&mut self, number: usize, path: IncompletePath, count: u64) {
        let fragment = &self.fragments[number];
        if let Some(path) = self.apply_actions(fragment.function, &fragment.actions, path, count) {
            *self.open_paths.entry(number).or_default().entry(path).or_default() += count;
        }
    }

    /// Applies actions to an incomplete path, and returns the path if it is still incomplete. Paths that begin on the way are ignored.
    fn apply_actions(
        &mut self,
        function: FragmentFunction,
        actions: &[NumberAction],
        mut path: IncompletePath,
        count: u64,
    ) -> Option<IncompletePath> {
        for action in actions {
            if matches!(action, NumberAction::Begin(_)) {
                return None;
            }
            path = self.apply_action(function, *action, path, count)?;
        }
        Some(path)
    }

    /// Counts the paths that begin along `actions`, and returns the last one if it is incomplete at their end.
    fn start_paths_along(&mut self, function: FragmentFunction, actions: &[NumberAction], count: u64) -> Option<IncompletePath> {
        let mut path = None;
        for action in actions {
            path = match (action, path) {
                (NumberAction::Begin(sum), _) => Some((*sum, false)),
                (action, Some(path)) => self.apply_action(function, *action, path, count),
                (_, None) => None,
            };
        }
        path
    }

    fn apply_action(
        &mut self,
        function: FragmentFunction,
        action: NumberAction,
        path: IncompletePath,
        count: u64,
    ) -> Option<IncompletePath> {
        let (sum, is_joined) = path;
        let mut add = |id: i64| *self.joined.paths.entry((function.0, function.1, id)).or_default() += count;
        match action {
            NumberAction::Begin(_) => {}
            NumberAction::Add(value) => return Some((sum.wrapping_add(value), is_joined)),
            NumberAction::Reach(value) => add(sum.wrapping_add(value)),
            NumberAction::Finish(value) => {
                add(sum.wrapping_add(value));
                *(if is_joined { &mut self.joined.joined } else { &mut self.joined.whole }) += count;
                return None;
            }
            NumberAction::Lose => {
                self.joined.without_end += count;
                return None;
            }
        }
        Some(path)
    }
}

fn contains_path_begin(actions: &[NumberAction]) -> bool {
    actions.iter().any(|action| matches!(action, NumberAction::Begin(_)))
}

/// Returns true if an incomplete path remains incomplete along `actions`.
fn keeps_path_incomplete(actions: &[NumberAction]) -> bool {
    !actions.iter().any(|action| matches!(action, NumberAction::Begin(_) | NumberAction::Finish(_) | NumberAction::Lose))
}
