//! Unbounded path profiles, and the overlap of two profiles (section 5.5).

use crate::descriptor::PathDescriptor;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Exact path counts. The profile has no limit on the number of paths, unlike a hot path table.
#[derive(Clone, Debug, Default)]
pub struct PathProfile {
    counts: HashMap<PathDescriptor, u64, BuildHasherDefault<DescriptorHasher>>,
    total: u64,
}

impl PathProfile {
    /// Adds to the count of a path.
    pub fn add(&mut self, path: &PathDescriptor, count: u64) {
        *self.counts.entry(*path).or_default() += count;
        self.total += count;
    }

    /// Returns the count of a path, or 0 if the profile does not contain it.
    pub fn count(&self, path: &PathDescriptor) -> u64 {
        self.counts.get(path).copied().unwrap_or(0)
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns the memory used, in bytes.
    pub fn memory(&self) -> u64 {
        // A hash map fills at most seven of eight buckets, and has a control byte for each bucket.
        (self.counts.capacity() as u64 / 7 * 8) * (size_of::<(PathDescriptor, u64)>() as u64 + 1)
    }

    /// Returns true if the profile contains no path.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Iterates over all paths and their counts, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&PathDescriptor, u64)> {
        self.counts.iter().map(|(path, count)| (path, *count))
    }

    /// Returns all paths and their counts, hottest first. Paths with equal counts are ordered by descriptor.
    pub fn hottest_paths(&self) -> Vec<(PathDescriptor, u64)> {
        let mut paths: Vec<(PathDescriptor, u64)> = self.iter().map(|(path, count)| (*path, count)).collect();
        paths.sort_by_key(|(path, count)| (std::cmp::Reverse(*count), *path));
        paths
    }

    /// Adds all counts of another profile.
    pub fn merge(&mut self, other: &PathProfile) {
        other.iter().for_each(|(path, count)| self.add(path, count));
    }

    /// Removes all paths.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.total = 0;
    }
}

/// Computes the overlap of two profiles, in percent: for each path, the smaller of its two shares, summed over all paths. Returns `None`
/// if a profile is empty.
pub fn compute_overlap(one: &PathProfile, other: &PathProfile) -> Option<f64> {
    if one.total == 0 || other.total == 0 {
        return None;
    }
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let share = |count: u64, of: &PathProfile| count as f64 / of.total as f64;
    // The paths are sorted, because a floating-point sum in hash table order would not be reproducible.
    let shared: f64 = few.hottest_paths().iter().map(|(path, count)| share(*count, few).min(share(many.count(path), many))).sum();
    Some(100.0 * shared)
}

/// A fast hash for descriptors: each word is mixed in by a multiplication whose halves are combined.
#[derive(Clone, Copy, Debug, Default)]
struct DescriptorHasher(u64);

impl Hasher for DescriptorHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Address;

    fn profile(counts: &[(u64, u64)]) -> PathProfile {
        let mut profile = PathProfile::default();
        counts.iter().for_each(|(start, count)| profile.add(&PathDescriptor::start_at_address(Address(*start)), *count));
        profile
    }

    #[test]
    fn overlap_is_the_sum_of_the_smaller_shares() {
        let complete = profile(&[(1, 50), (2, 30), (3, 20)]);
        assert_eq!(compute_overlap(&complete, &complete), Some(100.0));
        assert_eq!(compute_overlap(&complete, &profile(&[(1, 1)])), Some(50.0));
        assert_eq!(compute_overlap(&profile(&[(1, 1), (3, 1)]), &complete), Some(70.0));
        assert_eq!(compute_overlap(&complete, &profile(&[(9, 4)])), Some(0.0));
        assert_eq!(compute_overlap(&complete, &PathProfile::default()), None);
    }

    #[test]
    fn merged_counts_are_added_and_hottest_comes_first() {
        let mut sum = profile(&[(1, 2), (2, 5)]);
        sum.merge(&profile(&[(1, 4), (3, 5)]));
        assert_eq!(sum.hottest_paths().iter().map(|(p, c)| (p.start.0, *c)).collect::<Vec<_>>(), [(1, 6), (2, 5), (3, 5)]);
        assert_eq!((sum.total(), sum.len()), (16, 3));
    }
}
