//! The edges of each node, stored as one list and the index at which each node's edges begin (compressed sparse rows).

use crate::dense_set::DenseIndex;

/// For each node, the edges that leave it or those that enter it, in the order of their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Incidence<E> {
    /// For each node, the index of its first edge. The last element is the number of all edges.
    starts: Vec<u32>,
    edges: Vec<E>,
}

impl<E: DenseIndex> Incidence<E> {
    /// Groups edges by node. `node_of` yields the node of each edge.
    pub fn new(nodes: usize, node_of: impl ExactSizeIterator<Item = usize> + Clone) -> Incidence<E> {
        let mut starts = vec![0u32; nodes + 1];
        node_of.clone().for_each(|node| starts[node + 1] += 1);
        (1..=nodes).for_each(|node| starts[node] += starts[node - 1]);
        let (mut next, mut edges) = (starts.clone(), vec![E::from_index(0); node_of.len()]);
        for (edge, node) in node_of.enumerate() {
            let at = &mut next[node];
            edges[*at as usize] = E::from_index(edge);
            *at += 1;
        }
        Incidence { starts, edges }
    }

    pub fn of(&self, node: usize) -> &[E] {
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}
