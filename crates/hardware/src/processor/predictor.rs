//! The branch predictor of table 5.3: gshare and bimodal counters with a choice between them, a branch target buffer, a
//! return address stack.
//!
//! Predictions are made at fetch. Counters, history and targets are updated at commit, by the model that calls; the
//! return stack is updated at fetch. Updating at once would give a third fewer mispredictions.
//!
//! Source of the combination: S. McFarling, *Combining branch predictors*, WRL TN-36, 1993.

use super::parameters::{DirectionPredictor, PredictorParameters};
use crate::stream::{BranchKind, RetiredBranch};

/// How good the prediction of a branch was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PredictionOutcome {
    /// What was fetched next was right.
    Right,
    /// The direction was right, and the target is known as soon as the branch is decoded.
    Misfetch,
    /// The right path is known when the branch completes.
    Misprediction,
}

/// The predictor.
#[derive(Clone, Debug)]
pub(super) struct Predictor {
    parameters: PredictorParameters,
    gshare: Vec<u8>,
    bimodal: Vec<u8>,
    meta: Vec<u8>,
    history: u64,
    /// Of each set address and target, most recently used first.
    targets: Vec<(u64, u64)>,
    returns: Vec<u64>,
}

/// A counter of two bits says yes.
fn says_yes(counter: u8) -> bool {
    counter >= 2
}

fn train(counter: &mut u8, outcome: bool) {
    *counter = if outcome { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
}

impl Predictor {
    pub fn new(parameters: &PredictorParameters) -> Predictor {
        // Weakly taken, as SimpleScalar begins.
        Predictor {
            parameters: *parameters,
            gshare: vec![2; parameters.gshare_entries],
            bimodal: vec![2; parameters.bimodal_entries],
            meta: vec![2; parameters.meta_entries],
            history: 0,
            targets: vec![(u64::MAX, 0); parameters.target_entries],
            returns: Vec::new(),
        }
    }

    /// Predicts a branch, and compares with what it did.
    pub fn predict(&mut self, branch: &RetiredBranch) -> PredictionOutcome {
        use PredictionOutcome::{Misfetch, Misprediction, Right};
        let address = branch.address.0;
        match branch.kind {
            BranchKind::Return => {
                let predicted = self.returns.pop();
                if predicted == Some(branch.target.0) { Right } else { Misprediction }
            }
            BranchKind::Conditional => match (self.direction(address), branch.is_taken) {
                (true, true) if self.target(address) != Some(branch.target.0) => Misfetch,
                (predicted, taken) if predicted == taken => Right,
                _ => Misprediction,
            },
            BranchKind::Jump | BranchKind::Call => {
                self.call(branch);
                if self.target(address) == Some(branch.target.0) { Right } else { Misfetch }
            }
            BranchKind::IndirectJump | BranchKind::IndirectCall => {
                self.call(branch);
                if self.target(address) == Some(branch.target.0) { Right } else { Misprediction }
            }
        }
    }

    /// Learns what a branch did, at its commit.
    pub fn update(&mut self, branch: &RetiredBranch) {
        let address = branch.address.0;
        if branch.kind == BranchKind::Conditional {
            let [gshare, bimodal, meta] = self.places(address);
            let (by_history, by_address) = (says_yes(self.gshare[gshare]), says_yes(self.bimodal[bimodal]));
            if by_history != by_address {
                train(&mut self.meta[meta], by_history == branch.is_taken);
            }
            train(&mut self.gshare[gshare], branch.is_taken);
            train(&mut self.bimodal[bimodal], branch.is_taken);
            self.history = self.history << 1 | u64::from(branch.is_taken);
        }
        if branch.is_taken && branch.kind != BranchKind::Return {
            let set = self.set(address);
            let place = set.iter().position(|(a, _)| *a == address).unwrap_or(set.len() - 1);
            set[..=place].rotate_right(1);
            set[0] = (address, branch.target.0);
        }
    }

    fn direction(&self, address: u64) -> bool {
        let [gshare, bimodal, meta] = self.places(address);
        let (by_history, by_address) = (says_yes(self.gshare[gshare]), says_yes(self.bimodal[bimodal]));
        match self.parameters.direction {
            DirectionPredictor::Bimodal => by_address,
            DirectionPredictor::Gshare => by_history,
            DirectionPredictor::Combined if says_yes(self.meta[meta]) => by_history,
            DirectionPredictor::Combined => by_address,
        }
    }

    /// Places in the three tables.
    fn places(&self, address: u64) -> [usize; 3] {
        let history = self.history & ((1 << self.parameters.history_bits) - 1);
        let place = |value: u64, size: usize| value as usize & (size - 1);
        [
            place(address ^ history, self.parameters.gshare_entries),
            place(address, self.parameters.bimodal_entries),
            place(address, self.parameters.meta_entries),
        ]
    }

    fn set(&mut self, address: u64) -> &mut [(u64, u64)] {
        let ways = self.parameters.target_associativity;
        let first = (address as usize & (self.parameters.target_entries / ways - 1)) * ways;
        &mut self.targets[first..first + ways]
    }

    fn target(&mut self, address: u64) -> Option<u64> {
        self.set(address).iter().find(|(a, _)| *a == address).map(|(_, target)| *target)
    }

    fn call(&mut self, branch: &RetiredBranch) {
        if branch.kind.is_call() {
            if self.returns.len() == self.parameters.return_stack {
                self.returns.remove(0);
            }
            self.returns.push(branch.fall_through.0);
        }
    }
}
