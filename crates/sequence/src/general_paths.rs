//! General paths: the last k branches as a path, whatever loops or joins lie between.
//!
//! Source: C. Young and M. D. Smith, "Better global scheduling using path profiles" (MICRO 1998), section 3. An automaton is built lazily:
//! its states are the paths seen, and a state and a branch lead to the state of the last k branches. So a known branch costs one hash
//! look-up and one count, whatever k is.
//!
//! Near the beginning of a frame a path has fewer than k branches. Memory grows with distinct paths, which may be many where branches are
//! independent: at most 2^k for each loop.

use crate::SequenceError;
use crate::compress::hashing::Mixing;
use std::collections::{BTreeMap, HashMap};

/// The greatest k.
pub const MOST_BRANCHES: usize = 1000;

/// A state: the last branches of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralPosition(u32);

/// Counts of general paths.
#[derive(Clone, Debug)]
pub struct GeneralPaths {
    k: usize,
    /// The branches and the count of each state; the first has none.
    states: Vec<(Box<[u64]>, u64)>,
    numbers: HashMap<Box<[u64]>, u32>,
    next: HashMap<(u32, u64), u32, Mixing>,
}

impl GeneralPaths {
    /// No paths, of up to `k` branches.
    ///
    /// # Errors
    /// `k` is zero or above [`MOST_BRANCHES`].
    pub fn new(k: usize) -> Result<GeneralPaths, SequenceError> {
        if k == 0 || k > MOST_BRANCHES {
            return Err(SequenceError::parameter("branches of a general path", k, "1 to 1000"));
        }
        Ok(GeneralPaths { k, states: vec![(Box::default(), 0)], numbers: HashMap::new(), next: HashMap::default() })
    }

    /// Where a frame begins.
    pub fn start(&self) -> GeneralPosition {
        GeneralPosition(0)
    }

    /// A branch is executed: the path that ends with it is counted.
    pub fn push(&mut self, position: &mut GeneralPosition, branch: u64) {
        let key = (position.0, branch);
        let state = match self.next.get(&key) {
            Some(state) => *state,
            None => {
                let state = self.state_behind(position.0, branch);
                self.next.insert(key, state);
                state
            }
        };
        self.states[state as usize].1 += 1;
        position.0 = state;
    }

    fn state_behind(&mut self, state: u32, branch: u64) -> u32 {
        let before = &self.states[state as usize].0;
        let kept = &before[before.len().saturating_sub(self.k - 1)..];
        let branches: Box<[u64]> = kept.iter().copied().chain([branch]).collect();
        let next = self.states.len() as u32;
        let number = *self.numbers.entry(branches.clone()).or_insert(next);
        if number == next {
            self.states.push((branches, 0));
        }
        number
    }

    /// How often each path ended, paths near the beginning of a frame among them.
    pub fn counts(&self) -> BTreeMap<&[u64], u64> {
        self.states.iter().filter(|state| state.1 > 0).map(|state| (&*state.0, state.1)).collect()
    }
}
