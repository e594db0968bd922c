//! Plans that go by paths: those that are known, and those that are interesting; and the verification of every numbering before it is used.

use super::{Error, Unit};
use crate::describe::FunctionCfg;
use crate::interesting::{self, InterestingRequest};
use crate::llvm::Value;
use crate::options::{ExperimentScheme, PluginOptions};
use crate::residual;
use crate::sample::PlannedFunction;
use crate::stream;
use trodden_flow::program::verify::verify_numbering;
use trodden_flow::residual::ResidualInput;
use trodden_flow::{Plan, ProbeProgram, ResidualPlan};
use trodden_selective::plan::{NoInterestingPlan, Wish};
use trodden_unit::experiment::{Paths, Recognition};
use trodden_unit::{KnownFunction, NameVersion, Skipped, shape};

impl Unit {
    /// Plans again where the paths that are known, or interesting, decide.
    pub(super) fn plan_for_paths(&mut self, planned: &mut PlannedFunction, versions: bool) -> Result<(), Error> {
        let name = planned.function.name();
        let other = || Error::OtherPaths(name.clone());
        if let Some(known) = self.known_of(&name, &planned.cfg).cloned() {
            let preferential = self.preferential_program(planned, &known)?;
            let region = || residual_program(planned, &known, &self.options, versions);
            planned.program = preferential.or_else(region).ok_or_else(other)?;
        }
        // A stream has all paths of the functions that are named.
        if self.options.interesting.is_none() || self.options.stream {
            return Ok(());
        }
        let Some(asked) = self.interesting_of(&name, &planned.cfg).cloned() else {
            let reason = "it has another shape than the function of its name whose paths are interesting".into();
            self.map.instead.push(Skipped { name, reason });
            return Ok(());
        };
        let ids: Vec<u64> = asked.known.iter().map(|(id, _)| *id).collect();
        let entries = self.options.plan.entries;
        let (dag, numbering) = Plan::cut_as(&planned.graph, &asked.cuts, entries, asked.paths).ok_or_else(other)?;
        let excluded = planned.cfg.excluded();
        let scheme = match self.options.experiment.scheme() {
            ExperimentScheme::Interesting(scheme) => Some(scheme),
            _ => None,
        };
        let request = InterestingRequest {
            graph: &planned.graph,
            frequencies: &planned.frequencies,
            wish: Wish { scheme: scheme.unwrap_or(trodden_flow::NumberingScheme::BallLarus), ids: &ids, excluded: &excluded },
            options: &self.options.plan,
            time_limit_s: self.options.time_limit_s,
        };
        // With the same cuts paths have the numbers that they had; where there are too many for an array, those of the first plan.
        let few = numbering.paths() <= self.options.plan.max_paths;
        let elsewhere = (!few).then(|| self.cut_elsewhere(numbering.paths()));
        let in_full = few.then(|| interesting::all_paths(&request, dag.clone(), numbering.clone()));
        let reason = match scheme.map(|_| interesting::plan(&request, dag, numbering)) {
            Some(Ok(program)) => {
                planned.program = program;
                return Ok(());
            }
            Some(Err(NoInterestingPlan::Wrong(what))) => return Err(Error::Wrong { function: name, what }),
            Some(Err(why)) => Some(why.to_string()),
            None => None,
        };
        let reason = [reason, elsewhere].into_iter().flatten().collect::<Vec<String>>().join("; ");
        if !reason.is_empty() {
            self.map.instead.push(Skipped { name, reason });
        }
        planned.program = in_full.unwrap_or_else(|| planned.program.clone());
        Ok(())
    }

    /// The program that recognises known paths by preferential numbering, where that is asked for. If their numbers do not fit, the map
    /// says that they are recognised by their region.
    fn preferential_program(&mut self, planned: &PlannedFunction, known: &KnownFunction) -> Result<Option<ProbeProgram>, Error> {
        let by = self.options.experiment.paths();
        if !matches!(by, Paths::Unknown { by: Recognition::Preferential, .. }) || known.known.is_empty() {
            return Ok(None);
        }
        let name = planned.function.name();
        let numbered = Plan::cut_as(&planned.graph, &known.cuts, self.options.plan.entries, known.paths);
        let (dag, numbering) = numbered.ok_or_else(|| Error::OtherPaths(name.clone()))?;
        let ids: Vec<u64> = known.known.iter().map(|(id, _)| *id).collect();
        let request = InterestingRequest {
            graph: &planned.graph,
            frequencies: &planned.frequencies,
            wish: Wish { scheme: trodden_flow::NumberingScheme::Ppp, ids: &ids, excluded: &[] },
            options: &self.options.plan,
            time_limit_s: 0,
        };
        match interesting::plan_unknown(&request, dag, numbering) {
            Ok(program) => Ok(Some(program)),
            Err(NoInterestingPlan::Wrong(what)) => Err(Error::Wrong { function: name, what }),
            Err(why) => {
                let reason = format!("its tested paths are recognised by their region, not by their numbers: {why}");
                self.map.instead.push(Skipped { name, reason });
                Ok(None)
            }
        }
    }

    /// What is said of a function whose paths do not have the numbers by which they are given.
    fn cut_elsewhere(&self, paths: u64) -> String {
        format!(
            "it has {paths} paths where max-paths is {}, so they are cut into shorter ones, whose numbers are others than those of \
                the interesting paths",
            self.options.plan.max_paths
        )
    }

    /// Whether paths of a function are interesting, or of all functions.
    pub(super) fn is_interesting(&self, function: Value) -> bool {
        let (unit, name) = (&self.map.source, function.name());
        let is_on_segments = self.options.segments.as_ref().is_none_or(|set| set.names(unit, &name));
        let is_named = self.options.interesting.as_ref().is_none_or(|paths| paths.names(unit, &name));
        // Where frames may be cut off and control comes back, a stream has to say so, whatever functions it is of.
        is_on_segments && (is_named || self.options.stream && stream::catches(function))
    }

    /// Which of a function's paths are interesting.
    pub(super) fn interesting_of(&self, name: &str, cfg: &FunctionCfg) -> Option<&KnownFunction> {
        let asked = self.options.interesting.as_ref()?;
        let version = NameVersion { shape: shape(&cfg.blocks, &cfg.edges), code: cfg.code };
        asked.like(&self.map.source, name, version).filter(|k| k.edges.len() == cfg.edges.len())
    }
}

/// Verifies the numbering of a program; those of interesting paths are verified where they are made, too.
pub(super) fn verify(planned: &PlannedFunction) -> Result<(), Error> {
    verify_numbering(&planned.program).map_err(|what| Error::Wrong { function: planned.function.name(), what })
}

/// The program that counts what is not known, by the numbering by which known paths were counted: in several versions of
/// the code, if there may be any. None if the function has other paths.
fn residual_program(planned: &PlannedFunction, known: &KnownFunction, options: &PluginOptions, versions: bool) -> Option<ProbeProgram> {
    let PlannedFunction { graph, frequencies, .. } = planned;
    let (dag, numbering) = Plan::cut_as(graph, &known.cuts, options.plan.entries, known.paths)?;
    let excluded = planned.cfg.excluded();
    let (paths, single) = (&known.known, &residual::dispatch_blocks(&planned.cfg));
    let residual = ResidualPlan::new(&dag, &numbering, ResidualInput { paths, single, excluded: &excluded });
    let probes = residual.probes(&dag, &numbering, graph, frequencies);
    let plan = Plan { dag, numbering, probes, partial: None, part: None };
    Some(if versions { residual.versions(graph, &plan) } else { residual.with_lookups(graph, &plan) })
}
