//! Extracts the edge frequencies of a profile, which a later build uses as edge weights.

use crate::model::Profile;
use crate::paths::FunctionPaths;
use trodden_unit::{FunctionWeights, MapError};

impl Profile {
    /// Returns the number of executions of each edge, for all functions that were executed.
    pub fn weights(&self) -> Result<FunctionWeights, MapError> {
        let mut weights = FunctionWeights::default();
        for (_, unit, function) in self.functions() {
            let paths = FunctionPaths::decode(function, unit.counts_of(function))?;
            if paths.edges.iter().any(|n| *n > 0) {
                weights.add(&function.name, function.shape, &paths.edges);
            }
        }
        Ok(weights)
    }
}
