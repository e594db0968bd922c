//! The branch predictor of table 5.3: gshare and bimodal counters, counters that choose between the two (S. McFarling, *Combining branch
//! predictors*, WRL TN-36, 1993), a branch target buffer, and a return address stack.
//!
//! Branches are predicted at fetch; this also updates the history and the return stack. Because mispredicted paths are not modelled, this
//! is equivalent to a speculative history that is repaired at every misprediction. The calling model updates counters and targets at
//! commit. As in SimpleScalar (`bpred.c`), a branch trains those counters that predicted it. The prediction stores their indices, because
//! the history has changed by the time of the commit.

use super::parameters::{DirectionPredictor, PredictorParameters};
use crate::stream::{BranchKind, RetiredBranch};

/// Whether a branch was predicted correctly and, if not, when the correct path became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PredictionOutcome {
    /// The next instruction was fetched correctly.
    Right,
    /// The direction was correct, but the target was unknown until the branch was decoded.
    Misfetch,
    /// The correct path was unknown until the branch completed.
    Misprediction,
}

/// A direction prediction: the indices of the counters that made it, and what they predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectionLookup {
    gshare: usize,
    bimodal: usize,
    meta: usize,
    predicted_by_history: bool,
    predicted_by_address: bool,
    is_taken: bool,
}

/// What was predicted for a branch at fetch. [`Predictor::update`] needs it at commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prediction {
    pub outcome: PredictionOutcome,
    direction: Option<DirectionLookup>,
}

#[derive(Clone, Debug)]
pub(super) struct Predictor {
    parameters: PredictorParameters,
    gshare: Vec<u8>,
    bimodal: Vec<u8>,
    meta: Vec<u8>,
    history: u64,
    /// Address and target of each entry of the branch target buffer. Within a set, the most recently used entry is first.
    targets: Vec<(u64, u64)>,
    return_stack: Vec<u64>,
}

fn predicts_taken(counter: u8) -> bool {
    counter >= 2
}

fn train_counter(counter: &mut u8, is_increase: bool) {
    *counter = if is_increase { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
}

impl Predictor {
    pub fn new(parameters: &PredictorParameters) -> Predictor {
        // Counters start at weakly taken, as in SimpleScalar.
        Predictor {
            parameters: *parameters,
            gshare: vec![2; parameters.gshare_entries],
            bimodal: vec![2; parameters.bimodal_entries],
            meta: vec![2; parameters.meta_entries],
            history: 0,
            targets: vec![(u64::MAX, 0); parameters.target_entries],
            return_stack: Vec::new(),
        }
    }

    /// Predicts a branch that is fetched, and compares the prediction with the actual outcome.
    pub fn predict(&mut self, branch: &RetiredBranch) -> Prediction {
        let direction = (branch.kind == BranchKind::Conditional).then(|| self.look_up(branch.address.0));
        if direction.is_some() {
            self.history = self.history << 1 | u64::from(branch.is_taken);
        }
        Prediction { outcome: self.compare_outcome(branch, direction), direction }
    }

    fn compare_outcome(&mut self, branch: &RetiredBranch, direction: Option<DirectionLookup>) -> PredictionOutcome {
        use PredictionOutcome::{Misfetch, Misprediction, Right};
        let address = branch.address.0;
        match branch.kind {
            BranchKind::Return => {
                let predicted = self.return_stack.pop();
                if predicted == Some(branch.target.0) { Right } else { Misprediction }
            }
            BranchKind::Conditional => match (direction.is_some_and(|d| d.is_taken), branch.is_taken) {
                (true, true) if self.look_up_target(address) != Some(branch.target.0) => Misfetch,
                (predicted, taken) if predicted == taken => Right,
                _ => Misprediction,
            },
            BranchKind::Jump | BranchKind::Call => {
                self.push_return(branch);
                if self.look_up_target(address) == Some(branch.target.0) { Right } else { Misfetch }
            }
            BranchKind::IndirectJump | BranchKind::IndirectCall => {
                self.push_return(branch);
                if self.look_up_target(address) == Some(branch.target.0) { Right } else { Misprediction }
            }
        }
    }

    /// Trains the predictor with a branch that commits. `prediction` was made when the branch was fetched.
    pub fn update(&mut self, branch: &RetiredBranch, prediction: &Prediction) {
        let address = branch.address.0;
        if let Some(lookup) = prediction.direction {
            if lookup.predicted_by_history != lookup.predicted_by_address {
                train_counter(&mut self.meta[lookup.meta], lookup.predicted_by_history == branch.is_taken);
            }
            train_counter(&mut self.gshare[lookup.gshare], branch.is_taken);
            train_counter(&mut self.bimodal[lookup.bimodal], branch.is_taken);
        }
        if branch.is_taken && branch.kind != BranchKind::Return {
            let set = self.target_set(address);
            let place = set.iter().position(|(a, _)| *a == address).unwrap_or(set.len() - 1);
            set[..=place].rotate_right(1);
            set[0] = (address, branch.target.0);
        }
    }

    /// Looks up the counters for a conditional branch.
    fn look_up(&self, address: u64) -> DirectionLookup {
        let history = self.history & ((1 << self.parameters.history_bits) - 1);
        let index = |value: u64, size: usize| value as usize & (size - 1);
        let gshare = index(address ^ history, self.parameters.gshare_entries);
        let bimodal = index(address, self.parameters.bimodal_entries);
        let meta = index(address, self.parameters.meta_entries);
        let (predicted_by_history, predicted_by_address) = (predicts_taken(self.gshare[gshare]), predicts_taken(self.bimodal[bimodal]));
        let is_taken = match self.parameters.direction {
            DirectionPredictor::Bimodal => predicted_by_address,
            DirectionPredictor::Gshare => predicted_by_history,
            DirectionPredictor::Combined if predicts_taken(self.meta[meta]) => predicted_by_history,
            DirectionPredictor::Combined => predicted_by_address,
        };
        DirectionLookup { gshare, bimodal, meta, predicted_by_history, predicted_by_address, is_taken }
    }

    /// Returns the set of the branch target buffer that an address maps to.
    fn target_set(&mut self, address: u64) -> &mut [(u64, u64)] {
        let ways = self.parameters.target_associativity;
        let first = (address as usize & (self.parameters.target_entries / ways - 1)) * ways;
        &mut self.targets[first..first + ways]
    }

    fn look_up_target(&mut self, address: u64) -> Option<u64> {
        self.target_set(address).iter().find(|(a, _)| *a == address).map(|(_, target)| *target)
    }

    fn push_return(&mut self, branch: &RetiredBranch) {
        if branch.kind.is_call() {
            if self.return_stack.len() == self.parameters.return_stack {
                self.return_stack.remove(0);
            }
            self.return_stack.push(branch.fall_through.0);
        }
    }
}
