//! Minimal hot subpaths, of the sequence of paths alone, as they ended (`trodden patterns hot`). A path weighs one.

use super::numbers::{first, percent};
use super::recording::Opened;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::hot::{HotParameters, minimal_hot_subpaths};

/// Which subpaths are hot.
#[derive(Clone, Copy, Debug)]
pub struct HotQuestion {
    /// Paths of the shortest.
    pub shortest: usize,
    /// Paths of the longest.
    pub longest: usize,
    /// The least cost, in percent of all paths.
    pub threshold: f64,
    /// Results at most; 0 for all.
    pub top: usize,
}

/// Hot subpaths.
#[derive(Serialize)]
pub struct HotSubpaths {
    /// Events of paths.
    pub paths: u64,
    /// The least cost.
    pub threshold: u64,
    /// The subpaths.
    pub subpaths: Vec<HotSubpath>,
    /// Where paths run.
    pub sources: BTreeMap<String, String>,
}

/// A hot subpath.
#[derive(Serialize)]
pub struct HotSubpath {
    /// Its paths.
    pub events: Vec<String>,
    /// How often it is executed.
    pub frequency: u64,
    /// Its paths times its frequency.
    pub cost: u64,
    /// The same in percent of all paths.
    pub percent: f64,
}

impl HotQuestion {
    /// Checks that the parameters make sense.
    ///
    /// # Errors
    /// One is out of its range.
    pub fn check(&self) -> Result<()> {
        ensure!(self.threshold > 0.0 && self.threshold <= 100.0, "--threshold {}: more than 0, at most 100 percent", self.threshold);
        ensure!(self.shortest <= self.longest, "the shortest length {} is more than the longest {}", self.shortest, self.longest);
        Ok(())
    }
}

/// Finds hot subpaths.
///
/// # Errors
/// A parameter is out of its range.
pub fn hot(opened: &Opened, question: HotQuestion) -> Result<HotSubpaths> {
    question.check()?;
    let paths = opened.path_events();
    let threshold = ((paths as f64 * question.threshold / 100.0).ceil() as u64).max(1);
    let parameters = HotParameters { shortest: question.shortest, longest: question.longest, threshold: threshold.into() };
    let sequence = opened.grammar.retained(|symbol| opened.table.is_path(symbol))?;
    let found = minimal_hot_subpaths(&sequence, parameters, |_| 1)?;
    let subpaths: Vec<HotSubpath> = first(found, question.top)
        .into_iter()
        .map(|hot| HotSubpath {
            events: opened.table.labels(&hot.symbols),
            frequency: hot.frequency,
            cost: hot.cost as u64,
            percent: percent(hot.cost as u64, paths),
        })
        .collect();
    let sources = opened.table.sources(subpaths.iter().flat_map(|row| &row.events));
    Ok(HotSubpaths { paths, threshold, subpaths, sources })
}
