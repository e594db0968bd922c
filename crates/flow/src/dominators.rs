//! Computes dominators of a graph that is given by successor lists. On the reversed graph, starting at the exit, these are postdominators.
//!
//! Source: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), the iterative algorithm.

use crate::graph::postorder;

/// Returns the immediate dominator of each node. The entry is its own immediate dominator; an unreachable node has none.
pub fn immediate_dominators(next: &[Vec<u32>], entry: u32) -> Vec<Option<u32>> {
    let mut into = vec![Vec::new(); next.len()];
    next.iter().zip(0u32..).for_each(|(next, node)| next.iter().for_each(|to| into[*to as usize].push(node)));
    let successors = |node: usize| next[node].iter().map(|to| *to as usize);
    let order = postorder(entry as usize, &mut vec![false; next.len()], successors);
    let mut position = vec![u32::MAX; next.len()];
    order.iter().rev().zip(0u32..).for_each(|(node, at)| position[*node] = at);
    let mut dominator: Vec<Option<u32>> = vec![None; next.len()];
    dominator[entry as usize] = Some(entry);
    let mut changed = true;
    while changed {
        changed = false;
        for &node in order.iter().rev().filter(|node| **node != entry as usize) {
            let known = into[node].iter().copied().filter(|n| dominator[*n as usize].is_some());
            let new = known.reduce(|a, b| common_dominator(&dominator, &position, a, b));
            changed |= new != dominator[node];
            dominator[node] = new;
        }
    }
    dominator
}

fn common_dominator(dominator: &[Option<u32>], position: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while position[a as usize] > position[b as usize] {
            a = dominator[a as usize].expect("nodes before it in reverse postorder have a dominator");
        }
        while position[b as usize] > position[a as usize] {
            b = dominator[b as usize].expect("nodes before it in reverse postorder have a dominator");
        }
    }
    a
}
