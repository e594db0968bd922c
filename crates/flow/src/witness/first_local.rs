//! The sets W of a [`View`]: by search, for few states at a time.

use super::view::{END, View};

/// The marked states that can be the first ones met from `from` on, itself included, and [`END`]; ascending.
pub fn first_of(view: &View, member: &[bool], from: u32) -> Vec<u32> {
    first_from(view, member, &[from])
}

/// The same behind a state.
pub fn first_behind(view: &View, member: &[bool], state: u32) -> Vec<u32> {
    let mut found = first_from(view, member, &view.next[state as usize]);
    if view.ends[state as usize] && found.last() != Some(&END) {
        found.push(END);
    }
    found
}

fn first_from(view: &View, member: &[bool], from: &[u32]) -> Vec<u32> {
    let mut seen = std::collections::HashSet::new();
    let (mut work, mut found) = (from.to_vec(), Vec::new());
    while let Some(state) = work.pop() {
        if !seen.insert(state) {
            continue;
        }
        if member[state as usize] {
            found.push(state);
            continue;
        }
        if view.ends[state as usize] {
            found.push(END);
        }
        work.extend(&view.next[state as usize]);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether two ascending lists have nothing in common.
pub fn disjoint(a: &[u32], b: &[u32]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    !few.iter().any(|x| many.binary_search(x).is_ok())
}
