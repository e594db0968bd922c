//! Sets of the edges or nodes of one graph, with a bit for each.
//!
//! A set has a *universe*: the number of edges or nodes that the graph has. Sets that are combined or compared have the same universe.
//! Invariant: the bits above the universe are zero.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::marker::PhantomData;

const WORD_BITS: usize = u64::BITS as usize;

/// An edge or a node of a graph, which is identified by a number from 0.
pub trait DenseIndex: Copy {
    /// Returns the edge or node with the given number.
    fn from_index(index: usize) -> Self;

    /// Returns the number of the edge or node.
    fn to_index(self) -> usize;
}

/// A set of edges or nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "StoredSet", bound = "")]
pub struct DenseSet<I> {
    universe: usize,
    words: Vec<u64>,
    #[serde(skip)]
    index: PhantomData<fn() -> I>,
}

/// A set as it was stored, which may be corrupt.
#[derive(Deserialize)]
struct StoredSet {
    universe: usize,
    words: Vec<u64>,
}

impl<I> TryFrom<StoredSet> for DenseSet<I> {
    type Error = &'static str;

    fn try_from(StoredSet { universe, words }: StoredSet) -> Result<DenseSet<I>, &'static str> {
        let unused = words.len() * WORD_BITS - universe.min(words.len() * WORD_BITS);
        let is_sound =
            words.len() == universe.div_ceil(WORD_BITS) && words.last().is_none_or(|last| last.leading_zeros() as usize >= unused);
        if is_sound { Ok(DenseSet { universe, words, index: PhantomData }) } else { Err("a set has members outside of its universe") }
    }
}

impl<I: DenseIndex> DenseSet<I> {
    /// Creates a set without members.
    pub fn empty(universe: usize) -> DenseSet<I> {
        DenseSet { universe, words: vec![0; universe.div_ceil(WORD_BITS)], index: PhantomData }
    }

    /// Creates the set of all edges or nodes.
    pub fn full(universe: usize) -> DenseSet<I> {
        let mut set = DenseSet { words: vec![u64::MAX; universe.div_ceil(WORD_BITS)], ..DenseSet::empty(universe) };
        let unused = set.words.len() * WORD_BITS - universe;
        if let Some(last) = set.words.last_mut() {
            *last >>= unused;
        }
        set
    }

    /// Creates the set of the edges or nodes for which `is_member` returns true. Calls it once for each, in ascending order.
    pub fn from_fn(universe: usize, mut is_member: impl FnMut(I) -> bool) -> DenseSet<I> {
        let mut set = DenseSet::empty(universe);
        for (at, word) in set.words.iter_mut().enumerate() {
            for bit in 0..WORD_BITS.min(universe - at * WORD_BITS) {
                *word |= u64::from(is_member(I::from_index(at * WORD_BITS + bit))) << bit;
            }
        }
        set
    }

    /// Creates the set of the given members. Panics if a member is not below `universe`.
    pub fn from_members(universe: usize, members: impl IntoIterator<Item = I>) -> DenseSet<I> {
        let mut set = DenseSet::empty(universe);
        set.extend(members);
        set
    }

    /// Returns the number of edges or nodes of the graph.
    pub fn universe(&self) -> usize {
        self.universe
    }

    /// Returns whether `member` is in the set, which is false for a member outside of the universe.
    pub fn contains(&self, member: I) -> bool {
        let at = member.to_index();
        self.words.get(at / WORD_BITS).is_some_and(|word| word >> (at % WORD_BITS) & 1 != 0)
    }

    /// Adds a member, and returns whether it is new. Panics if it is not below the universe.
    pub fn insert(&mut self, member: I) -> bool {
        let at = member.to_index();
        assert!(at < self.universe, "{at} is outside of a set of {}", self.universe);
        let (word, bit) = (&mut self.words[at / WORD_BITS], 1 << (at % WORD_BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a member, and returns whether it was in the set.
    pub fn remove(&mut self, member: I) -> bool {
        let (had, at) = (self.contains(member), member.to_index());
        if had {
            self.words[at / WORD_BITS] &= !(1 << (at % WORD_BITS));
        }
        had
    }

    /// Returns the number of members.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Returns whether all edges or nodes are members.
    pub fn is_full(&self) -> bool {
        self.count() == self.universe
    }

    /// Returns the members in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = I> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let without_lowest = |left: &u64| Some(left & (left - 1)).filter(|left| *left != 0);
            let bits = std::iter::successors(Some(*word).filter(|word| *word != 0), without_lowest);
            bits.map(move |left| I::from_index(at * WORD_BITS + left.trailing_zeros() as usize))
        })
    }

    /// Adds the members of another set with the same universe.
    pub fn union_with(&mut self, other: &DenseSet<I>) {
        debug_assert_eq!(self.universe, other.universe);
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }
}

impl<I: DenseIndex> Extend<I> for DenseSet<I> {
    fn extend<T: IntoIterator<Item = I>>(&mut self, members: T) {
        members.into_iter().for_each(|member| {
            self.insert(member);
        });
    }
}

/// Orders sets like lists of booleans: at the lowest edge or node that is in only one of the two sets, the set without it is less.
impl<I: Eq> Ord for DenseSet<I> {
    fn cmp(&self, other: &DenseSet<I>) -> Ordering {
        let own = self.words.iter().map(|word| word.reverse_bits());
        own.cmp(other.words.iter().map(|word| word.reverse_bits())).then(self.universe.cmp(&other.universe))
    }
}

impl<I: Eq> PartialOrd for DenseSet<I> {
    fn partial_cmp(&self, other: &DenseSet<I>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Element(u32);

    impl DenseIndex for Element {
        fn from_index(index: usize) -> Element {
            Element(index as u32)
        }

        fn to_index(self) -> usize {
            self.0 as usize
        }
    }

    type ElementSet = DenseSet<Element>;

    fn set(universe: usize, members: &[u32]) -> ElementSet {
        ElementSet::from_members(universe, members.iter().copied().map(Element))
    }

    #[test]
    fn members_are_added_removed_and_listed_in_order() {
        let mut edges = set(130, &[129, 0, 64, 63]);
        assert!(!edges.insert(Element(64)) && edges.insert(Element(7)) && edges.remove(Element(0)) && !edges.remove(Element(500)));
        assert_eq!(edges.iter().map(|e| e.0).collect::<Vec<_>>(), [7, 63, 64, 129]);
        assert_eq!((edges.count(), edges.universe(), edges.contains(Element(129)), edges.contains(Element(130))), (4, 130, true, false));
        edges.union_with(&set(130, &[0, 7]));
        assert_eq!(edges, ElementSet::from_fn(130, |e| [0, 7, 63, 64, 129].contains(&e.0)));
    }

    #[test]
    fn full_and_empty_sets_agree_with_their_members() {
        for universe in [0, 1, 63, 64, 65, 128, 200] {
            let (full, empty) = (ElementSet::full(universe), ElementSet::empty(universe));
            assert!(full.is_full() && empty.is_empty() && full == ElementSet::from_fn(universe, |_| true), "{universe}");
            assert_eq!((full.iter().count(), empty.iter().count(), full.contains(Element(universe as u32))), (universe, 0, false));
        }
    }

    #[test]
    #[should_panic(expected = "5 is outside of a set of 5")]
    fn members_outside_of_the_universe_are_rejected() {
        ElementSet::empty(5).insert(Element(5));
    }

    #[test]
    fn sets_are_ordered_like_lists_of_booleans() {
        let sets = [set(70, &[]), set(70, &[69]), set(70, &[1]), set(70, &[0]), set(70, &[0, 69]), set(70, &[0, 1]), set(70, &[64, 65])];
        let list = |set: &ElementSet| (0..70).map(|e| set.contains(Element(e))).collect::<Vec<bool>>();
        for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
            assert_eq!(a.cmp(b), list(a).cmp(&list(b)), "{a:?} {b:?}");
        }
    }

    #[test]
    fn stored_sets_with_members_outside_of_the_universe_are_rejected() {
        let stored = |universe, words: &[u64]| ElementSet::try_from(StoredSet { universe, words: words.to_vec() });
        assert_eq!(stored(65, &[1, 1]), Ok(set(65, &[0, 64])));
        assert_eq!(stored(0, &[]), Ok(set(0, &[])));
        for (universe, words) in [(65, &[1, 2][..]), (64, &[1, 1]), (65, &[1]), (usize::MAX, &[]), (0, &[0])] {
            assert!(stored(universe, words).is_err(), "{universe} {words:?}");
        }
    }
}
