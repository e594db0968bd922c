//! Searches for the fewest witnesses of a function within a limit, for cases where elimination, which minimises costs, leaves too many.
//!
//! Two successors of a branch are not distinguished if paths from both, without witnesses, meet at a witness, at another state or at the
//! end of the run. Every set that distinguishes them has a witness on one of these two paths, before they meet. So the search adds each
//! state of the two paths in turn, the cheapest first, and continues with the next pair that is not distinguished. It first tries sets of
//! one witness, then of two, up to the limit. It finds a set if there is one, unless its effort is exhausted. Each set tried costs two
//! searches of the function's graph for each pair of successors examined.
use super::eliminate::RequiredDistinction;
use super::view::StateGraph;

/// Result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FewestSearch {
    /// Marked states that distinguish the required successors.
    Found(Vec<bool>),
    /// No set within the limit exists.
    NoSet,
    /// The effort was exhausted.
    Exhausted,
}

/// Searches for at most `limit` witnesses. Tries at most `effort` sets, and subtracts the number of sets tried from `effort`.
pub fn find_fewest(view: &StateGraph, required: &[RequiredDistinction], limit: usize, effort: &mut usize) -> FewestSearch {
    for count in 1..=limit {
        let mut member = vec![false; view.state_count()];
        match complete_set(view, required, &mut member, count, effort) {
            Some(true) => return FewestSearch::Found(member),
            Some(false) => {}
            None => return FewestSearch::Exhausted,
        }
    }
    FewestSearch::NoSet
}

/// Tries to complete a set with at most `more` further witnesses. On success, marks the witnesses and returns true. Returns `None` if the
/// effort is exhausted.
fn complete_set(view: &StateGraph, required: &[RequiredDistinction], member: &mut [bool], more: usize, effort: &mut usize) -> Option<bool> {
    *effort = effort.checked_sub(1)?;
    let Some(mut candidates) = candidates_for_open_pair(view, required, member) else { return Some(true) };
    candidates.sort_by(|a, b| view.cost[*a as usize].total_cmp(&view.cost[*b as usize]).then(a.cmp(b)));
    candidates.dedup();
    for state in candidates {
        let size = 1 + view.parallel.get(&state).map_or(0, Vec::len);
        if size > more {
            continue;
        }
        member[state as usize] = true;
        if complete_set(view, required, member, more - size, effort)? {
            return Some(true);
        }
        member[state as usize] = false;
    }
    Some(false)
}

/// Returns, for the first pair that is not distinguished, candidates of which at least one must become a witness. Returns `None` if all
/// pairs are distinguished.
fn candidates_for_open_pair(view: &StateGraph, required: &[RequiredDistinction], member: &[bool]) -> Option<Vec<u32>> {
    required.iter().find_map(|requirement| {
        let next = &view.branches[requirement.branch].next;
        (0..next.len())
            .find_map(|i| (0..i).filter(|j| requirement.contains(i, *j)).find_map(|j| find_meeting(view, member, next[i], next[j])))
    })
}

/// A breadth-first search. `from` has the predecessor of each visited state (for the first state, the state itself), and `ends` the first
/// state where the run can end.
struct WitnessSearch {
    from: Vec<Option<u32>>,
    ends: Option<u32>,
}

impl WitnessSearch {
    /// Searches from `start`, not beyond marked states, up to the first state for which `stop` is true. Also returns this state.
    fn new(view: &StateGraph, member: &[bool], start: u32, stop: impl Fn(u32) -> bool) -> (WitnessSearch, Option<u32>) {
        let mut walk = WitnessSearch { from: vec![None; view.state_count()], ends: None };
        walk.from[start as usize] = Some(start);
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(state) = queue.pop_front() {
            if stop(state) {
                return (walk, Some(state));
            }
            if member[state as usize] {
                continue;
            }
            if view.ends[state as usize] {
                walk.ends.get_or_insert(state);
            }
            for &next in &view.next[state as usize] {
                if walk.from[next as usize].is_none() {
                    walk.from[next as usize] = Some(state);
                    queue.push_back(next);
                }
            }
        }
        (walk, None)
    }

    fn path_back_from(&self, to: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(to), |state| self.from[*state as usize].filter(|before| before != state))
    }
}

/// Finds two paths that start at `a` and `b` and meet. Returns the states on these paths, before the meeting point, that can have a
/// witness; `None` if no paths meet.
fn find_meeting(view: &StateGraph, member: &[bool], a: u32, b: u32) -> Option<Vec<u32>> {
    let (over_a, _) = WitnessSearch::new(view, member, a, |_| false);
    let (over_b, met) = WitnessSearch::new(view, member, b, |state| over_a.from[state as usize].is_some());
    let (first, second) = match (met, over_a.ends, over_b.ends) {
        (Some(at), ..) => (over_a.path_back_from(at).skip(1).collect(), over_b.path_back_from(at).skip(1).collect()),
        (None, Some(x), Some(y)) => (over_a.path_back_from(x).collect::<Vec<_>>(), over_b.path_back_from(y).collect::<Vec<_>>()),
        (None, ..) => return None,
    };
    Some(first.into_iter().chain(second).filter(|s| view.witness[*s as usize].is_some()).collect())
}
