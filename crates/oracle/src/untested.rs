//! The oracle of `trodden untested` and of residual builds: the paths in a full profile of the field that a full profile of the tests
//! lacks.
//!
//! Unlike the code under test, it neither filters profiles by known paths nor compares path numbers: paths are compared by their edges. The
//! figures are the columns of table 3.1 of Vaswani's thesis.

use std::collections::{BTreeSet, HashMap, HashSet};
use trodden_flow::{DagEdgeId, Origin};
use trodden_profile::{FunctionPaths, Profile};
use trodden_unit::{FunctionMap, MapError};

/// How much of the field's execution is untested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntestedExecutionFindings {
    /// Number of complete paths that the tests executed.
    pub tested_paths: u64,
    /// Number of complete paths that the field executed.
    pub executed_paths: u64,
    /// Number of complete paths that the field executed and the tests did not.
    pub untested_paths: u64,
    /// Number of executions of complete paths in the field.
    pub executions: u128,
    /// Number of executions of untested paths in the field.
    pub untested_executions: u128,
    /// Number of functions with untested paths.
    pub functions: u64,
    /// Number of edges of untested paths that the tests did not execute.
    pub untested_edges: u64,
    /// Number of functions with untested edges.
    pub functions_with_untested_edges: u64,
    /// Number of untested paths in functions without untested edges.
    pub untested_paths_in_functions_without_untested_edges: u64,
    /// Number of untested paths without untested edges.
    pub all_edges_tested: u64,
}

/// Identifies a function across builds by its unit's source, its name and its shape.
type FunctionAcrossBuilds<'p> = (&'p str, &'p str, u64);

#[derive(Default)]
struct TestedFunction {
    paths: HashSet<Vec<Origin>>,
    edges: Vec<u64>,
}

/// Compares two full profiles. Functions are matched by unit, name and shape.
///
/// # Errors
/// A map is corrupt.
pub fn compare(tests: &Profile, field: &Profile) -> Result<UntestedExecutionFindings, MapError> {
    let mut tested: HashMap<FunctionAcrossBuilds, TestedFunction> = HashMap::new();
    for (_, unit, function) in tests.functions() {
        let paths = FunctionPaths::decode(function, unit.counts_of(function))?;
        let of = tested.entry((&unit.map.source, &function.name, function.shape)).or_default();
        of.edges.resize(paths.edges.len(), 0);
        of.edges.iter_mut().zip(&paths.edges).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        of.paths.extend(paths.complete.iter().filter(|p| p.count > 0).map(|p| edge_origins(function, &p.path)));
    }
    let mut found = UntestedExecutionFindings {
        tested_paths: tested.values().map(|t| t.paths.len() as u64).sum(),
        ..UntestedExecutionFindings::default()
    };
    let nothing = TestedFunction::default();
    for (_, unit, function) in field.functions() {
        let paths = FunctionPaths::decode(function, unit.counts_of(function))?;
        let key = (unit.map.source.as_str(), function.name.as_str(), function.shape);
        add_function(&mut found, function, &paths, tested.get(&key).unwrap_or(&nothing));
    }
    Ok(found)
}

fn add_function(found: &mut UntestedExecutionFindings, function: &FunctionMap, field: &FunctionPaths, tested: &TestedFunction) {
    let (mut new_paths, mut new_edges) = (0, BTreeSet::new());
    for path in field.complete.iter().filter(|p| p.count > 0) {
        let edges = edge_origins(function, &path.path);
        found.executed_paths += 1;
        found.executions += u128::from(path.count);
        if tested.paths.contains(&edges) {
            continue;
        }
        let real = edges.iter().filter_map(|step| match step {
            Origin::Real(edge) | Origin::Leave(edge) => Some(edge.index()),
            Origin::Enter(_) | Origin::Stop(_) => None,
        });
        let new: BTreeSet<usize> = real.filter(|edge| tested.edges.get(*edge).is_none_or(|count| *count == 0)).collect();
        new_paths += 1;
        found.untested_executions += u128::from(path.count);
        found.all_edges_tested += u64::from(new.is_empty());
        new_edges.extend(new);
    }
    found.untested_paths += new_paths;
    found.functions += u64::from(new_paths > 0);
    found.untested_edges += new_edges.len() as u64;
    match new_edges.is_empty() {
        true => found.untested_paths_in_functions_without_untested_edges += new_paths,
        false => found.functions_with_untested_edges += 1,
    }
}

fn edge_origins(function: &FunctionMap, path: &[DagEdgeId]) -> Vec<Origin> {
    path.iter().map(|edge| function.dag[edge.index()]).collect()
}
