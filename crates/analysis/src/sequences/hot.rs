//! Finds minimal hot subpaths (`trodden-lab patterns hot`) in the sequence of completed paths. A subpath is hot if its length in paths
//! times its frequency reaches a threshold.

use super::numbers::{percent, take_top};
use super::recording::OpenedSequence;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::hot::{HotParameters, minimal_hot_subpaths};

/// Parameters of the search for hot subpaths.
#[derive(Clone, Copy, Debug)]
pub struct HotQuery {
    /// Minimum number of paths in a subpath.
    pub shortest: usize,
    /// Maximum number of paths in a subpath.
    pub longest: usize,
    /// Minimum cost of a hot subpath, in percent of all paths.
    pub threshold: f64,
    /// Maximum number of results; 0 for all.
    pub top: usize,
}

/// Hot subpaths.
#[derive(Serialize)]
pub struct HotSubpaths {
    /// Number of paths in the sequence.
    pub paths: u64,
    /// Minimum cost of a hot subpath.
    pub threshold: u64,
    /// The subpaths.
    pub subpaths: Vec<HotSubpathRow>,
    /// Source locations of the paths, by label.
    pub sources: BTreeMap<String, String>,
}

/// A hot subpath.
#[derive(Serialize)]
pub struct HotSubpathRow {
    /// The paths in the subpath.
    pub events: Vec<String>,
    /// Number of executions.
    pub frequency: u64,
    /// Number of paths in the subpath times its number of occurrences.
    pub cost: u64,
    /// Cost in percent of all paths.
    pub percent: f64,
}

impl HotQuery {
    /// Checks the ranges of the parameters.
    pub fn check_query(&self) -> Result<()> {
        ensure!(
            self.threshold > 0.0 && self.threshold <= 100.0,
            "--threshold {} is out of range: it must be above 0 and at most 100 percent",
            self.threshold
        );
        ensure!(
            self.shortest <= self.longest,
            "invalid range of lengths: the minimum {} is greater than the maximum {}",
            self.shortest,
            self.longest
        );
        Ok(())
    }
}

/// Finds the minimal hot subpaths of a sequence. Fails if a parameter is out of range.
pub fn find_hot_subpaths(opened: &OpenedSequence, question: HotQuery) -> Result<HotSubpaths> {
    question.check_query()?;
    let paths = opened.path_event_count();
    let threshold = ((paths as f64 * question.threshold / 100.0).ceil() as u64).max(1);
    let parameters = HotParameters { shortest: question.shortest, longest: question.longest, threshold: threshold.into() };
    let sequence = opened.grammar.with_symbols_retained(|symbol| opened.table.is_path(symbol))?;
    let found = minimal_hot_subpaths(&sequence, parameters, |_| 1)?;
    let subpaths: Vec<HotSubpathRow> = take_top(found, question.top)
        .into_iter()
        .map(|hot| HotSubpathRow {
            events: opened.table.labels(&hot.symbols),
            frequency: hot.frequency,
            cost: hot.cost as u64,
            percent: percent(hot.cost as u64, paths),
        })
        .collect();
    let sources = opened.table.sources(subpaths.iter().flat_map(|row| &row.events));
    Ok(HotSubpaths { paths, threshold, subpaths, sources })
}
