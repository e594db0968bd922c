//! Bug isolation: ranking paths by how well they distinguish failing runs from passing ones ([`SuspiciousnessFormula`]).
//!
//! In formulas, `F` and `S` are the numbers of failing and passing runs that took the path, and `NF` and `NS` the numbers of all failing
//! and passing runs; counts within a run do not matter. Unlike edges, paths can show that two branches fail only together. Among equal
//! scores, more important paths rank first, then paths whose edges all occur in passing runs ([`SuspiciousPath::edges_on_no_known_path`]).

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::DagEdgeId;
use trodden_profile::model::Profile;
use trodden_unit::{Identity, MapError};

/// Half-width of a 95 % confidence interval, in standard deviations.
const NORMAL_QUANTILE_97_5: f64 = 1.96;

/// Identifies a function by its unit's identity and its index in the unit's map.
pub type UnitFunction = (Identity, usize);

/// Formulas by which suspects are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspiciousnessFormula {
    /// Ochiai: `F / sqrt(NF (F + S))` (Abreu, Zoeteweij and van Gemund, TAIC-PART 2007).
    Ochiai,
    /// Tarantula: `(F/NF) / (F/NF + S/NS)` (Jones and Harrold, ASE 2005).
    Tarantula,
    /// Statistical importance (Liblit et al., PLDI 2005), see [`SuspiciousPath::importance`].
    Importance,
}

trodden_unit::spell! { SuspiciousnessFormula:
    SuspiciousnessFormula::Ochiai => "ochiai", "Similarity of the set of runs that took the path and the set of failing runs";
    SuspiciousnessFormula::Tarantula => "tarantula",
        "Share of failing runs that took the path, relative to the sum of both shares (failing, passing)";
    SuspiciousnessFormula::Importance => "importance",
        "How much the path raises the probability of failure, and how many failures it explains, with 95 % confidence";
}

/// Numbers of failing and passing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTally {
    /// Failing runs.
    pub failing: u64,
    /// Passing runs.
    pub passing: u64,
}

impl RunTally {
    /// Adds a run.
    pub fn add(&mut self, failed: bool) {
        *if failed { &mut self.failing } else { &mut self.passing } += 1;
    }

    /// Returns the Ochiai similarity of these runs and the failing runs in `all`: `F / sqrt(NF (F + S))`, from 0 to 1.
    pub fn ochiai(self, all: RunTally) -> f64 {
        let both = (all.failing * (self.failing + self.passing)) as f64;
        if both == 0.0 { 0.0 } else { self.failing as f64 / both.sqrt() }
    }

    /// Returns the share of failing runs, and the variance of this estimate.
    fn failure_share(self) -> (f64, f64) {
        let runs = (self.failing + self.passing) as f64;
        if runs == 0.0 {
            return (0.0, 0.0);
        }
        let share = self.failing as f64 / runs;
        (share, share * (1.0 - share) / runs)
    }
}

/// Accumulates how many failing and passing runs took each path.
#[derive(Debug, Default)]
pub struct FailureIsolation {
    all: RunTally,
    functions: BTreeMap<UnitFunction, FunctionObservations>,
}

#[derive(Debug, Default)]
struct FunctionObservations {
    executed: RunTally,
    /// The runs that took each path. The key is whether the path was completed, and its number.
    paths: BTreeMap<(bool, u64), RunTally>,
    /// The runs that took each edge of the acyclic graph.
    edges: BTreeMap<u32, RunTally>,
}

/// A path that failing runs took.
#[derive(Clone, Debug, PartialEq)]
pub struct SuspiciousPath {
    /// The path's function.
    pub function: UnitFunction,
    /// The path's number.
    pub id: u64,
    /// True for a completed path, false for an unfinished one.
    pub complete: bool,
    /// Runs that took the path.
    pub runs: RunTally,
    /// Runs that executed the path's function.
    pub executed: RunTally,
    /// Number of the path's edges that no passing run took.
    pub new_edges: u64,
    /// `F / sqrt(NF (F + S))`, from 0 to 1.
    pub ochiai: f64,
    /// `(F/NF) / (F/NF + S/NS)`, from 0 to 1.
    pub tarantula: f64,
    /// Failure probability of runs that took the path, minus the failure probability of runs that executed its function (-1 to 1), and the
    /// half-width of the difference's 95 % confidence interval.
    pub increase: (f64, f64),
    /// Harmonic mean of the increase and of `log(F + 1) / log(NF + 1)`, from 0 to 1. As published, it is 0 unless the increase is above
    /// zero with 95 % confidence. The published formula lacks the `+ 1`, so a single failure would have no value.
    pub importance: f64,
}

impl SuspiciousPath {
    /// Returns the path's score by a formula.
    pub fn score(&self, by: SuspiciousnessFormula) -> f64 {
        match by {
            SuspiciousnessFormula::Ochiai => self.ochiai,
            SuspiciousnessFormula::Tarantula => self.tarantula,
            SuspiciousnessFormula::Importance => self.importance,
        }
    }
}

impl FailureIsolation {
    /// Adds a run. If a function's map is corrupt, this fails and the run is not added.
    pub fn add(&mut self, profile: &Profile, failed: bool) -> Result<(), MapError> {
        let mut seen = Vec::new();
        for unit in profile.images.iter().flat_map(|i| &i.units) {
            for (at, function) in unit.map.functions.iter().enumerate() {
                if let Some(mut paths) = unit.executed_paths(function)? {
                    if unit.map.has_times() || function.is_partial() {
                        // Unfinished paths are computed from the counts of all paths, and this function counts only some.
                        paths.unfinished.clear();
                    }
                    seen.push(((unit.unit, at), paths));
                }
            }
        }
        self.all.add(failed);
        // A unit that is part of several images counts once.
        let mut executed = BTreeMap::<UnitFunction, (BTreeSet<(bool, u64)>, BTreeSet<DagEdgeId>)>::new();
        for (key, paths) in seen {
            let (ids, edges) = executed.entry(key).or_default();
            for path in paths.all().filter(|p| p.count > 0) {
                ids.insert((path.is_complete(), path.id));
                edges.extend(path.path);
            }
        }
        for (key, (ids, edges)) in executed {
            let function = self.functions.entry(key).or_default();
            function.executed.add(failed);
            ids.into_iter().for_each(|id| function.paths.entry(id).or_default().add(failed));
            edges.into_iter().for_each(|e| function.edges.entry(e.0).or_default().add(failed));
        }
        Ok(())
    }

    /// Returns how many failing and passing runs were added.
    pub fn runs(&self) -> RunTally {
        self.all
    }

    /// Returns the paths that failing runs took, most suspicious first. `edges` returns the edges of a path in the acyclic graph.
    pub fn suspects(&self, by: SuspiciousnessFormula, edges: impl Fn(UnitFunction, u64) -> Vec<DagEdgeId>) -> Vec<SuspiciousPath> {
        let mut suspects = Vec::new();
        for (key, seen) in &self.functions {
            for ((complete, id), runs) in seen.paths.iter().filter(|(_, runs)| runs.failing > 0) {
                let is_new = |e: &DagEdgeId| seen.edges.get(&e.0).is_some_and(|t| t.passing == 0);
                let new_edges = edges(*key, *id).iter().filter(|e| is_new(e)).count() as u64;
                suspects.push(self.suspect(*key, *id, *complete, *runs, seen.executed, new_edges));
            }
        }
        let rank = |a: &SuspiciousPath, b: &SuspiciousPath| {
            let by_score = b.score(by).total_cmp(&a.score(by));
            by_score
                .then(b.importance.total_cmp(&a.importance))
                .then((a.new_edges > 0).cmp(&(b.new_edges > 0)))
                .then(b.complete.cmp(&a.complete))
        };
        suspects.sort_by(rank);
        suspects
    }

    fn suspect(
        &self,
        function: UnitFunction,
        id: u64,
        complete: bool,
        runs: RunTally,
        executed: RunTally,
        new_edges: u64,
    ) -> SuspiciousPath {
        let (f, s) = (runs.failing as f64, runs.passing as f64);
        let (nf, ns) = (self.all.failing.max(1) as f64, self.all.passing.max(1) as f64);
        let ((failure, variance), (context, context_variance)) = (runs.failure_share(), executed.failure_share());
        let (increase, half) = (failure - context, NORMAL_QUANTILE_97_5 * (variance + context_variance).sqrt());
        let share = (f + 1.0).ln() / (nf + 1.0).ln();
        let importance = if increase - half > 0.0 { 2.0 / (1.0 / increase + 1.0 / share) } else { 0.0 };
        SuspiciousPath {
            function,
            id,
            complete,
            runs,
            executed,
            new_edges,
            ochiai: runs.ochiai(self.all),
            tarantula: (f / nf) / (f / nf + s / ns),
            increase: (increase, half),
            importance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolation(all: (u64, u64)) -> FailureIsolation {
        FailureIsolation { all: RunTally { failing: all.0, passing: all.1 }, ..FailureIsolation::default() }
    }

    fn suspect(all: (u64, u64), runs: (u64, u64), executed: (u64, u64)) -> SuspiciousPath {
        let tally = |(failing, passing)| RunTally { failing, passing };
        isolation(all).suspect((Identity([0; 16]), 0), 0, true, tally(runs), tally(executed), 0)
    }

    #[test]
    fn scores_match_their_formulas() {
        // All failing runs and no passing run take this path.
        let one = suspect((4, 12), (4, 0), (4, 12));
        assert_eq!((one.ochiai, one.tarantula), (1.0, 1.0));
        assert!((one.increase.0 - 0.75).abs() < 1e-12);
        // sqrt(0.25 * 0.75 / 16) = 0.108253...
        assert!((one.increase.1 - 1.96 * 0.108_253_175).abs() < 1e-6);
        assert!((one.importance - 2.0 / (1.0 / 0.75 + 1.0)).abs() < 1e-12);
        // Half of the failing runs and a quarter of the passing runs take this path.
        let other = suspect((4, 12), (2, 3), (4, 12));
        assert!((other.ochiai - 2.0 / 20f64.sqrt()).abs() < 1e-12);
        assert!((other.tarantula - 0.5 / 0.75).abs() < 1e-12);
        assert_eq!(other.importance, 0.0, "an increase of 0.15 in 5 runs is not significant");
    }

    #[test]
    fn path_that_every_run_takes_is_not_suspicious() {
        let all = suspect((4, 12), (4, 12), (4, 12));
        assert_eq!((all.tarantula, all.increase.0, all.importance), (0.5, 0.0, 0.0));
        let single = suspect((1, 9), (1, 0), (1, 9));
        assert!(single.importance > 0.9 && single.ochiai == 1.0);
    }
}
