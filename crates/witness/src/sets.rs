//! Interned sets of witnesses, and their unions along a graph.
//!
//! Each set is stored once and has a number. [`unions_of_reachable_sets`] computes for each node of a graph the union of the
//! sets of all nodes that it reaches, by Tarjan's strongly connected components in reverse topological order. O(nodes + edges + sizes of
//! the new sets).

use std::collections::HashMap;
use std::sync::Arc;

/// The symbol for the end of the run.
pub const END: u32 = u32::MAX;

/// The number of a set in an [`InternedSymbolSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(u32);

/// The empty set, which has this number in every [`InternedSymbolSets`].
pub const EMPTY: SetId = SetId(0);

/// Interned sets, each a sorted list of symbols.
#[derive(Clone, Debug)]
pub struct InternedSymbolSets {
    all: Vec<Arc<[u32]>>,
    numbers: HashMap<Arc<[u32]>, SetId>,
    /// The last union that included each symbol, indexed by symbol + 1 (wrapping, so that [`END`] is at 0).
    last_union: Vec<u32>,
    unions: u32,
}

impl Default for InternedSymbolSets {
    fn default() -> InternedSymbolSets {
        InternedSymbolSets::new()
    }
}

impl InternedSymbolSets {
    /// Creates a collection with only the empty set.
    pub fn new() -> InternedSymbolSets {
        let empty: Arc<[u32]> = Arc::from([]);
        InternedSymbolSets { all: vec![empty.clone()], numbers: HashMap::from([(empty, EMPTY)]), last_union: Vec::new(), unions: 0 }
    }

    /// Returns the symbols of a set, in ascending order.
    pub fn get(&self, set: SetId) -> &[u32] {
        &self.all[set.0 as usize]
    }

    /// Returns true if a set contains a symbol.
    pub fn has(&self, set: SetId, symbol: u32) -> bool {
        self.get(set).binary_search(&symbol).is_ok()
    }

    /// Returns the set of one symbol.
    pub fn single(&mut self, symbol: u32) -> SetId {
        self.intern(vec![symbol])
    }

    /// Returns the union of sets.
    pub fn union(&mut self, sets: &mut Vec<SetId>) -> SetId {
        sets.sort_unstable();
        sets.dedup();
        sets.retain(|s| *s != EMPTY);
        match sets.as_slice() {
            [] => EMPTY,
            [one] => *one,
            _ => {
                // Most symbols are in several of the sets, so each is added only once, which leaves little to sort.
                self.unions += 1;
                let mut symbols = Vec::new();
                for set in sets.iter() {
                    for symbol in self.all[set.0 as usize].iter() {
                        let place = symbol.wrapping_add(1) as usize;
                        if self.last_union.len() <= place {
                            self.last_union.resize(place + 1, 0);
                        }
                        if std::mem::replace(&mut self.last_union[place], self.unions) != self.unions {
                            symbols.push(*symbol);
                        }
                    }
                }
                // The stable sort merges the ascending runs of the sets.
                symbols.sort();
                self.intern(symbols)
            }
        }
    }

    /// Returns true if two sets have no symbol in common.
    pub fn disjoint(&self, a: SetId, b: SetId) -> bool {
        if a == b {
            return a == EMPTY;
        }
        disjoint(self.get(a), self.get(b))
    }

    fn intern(&mut self, symbols: Vec<u32>) -> SetId {
        let symbols: Arc<[u32]> = symbols.into();
        if let Some(known) = self.numbers.get(&symbols) {
            return *known;
        }
        let number = SetId(self.all.len() as u32);
        self.all.push(symbols.clone());
        self.numbers.insert(symbols, number);
        number
    }
}

/// Returns true if two sorted lists have no element in common.
pub fn disjoint(a: &[u32], b: &[u32]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    !few.iter().any(|x| many.binary_search(x).is_ok())
}

/// A graph as concatenated lists of successors.
#[derive(Clone, Debug)]
pub struct Adjacency {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Adjacency {
    /// Builds the lists of `count` nodes from pairs (node, item).
    pub fn new(count: usize, pairs: &[(u32, u32)]) -> Adjacency {
        let mut starts = vec![0u32; count + 1];
        pairs.iter().for_each(|(node, _)| starts[*node as usize + 1] += 1);
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let (mut at, mut items) = (starts.clone(), vec![0; pairs.len()]);
        for (node, item) in pairs {
            items[at[*node as usize] as usize] = *item;
            at[*node as usize] += 1;
        }
        Adjacency { starts, items }
    }

    /// Returns the list of a node.
    pub fn of(&self, node: u32) -> &[u32] {
        &self.items[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.starts.len() - 1
    }
}

/// Returns the number of each node's strongly connected component. Components of successors have lower numbers.
pub fn components(graph: &Adjacency) -> Vec<u32> {
    const UNVISITED: u32 = u32::MAX;
    let count = graph.node_count();
    let (mut order, mut low, mut component) = (vec![UNVISITED; count], vec![0u32; count], vec![UNVISITED; count]);
    let (mut open, mut walk) = (Vec::new(), Vec::new());
    let (mut next_order, mut next_component) = (0, 0);
    for start in 0..count as u32 {
        if order[start as usize] != UNVISITED {
            continue;
        }
        walk.push((start, 0));
        while let Some((node, at)) = walk.last_mut() {
            let (n, i) = (*node, *at);
            if i == 0 {
                (order[n as usize], low[n as usize]) = (next_order, next_order);
                next_order += 1;
                open.push(n);
            }
            *at += 1;
            match graph.of(n).get(i) {
                Some(&to) if order[to as usize] == UNVISITED => walk.push((to, 0)),
                Some(&to) if component[to as usize] == UNVISITED => low[n as usize] = low[n as usize].min(order[to as usize]),
                Some(_) => {}
                None => {
                    if low[n as usize] == order[n as usize] {
                        while let Some(member) = open.pop() {
                            component[member as usize] = next_component;
                            if member == n {
                                break;
                            }
                        }
                        next_component += 1;
                    }
                    walk.pop();
                    if let Some((up, _)) = walk.last() {
                        low[*up as usize] = low[*up as usize].min(low[n as usize]);
                    }
                }
            }
        }
    }
    component
}

/// Returns, for each node, the union of the `own` sets of all nodes that it reaches, itself included.
pub fn unions_of_reachable_sets(sets: &mut InternedSymbolSets, graph: &Adjacency, own: &[Vec<SetId>]) -> Vec<SetId> {
    let component = components(graph);
    let count = component.iter().max().map_or(0, |m| *m as usize + 1);
    let members: Vec<(u32, u32)> = component.iter().zip(0..).map(|(c, n)| (*c, n)).collect();
    let members = Adjacency::new(count, &members);
    let mut of_component: Vec<SetId> = Vec::with_capacity(count);
    let mut of = Vec::new();
    for c in 0..count as u32 {
        of.clear();
        for &node in members.of(c) {
            of.extend(&own[node as usize]);
            let others = graph.of(node).iter().map(|to| component[*to as usize]).filter(|other| *other != c);
            of.extend(others.map(|other| of_component[other as usize]));
        }
        of_component.push(sets.union(&mut of));
    }
    component.iter().map(|c| of_component[*c as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_follow_cycles_and_edges() {
        let mut sets = InternedSymbolSets::new();
        let own: Vec<Vec<SetId>> = (0..5).map(|n| vec![sets.single(n)]).collect();
        // Edges 0 -> 1 <-> 2 -> 3; 4 is isolated.
        let graph = Adjacency::new(5, &[(0, 1), (1, 2), (2, 1), (2, 3)]);
        let of = unions_of_reachable_sets(&mut sets, &graph, &own);
        assert_eq!(
            of.iter().map(|s| sets.get(*s).to_vec()).collect::<Vec<_>>(),
            [vec![0, 1, 2, 3], vec![1, 2, 3], vec![1, 2, 3], vec![3], vec![4]]
        );
        assert_eq!(of[1], of[2]);
        assert!(sets.disjoint(of[3], of[4]) && !sets.disjoint(of[0], of[3]));
    }
}
