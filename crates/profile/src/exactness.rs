//! Reasons why a profile's counts are inexact or incomplete: paths that some kinds of observation omit ([`observe`]), and lost data.
//! [`crate::sampling`] describes sampled counts.

use crate::model::{Profile, Run, UnitProfile};
use crate::observe;
use trodden_unit::{FunctionMap, UnitMap, parts};

pub use crate::observe::InexactnessReason;

/// Returns the reasons that follow from how the units were built, whatever their counts are.
pub fn inexactness_of_units<'a>(maps: impl Iterator<Item = &'a UnitMap>) -> Vec<InexactnessReason> {
    collect(maps.map(|map| (map, 0)), |_, _| 0)
}

impl Profile {
    /// Returns true if a path of the function that has no count may have been executed nevertheless, because counts may be missing.
    pub fn may_miss_executions(&self, unit: &UnitProfile, function: &FunctionMap) -> bool {
        self.cannot_compare_paths(unit, function) || [self.run.lost, self.run.interrupted, self.run.diverged] != [0; 3]
    }

    /// Returns whether counts of the function's paths must not be compared with each other: the function is sampled, only some of its paths
    /// are counted, or the paths of some executions are unknown.
    pub fn cannot_compare_paths(&self, unit: &UnitProfile, function: &FunctionMap) -> bool {
        let is_sampled = self.sampling.as_ref().is_some_and(|sampling| match sampling.branches() {
            Some(branches) => !branches.is_complete(),
            None => unit.map.experiment.is_sampled(),
        });
        is_sampled || unit.map.has_times() || function.is_partial() || unit.unattributed(function) > 0
    }

    /// Returns the reasons why counts are inexact or incomplete. The list is empty if all counts are exact.
    pub fn inexactness_reasons(&self) -> Vec<InexactnessReason> {
        let units: Vec<_> = self.images.iter().flat_map(|i| &i.units).collect();
        let mut out = collect(units.iter().enumerate().map(|(at, u)| (&*u.map, at)), |at, function| units[at].unattributed(function));
        let Run { lost, interrupted, diverged, .. } = self.run;
        let of_run = [
            (lost, InexactnessReason::Lost(lost)),
            (interrupted, InexactnessReason::Interrupted(interrupted)),
            (diverged, InexactnessReason::Diverged(diverged)),
        ];
        out.extend(of_run.into_iter().filter(|(number, _)| *number > 0).map(|(_, reason)| reason));
        out
    }
}

fn collect<'a>(
    maps: impl Iterator<Item = (&'a UnitMap, usize)>,
    unattributed: impl Fn(usize, &FunctionMap) -> u64,
) -> Vec<InexactnessReason> {
    let mut finders = observe::create_inexactness_finders();
    for (map, at) in maps {
        let functions: &[FunctionMap] = if parts::origin(map).is_none() { &map.functions } else { &[] };
        for finder in &mut finders {
            finder.visit_unit(map);
            functions.iter().for_each(|function| finder.visit_function(map, function, unattributed(at, function)));
        }
    }
    finders.iter_mut().flat_map(|finder| finder.collect_reasons()).collect()
}
