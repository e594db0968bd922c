//! General paths: a path consists of the last k branches, across loops and joins of the control flow.
//!
//! Source: C. Young and M. D. Smith, "Better global scheduling using path profiles" (MICRO 1998), section 3. An automaton is built lazily,
//! with one state for each path. A branch leads from a state to the path that consists of the last k branches including this one. A branch
//! therefore usually costs one hash look-up and one increment, whatever k is. Paths near the start of a frame have fewer than k branches.
//! Memory is proportional to the number of distinct paths, at most 2^k per loop.

use crate::SequenceError;
use crate::compress::hashing::BuildSymbolHasher;
use std::collections::{BTreeMap, HashMap};

/// Maximum length of a path, in branches.
pub const MAX_PATH_BRANCHES: usize = 1000;

/// A state of the automaton, which stands for the last branches of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralPathState(u32);

/// Counts of general paths.
#[derive(Clone, Debug)]
pub struct GeneralPaths {
    k: usize,
    /// For each state, its path and the number of executions of the path. The first state is the empty path.
    states: Vec<(Box<[u64]>, u64)>,
    numbers: HashMap<Box<[u64]>, u32>,
    next: HashMap<(u32, u64), u32, BuildSymbolHasher>,
}

impl GeneralPaths {
    /// Creates an automaton that counts paths of up to `k` branches. `k` must be from 1 to [`MAX_PATH_BRANCHES`].
    pub fn new(k: usize) -> Result<GeneralPaths, SequenceError> {
        if k == 0 || k > MAX_PATH_BRANCHES {
            return Err(SequenceError::invalid_parameter("branches of a general path", k, "1 to 1000"));
        }
        Ok(GeneralPaths { k, states: vec![(Box::default(), 0)], numbers: HashMap::new(), next: HashMap::default() })
    }

    /// Returns the state at the start of a frame.
    pub fn start(&self) -> GeneralPathState {
        GeneralPathState(0)
    }

    /// Records a branch: advances `position`, and counts the path that ends with the branch.
    pub fn push(&mut self, position: &mut GeneralPathState, branch: u64) {
        let key = (position.0, branch);
        let state = match self.next.get(&key) {
            Some(state) => *state,
            None => {
                let state = self.state_after(position.0, branch);
                self.next.insert(key, state);
                state
            }
        };
        self.states[state as usize].1 += 1;
        position.0 = state;
    }

    fn state_after(&mut self, state: u32, branch: u64) -> u32 {
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

    /// Returns the number of executions of each path, including the shorter ones near the start of a frame.
    pub fn counts(&self) -> BTreeMap<&[u64], u64> {
        self.states.iter().filter(|state| state.1 > 0).map(|state| (&*state.0, state.1)).collect()
    }
}
