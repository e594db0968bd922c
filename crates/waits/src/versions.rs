//! Expanded execution paths of all locations, as a tree.
//!
//! A *version* is the path of a location from the start of the run to some point. Waits on it have been replaced, so its steps add up to
//! the elapsed time. After a wait, a location continues from the version of the location that ended the wait. The common part of two paths
//! therefore ends at the lowest common ancestor of their versions.
//!
//! Versions are reference-counted. If only its child refers to a node, the node is merged into the child. Steps that all paths have in
//! common are moved to [`PathVersions::shared`], so there are at most two nodes per version. [`PathVersions::difference`] takes time linear
//! in the lengths of both paths. All other operations take amortised constant time.

use crate::hash::Map;
use crate::step::StepId;
use std::ops::AddAssign;

/// A counted reference to a version. It must be passed exactly once to [`PathVersions::release`], or to [`PathVersions::append`], which
/// replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathVersionId(u32);

const NO_NODE_INDEX: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct VersionNode {
    parent: u32,
    references: u32,
    /// Number of the node in the order of creation. It is larger than that of the node's parent.
    serial: u64,
    /// Length in ns of the path from the start of the run to the end of this node.
    total_ns: u64,
    steps: Vec<(StepId, u64)>,
    /// Length of `steps` after equal steps were last merged.
    compacted: usize,
}

/// The tree of all paths to which a reference exists.
#[derive(Clone, Debug, Default)]
pub struct PathVersions {
    nodes: Vec<VersionNode>,
    /// Indices of unused nodes.
    free: Vec<u32>,
    serial: u64,
    /// For each step, the time in ns that all paths have in common.
    shared: Map<StepId, u64>,
}

/// The steps of two paths after their common part, with times in ns. Equal steps are merged, and ordered by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathDifference {
    /// Steps of the longer path.
    pub plus: Vec<(StepId, u64)>,
    /// Steps of the shorter path.
    pub minus: Vec<(StepId, u64)>,
}

impl PathVersions {
    /// Creates the empty path, which is the root of all others. Must be called exactly once.
    pub fn create_origin_version(&mut self) -> PathVersionId {
        self.add_node(NO_NODE_INDEX, 0)
    }

    fn add_node(&mut self, parent: u32, total_ns: u64) -> PathVersionId {
        self.serial += 1;
        let node = VersionNode { parent, references: 1, serial: self.serial, total_ns, steps: Vec::new(), compacted: 0 };
        match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                PathVersionId(index)
            }
            None => {
                self.nodes.push(node);
                PathVersionId(self.nodes.len() as u32 - 1)
            }
        }
    }

    /// Returns the length of a path in ns.
    pub fn total_ns(&self, version: PathVersionId) -> u64 {
        self.nodes[version.0 as usize].total_ns
    }

    /// Appends a step to a path. Consumes the reference to the path, and returns a reference to the longer one.
    #[must_use]
    pub fn append(&mut self, version: PathVersionId, step: StepId, ns: u64) -> PathVersionId {
        if ns == 0 {
            return version;
        }
        let own = &self.nodes[version.0 as usize];
        let version = if own.references == 1 {
            version
        } else {
            // The caller's reference to the old node becomes the new node's reference to its parent.
            self.add_node(version.0, own.total_ns)
        };
        self.merge_upwards(version.0);
        let node = &mut self.nodes[version.0 as usize];
        node.total_ns += ns;
        match node.steps.last_mut() {
            Some(last) if last.0 == step => last.1 += ns,
            _ => node.steps.push((step, ns)),
        }
        if node.steps.len() > 2 * node.compacted + 32 {
            compact_steps(node);
        }
        version
    }

    /// Creates another reference to a version.
    #[must_use]
    pub fn share_version(&mut self, version: PathVersionId) -> PathVersionId {
        self.nodes[version.0 as usize].references += 1;
        version
    }

    /// Drops a reference, and frees the nodes to which no other reference exists.
    pub fn release(&mut self, version: PathVersionId) {
        let mut index = version.0;
        while index != NO_NODE_INDEX {
            let node = &mut self.nodes[index as usize];
            node.references -= 1;
            if node.references > 0 {
                return;
            }
            let parent = node.parent;
            node.steps = Vec::new();
            self.free.push(index);
            index = parent;
        }
    }

    /// Merges a node's ancestors into it as long as nothing else refers to them.
    fn merge_upwards(&mut self, index: u32) {
        loop {
            let parent = self.nodes[index as usize].parent;
            if parent == NO_NODE_INDEX || self.nodes[parent as usize].references != 1 {
                return;
            }
            let mut steps = std::mem::take(&mut self.nodes[parent as usize].steps);
            let (grandparent, compacted) = (self.nodes[parent as usize].parent, self.nodes[parent as usize].compacted);
            self.free.push(parent);
            let node = &mut self.nodes[index as usize];
            steps.append(&mut node.steps);
            node.steps = steps;
            node.compacted = compacted;
            node.parent = grandparent;
            if node.steps.len() > 2 * node.compacted + 32 {
                compact_steps(node);
            }
        }
    }

    /// Returns the steps after the common part of two paths. The time of `plus` minus that of `minus` is the difference between the lengths
    /// of the paths.
    pub fn difference(&mut self, plus: PathVersionId, minus: PathVersionId) -> PathDifference {
        let (mut a, mut b) = (plus.0, minus.0);
        let mut difference = PathDifference::default();
        while a != b {
            let (first, second) = (self.serial_number(a), self.serial_number(b));
            let (index, steps) = if first > second { (&mut a, &mut difference.plus) } else { (&mut b, &mut difference.minus) };
            self.merge_upwards(*index);
            steps.extend_from_slice(&self.nodes[*index as usize].steps);
            *index = self.nodes[*index as usize].parent;
        }
        if a != NO_NODE_INDEX {
            self.merge_upwards(a);
            self.move_root_to_shared(a);
        }
        merge_equal_steps(&mut difference.plus);
        merge_equal_steps(&mut difference.minus);
        difference
    }

    fn serial_number(&self, index: u32) -> u64 {
        if index == NO_NODE_INDEX { 0 } else { self.nodes[index as usize].serial }
    }

    /// If a node is the root, moves its steps to `shared`. All paths contain them, so they are in no difference.
    fn move_root_to_shared(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        if node.parent == NO_NODE_INDEX {
            for (step, ns) in node.steps.drain(..) {
                *self.shared.entry(step).or_default() += ns;
            }
            node.compacted = 0;
        }
    }

    /// Returns all steps of a path. Equal steps are merged, and ordered by number.
    pub fn path(&self, version: PathVersionId) -> Vec<(StepId, u64)> {
        let mut steps: Vec<_> = self.shared.iter().map(|(step, ns)| (*step, *ns)).collect();
        let mut index = version.0;
        while index != NO_NODE_INDEX {
            steps.extend_from_slice(&self.nodes[index as usize].steps);
            index = self.nodes[index as usize].parent;
        }
        merge_equal_steps(&mut steps);
        steps
    }

    /// Returns the number of nodes in use, and the number of steps in them, by which memory is bounded.
    pub fn count_live_nodes_and_steps(&self) -> (usize, usize) {
        (self.nodes.len() - self.free.len(), self.nodes.iter().map(|n| n.steps.len()).sum())
    }
}

fn compact_steps(node: &mut VersionNode) {
    merge_equal_steps(&mut node.steps);
    node.compacted = node.steps.len();
}

fn merge_equal_steps(steps: &mut Vec<(StepId, u64)>) {
    steps.sort_unstable_by_key(|(step, _)| *step);
    merge_equal_neighbours(steps);
}

/// Merges adjacent entries with equal keys, by adding their values.
pub(crate) fn merge_equal_neighbours<K: PartialEq, V: AddAssign + Copy>(sorted: &mut Vec<(K, V)>) {
    sorted.dedup_by(|next, kept| {
        let is_equal = next.0 == kept.0;
        if is_equal {
            kept.1 += next.1;
        }
        is_equal
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(steps: &[(StepId, u64)]) -> u64 {
        steps.iter().map(|(_, ns)| ns).sum()
    }

    #[test]
    fn difference_omits_the_common_part() {
        let mut versions = PathVersions::default();
        let root = versions.create_origin_version();
        let root = versions.append(root, StepId(0), 5);
        let other = versions.share_version(root);
        let a = versions.append(root, StepId(1), 10);
        let b = versions.append(other, StepId(2), 3);
        let found = versions.difference(a, b);
        assert_eq!(found, PathDifference { plus: vec![(StepId(1), 10)], minus: vec![(StepId(2), 3)] });
        assert_eq!(versions.path(b), [(StepId(0), 5), (StepId(2), 3)]);
    }

    #[test]
    fn memory_is_bounded_by_number_of_live_versions() {
        let mut versions = PathVersions::default();
        let a = versions.create_origin_version();
        let b = versions.share_version(a);
        let mut heads = [a, b];
        for turn in 0..10_000u64 {
            let ahead = (turn % 2) as usize;
            heads[ahead] = versions.append(heads[ahead], StepId(ahead as u32), 10);
            heads[1 - ahead] = versions.append(heads[1 - ahead], StepId(2), 3);
            let found = versions.difference(heads[ahead], heads[1 - ahead]);
            assert_eq!(sum(&found.plus) - sum(&found.minus), 7);
            versions.release(heads[1 - ahead]);
            heads[1 - ahead] = versions.share_version(heads[ahead]);
        }
        let (nodes, entries) = versions.count_live_nodes_and_steps();
        assert!(nodes <= 4 && entries < 100, "{nodes} nodes, {entries} entries");
        assert_eq!(sum(&versions.path(heads[0])), versions.total_ns(heads[0]));
    }
}
