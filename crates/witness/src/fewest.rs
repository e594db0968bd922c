//! Fewest witnesses of a function within a limit, by search: where elimination, which looks at costs, leaves more than a profile may have.
//!
//! Two successors of a branch are not distinguished if from both a path leads to one place, the end of the run or a witness, without a
//! witness before. Every set that distinguishes them has a witness on one of these paths, before the place where they meet. So the search
//! puts one on each state of the two paths in turn, the cheapest first, and goes on with what is still not distinguished; with one witness,
//! then two, up to the limit. It finds a set if there is one, unless it gives up after so many sets; each costs two searches of the
//! function's graph.

use super::eliminate::Requirement;
use super::view::View;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FewestSearch {
    /// Marked states that distinguish what is required.
    Found(Vec<bool>),
    /// There are none within the limit.
    Nothing,
    /// So many sets were tried that the search was given up.
    GivenUp,
}

/// Searches for at most `limit` witnesses, `effort` sets long; what is tried is taken from it.
pub fn fewest(view: &View, required: &[Requirement], limit: usize, effort: &mut usize) -> FewestSearch {
    for most in 1..=limit {
        let mut member = vec![false; view.state_count()];
        match deepen(view, required, &mut member, most, effort) {
            Some(true) => return FewestSearch::Found(member),
            Some(false) => {}
            None => return FewestSearch::GivenUp,
        }
    }
    FewestSearch::Nothing
}

/// Whether so many more witnesses suffice, which then are marked; `None` if the effort is spent.
fn deepen(view: &View, required: &[Requirement], member: &mut [bool], most: usize, effort: &mut usize) -> Option<bool> {
    *effort = effort.checked_sub(1)?;
    let Some(mut candidates) = open(view, required, member) else { return Some(true) };
    candidates.sort_by(|a, b| view.cost[*a as usize].total_cmp(&view.cost[*b as usize]).then(a.cmp(b)));
    candidates.dedup();
    for state in candidates {
        let size = 1 + view.parallel.get(&state).map_or(0, Vec::len);
        if size > most {
            continue;
        }
        member[state as usize] = true;
        if deepen(view, required, member, most - size, effort)? {
            return Some(true);
        }
        member[state as usize] = false;
    }
    Some(false)
}

/// For the first pair that is not distinguished, the states on which one more witness is needed.
fn open(view: &View, required: &[Requirement], member: &[bool]) -> Option<Vec<u32>> {
    required.iter().find_map(|requirement| {
        let next = &view.branches[requirement.branch].next;
        (0..next.len()).find_map(|i| (0..i).filter(|j| requirement.has(i, *j)).find_map(|j| meeting(view, member, next[i], next[j])))
    })
}

/// How states were come to from one: for each its predecessor, itself for the first; and the first where the run ends.
struct Walk {
    from: Vec<Option<u32>>,
    ends: Option<u32>,
}

impl Walk {
    /// Breadth first, not beyond marked states; up to the first state for which `stop` is true, which is given.
    fn new(view: &View, member: &[bool], start: u32, stop: impl Fn(u32) -> bool) -> (Walk, Option<u32>) {
        let mut walk = Walk { from: vec![None; view.state_count()], ends: None };
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

    /// The states on the way to one, which is the first of them.
    fn back(&self, to: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(to), |state| self.from[*state as usize].filter(|before| before != state))
    }
}

/// The states that can carry a witness on two paths from `a` and `b` that meet, but for the place where they do; `None` if they never meet.
fn meeting(view: &View, member: &[bool], a: u32, b: u32) -> Option<Vec<u32>> {
    let (over_a, _) = Walk::new(view, member, a, |_| false);
    let (over_b, met) = Walk::new(view, member, b, |state| over_a.from[state as usize].is_some());
    let (first, second) = match (met, over_a.ends, over_b.ends) {
        (Some(at), ..) => (over_a.back(at).skip(1).collect(), over_b.back(at).skip(1).collect()),
        (None, Some(x), Some(y)) => (over_a.back(x).collect::<Vec<_>>(), over_b.back(y).collect::<Vec<_>>()),
        (None, ..) => return None,
    };
    Some(first.into_iter().chain(second).filter(|s| view.witness[*s as usize].is_some()).collect())
}
