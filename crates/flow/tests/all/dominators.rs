//! Dominators of random graphs, compared with the nodes whose removal makes a node unreachable.

use std::collections::BTreeSet;
use trodden_flow::dominators::immediate_dominators;
use trodden_testkit::Random;

fn reached_without(next: &[Vec<u32>], without: Option<u32>) -> BTreeSet<u32> {
    let (mut found, mut left) = (BTreeSet::new(), vec![0]);
    while let Some(node) = left.pop() {
        if Some(node) != without && found.insert(node) {
            left.extend(&next[node as usize]);
        }
    }
    found
}

#[test]
fn dominators_are_the_nodes_that_every_path_goes_through() {
    let mut random = Random::new(1968);
    for _ in 0..3000 {
        let nodes = 1 + random.below(12);
        let next: Vec<Vec<u32>> = (0..nodes).map(|_| (0..random.below(4)).map(|_| random.below(nodes) as u32).collect()).collect();
        let found = immediate_dominators(&next, 0);
        let all = reached_without(&next, None);
        for node in 0..nodes as u32 {
            assert_eq!(found[node as usize].is_some(), all.contains(&node), "{next:?}");
            let expected: BTreeSet<u32> =
                all.iter().copied().filter(|d| *d == node || !reached_without(&next, Some(*d)).contains(&node)).collect();
            let mut chain = BTreeSet::new();
            let mut at = found[node as usize].map(|_| node);
            while let Some(up) = at.filter(|up| chain.insert(*up)) {
                at = found[up as usize];
            }
            assert_eq!(chain, if all.contains(&node) { expected } else { BTreeSet::new() }, "{node} {next:?}");
        }
    }
}
