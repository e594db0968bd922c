//! Converts all functions of a program to procedures, the input for dividing their paths among instrumented copies: paths, frequencies, and
//! call sites.

use super::calls::CallSiteCounts;
use super::calls_of_program::estimate_calls_of_program;
use super::{build_edge_procedure, build_estimated_procedure, build_measured_procedure};
use crate::model::{Profile, UnitProfile};
use crate::paths::FunctionPaths;
use std::collections::HashMap;
use trodden_partition::Procedure;
use trodden_text::names::DemangledName;
use trodden_text::words::plural;
use trodden_unit::{Frame, FunctionMap, Identity, MapError, UnitMap};

/// Reason why a program cannot be partitioned using a profile.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum ProcedureError {
    #[error("the profile has none of the program's functions, so it is of a different program or build. Record the given program")]
    OtherProgram,
    #[error(
        "the profile is of a different variant of the program, in which {} different paths (the first is `{first}`). Record the given \
         program",
        plural(*functions as u128, "function has", "functions have")
    )]
    OtherVariant { functions: usize, first: String },
    #[error(transparent)]
    Map(#[from] MapError),
}

/// Converts all functions of a program. Frequencies come from the profile or, without one, are estimated. Fails if the profile is of a
/// different program or variant, or if a map is corrupt.
pub fn procedures(units: &[(Frame, UnitMap)], profile: Option<&Profile>) -> Result<Vec<Procedure>, ProcedureError> {
    let counted = profile.map(ProfiledFunctions::from_profile);
    let functions = || units.iter().enumerate().flat_map(|(at, (frame, map))| map.functions.iter().map(move |f| (at, frame, map, f)));
    if counted.as_ref().is_some_and(|known| functions().all(|(_, frame, map, f)| known.function(frame, map, f).is_none())) {
        return Err(ProcedureError::OtherProgram);
    }
    let is_other = |known: &ProfiledFunctions| {
        functions().filter(|(_, frame, map, f)| known.has_other_paths(frame, map, f)).map(|(.., f)| f).collect()
    };
    let others: Vec<&FunctionMap> = counted.as_ref().map(is_other).unwrap_or_default();
    if let [first, ..] = others[..] {
        return Err(ProcedureError::OtherVariant { functions: others.len(), first: DemangledName::from_linkage(&first.name).short });
    }
    let calls = estimate_calls_of_program(units)?;
    let procedure = |((unit, frame, map, function), calls): ((usize, &Frame, &UnitMap, &FunctionMap), f64)| {
        let found = match &counted {
            None => build_estimated_procedure(function, calls)?,
            Some(known) => build_measured_procedure(function, &known.counts(frame, map, function))?,
        };
        Ok(Procedure { unit, ..found })
    };
    functions().zip(calls).map(procedure).collect::<Result<_, MapError>>().map_err(ProcedureError::Map)
}

/// Converts the functions of `edges`, whose maps were changed so that each path is a single edge. `units` are the original units, which the
/// profile describes.
pub fn build_edge_procedures(
    units: &[(Frame, UnitMap)],
    edges: &[(Frame, UnitMap)],
    profile: Option<&Profile>,
) -> Result<Vec<Procedure>, MapError> {
    let counted = profile.map(ProfiledFunctions::from_profile);
    let pairs =
        units.iter().zip(edges).flat_map(|((frame, map), (_, own))| map.functions.iter().zip(&own.functions).map(move |f| (frame, map, f)));
    let calls = estimate_calls_of_program(units)?;
    let procedure = |((frame, map, (function, own)), calls): ((&Frame, &UnitMap, (&FunctionMap, &FunctionMap)), f64)| match &counted {
        None => build_estimated_procedure(own, calls),
        Some(known) => build_edge_procedure(own, &FunctionPaths::decode(function, known.counts(frame, map, function))?),
    };
    pairs.zip(calls).map(procedure).collect()
}

/// Looks up a program's functions in a profile. The profile may be of a different variant of the program, if the functions have the same
/// paths with the same IDs.
struct ProfiledFunctions<'a> {
    units: HashMap<Identity, &'a UnitProfile>,
    functions: HashMap<(&'a str, &'a str), Vec<(&'a UnitProfile, &'a FunctionMap)>>,
}

impl<'a> ProfiledFunctions<'a> {
    fn from_profile(profile: &'a Profile) -> ProfiledFunctions<'a> {
        let units = profile.images.iter().flat_map(|i| &i.units).map(|unit| (unit.unit, unit)).collect();
        let mut functions: HashMap<_, Vec<_>> = HashMap::new();
        for (_, unit, f) in profile.functions() {
            functions.entry((unit.map.source.as_str(), f.name.as_str())).or_default().push((unit, f));
        }
        ProfiledFunctions { units, functions }
    }

    fn counts(&self, frame: &Frame, map: &UnitMap, function: &'a FunctionMap) -> Vec<(u64, u64)> {
        self.function(frame, map, function).map(|(u, f)| u.counts_of(f).collect()).unwrap_or_default()
    }

    fn function(&self, frame: &Frame, map: &UnitMap, function: &'a FunctionMap) -> Option<(&'a UnitProfile, &'a FunctionMap)> {
        if let Some(unit) = self.units.get(&frame.unit) {
            return Some((unit, function));
        }
        let same = |other: &FunctionMap| {
            (other.shape, other.counters) == (function.shape, function.counters)
                && other.cuts == function.cuts
                && other.values == function.values
        };
        self.find_by_name(map, function).into_iter().find(|(_, other)| same(other))
    }

    fn find_by_name(&self, map: &UnitMap, function: &FunctionMap) -> Vec<(&'a UnitProfile, &'a FunctionMap)> {
        self.functions.get(&(map.source.as_str(), function.name.as_str())).cloned().unwrap_or_default()
    }

    /// Returns whether the profile has the function, but with different paths, so that its counts cannot be used.
    fn has_other_paths(&self, frame: &Frame, map: &UnitMap, function: &'a FunctionMap) -> bool {
        self.function(frame, map, function).is_none() && !self.find_by_name(map, function).is_empty()
    }
}

/// Adds estimated to measured frequencies, so that paths that were not executed also have a frequency. The estimates of a function add up
/// to less than one measured execution.
pub fn add_estimates(units: &[(Frame, UnitMap)], measured: &[Procedure]) -> Result<Vec<Procedure>, MapError> {
    /// Weight of one measured execution, as a power of 2. A lower weight is used if the sum would exceed 64 bits.
    const LOG_WEIGHT: u32 = 16;
    let sum = measured.iter().flat_map(|p| &p.frequencies).fold(1u64, |sum, n| sum.saturating_add(*n));
    let weight = 1u64 << LOG_WEIGHT.min(sum.leading_zeros().saturating_sub(2));
    let functions = units.iter().flat_map(|(_, map)| &map.functions);
    let procedure = |(known, function): (&Procedure, &FunctionMap)| {
        let estimated = build_estimated_procedure(function, 1.0)?.frequencies;
        let all = estimated.iter().fold(1u128, |sum, n| sum + u128::from(*n));
        let share = |n: u64| (u128::from(n) * u128::from(weight - 1) / all) as u64;
        let frequencies = known.frequencies.iter().zip(estimated).map(|(n, e)| n.saturating_mul(weight).saturating_add(share(e))).collect();
        Ok(Procedure { frequencies, ..known.clone() })
    };
    measured.iter().zip(functions).map(procedure).collect()
}

/// Sets the number of call sites of each procedure.
pub fn add_call_sites(units: &[(Frame, UnitMap)], procedures: &mut [Procedure]) {
    let calls = CallSiteCounts::from_units(units);
    let functions = units.iter().enumerate().flat_map(|(at, (_, map))| map.functions.iter().map(move |f| (at, f)));
    procedures.iter_mut().zip(functions).for_each(|(procedure, (unit, f))| procedure.call_sites = Some(calls.call_site_count(unit, f)));
}
