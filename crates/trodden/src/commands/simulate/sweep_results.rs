//! What came of the configurations of an experiment.

use trodden_hardware::experiment::Effect;

/// What came of a configuration on a source.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Place among the sources.
    pub source: usize,
    /// Place among the configurations.
    pub configuration: usize,
    /// Overlap percentages.
    pub overlap: Option<f64>,
    /// Mean of all windows.
    pub dynamic_overlap: Option<f64>,
    /// Cycles, with a processor.
    pub cycles: Option<u64>,
    /// By the profiler, in percent, with a branch queue.
    pub slowdown: Option<f64>,
    /// The same with predictions frozen.
    pub frozen_slowdown: Option<f64>,
}

/// All that is shown.
pub struct Results {
    /// Names of sources.
    pub sources: Vec<String>,
    /// Names of factors.
    pub factors: Vec<String>,
    /// Levels of each factor, as text.
    pub levels: Vec<Vec<String>>,
    /// Levels of each configuration.
    pub combinations: Vec<Vec<usize>>,
    /// What came of them.
    pub outcomes: Vec<Outcome>,
    /// Effects on the mean overlap of all sources.
    pub effects: Vec<Effect>,
    /// What was accumulated.
    pub metric: String,
}

/// Effects by rank.
pub fn sorted(effects: &[Effect]) -> Vec<Effect> {
    let mut effects = effects.to_vec();
    effects.sort_by_key(|e| e.rank);
    effects
}
