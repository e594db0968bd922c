//! The first oracle: a counter in every block.
//!
//! These counters do not depend on paths, and are exact even if calls do not return. They must equal the block counts that trodden derives
//! from its paths, unfinished paths included. The exception is the block after a tail call that does not return, which trodden counts
//! before the call (see [`crate::probes`]).

use crate::error::OracleError;
use crate::probes::{FunctionProbes, ProbePurpose};
use crate::subject::{OracleSubject, ProbedProgram, SubjectOutcome, SubjectRun};
use crate::tools::OracleTools;
use crate::verdict::CountVerdict;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, FunctionMap};

/// Path counts of a unit, by index of the counter.
pub type UnitCounts = HashMap<u64, u64>;

/// Builds the program with block counters only and runs it. The returned counts are indexed by probe number.
pub fn count_blocks(
    subject: &OracleSubject,
    tools: &OracleTools,
    run: &SubjectRun,
) -> Result<(SubjectOutcome, ProbedProgram, Vec<u64>), OracleError> {
    let probed = subject.with_probes(tools, ProbePurpose::Counts, 0, false)?;
    let file = prepare_counts_file(subject)?;
    let outcome = run.execute(&probed.program, &[("ORACLE_FILE", &file)])?;
    let counts = read_counts(&file)?;
    Ok((outcome, probed, counts))
}

/// Builds the program with block counters and trodden's probes, runs it once, and compares both counts. This also works for programs whose
/// runs differ.
///
/// # Errors
/// A tool fails, the program cannot be run, or a map is corrupt.
pub fn verify_in_one_run(
    subject: &OracleSubject,
    tools: &OracleTools,
    run: &SubjectRun,
) -> Result<(SubjectOutcome, CountVerdict), OracleError> {
    let probed = subject.with_probes(tools, ProbePurpose::Counts, 0, true)?;
    let file = prepare_counts_file(subject)?;
    let both = subject.reread_program(&probed.program)?;
    let (outcome, paths) = both.count_paths(run, &[("ORACLE_FILE", &file)])?;
    let verdict = check(&both, &paths, &probed, &read_counts(&file)?)?;
    Ok((outcome, verdict))
}

fn prepare_counts_file(subject: &OracleSubject) -> Result<PathBuf, OracleError> {
    let file = subject.folder.join("block-counts");
    if file.exists() {
        fs::remove_file(&file).map_err(OracleError::file(&file))?;
    }
    Ok(file)
}

fn read_counts(file: &Path) -> Result<Vec<u64>, OracleError> {
    let bytes = fs::read(file).map_err(OracleError::file(file))?;
    Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
}

/// Compares the path counts of every function with the block counts.
///
/// # Errors
/// A map is corrupt.
pub fn check(subject: &OracleSubject, paths: &[UnitCounts], probed: &ProbedProgram, counts: &[u64]) -> Result<CountVerdict, OracleError> {
    let mut verdict = CountVerdict::default();
    for ((unit, counted), functions) in subject.units.iter().zip(paths).zip(&probed.functions) {
        for (function, probes) in unit.map.functions.iter().zip(functions) {
            let decoded = decode(function, counted)?;
            verify_function(function, &decoded, probes, counts, &mut verdict);
        }
    }
    Ok(verdict)
}

/// Returns the non-zero counts of a function as (path, count), in ascending order of paths. A function may have far more paths than counts,
/// so the smaller of the two is searched.
pub fn counts_of(function: &FunctionMap, counts: &UnitCounts) -> Vec<(u64, u64)> {
    let id = |index: u64| index.checked_sub(function.first_counter).filter(|id| *id < function.counters);
    let mut own: Vec<(u64, u64)> = match function.counters <= counts.len() as u64 {
        true => (0..function.counters).filter_map(|id| Some((id, *counts.get(&(function.first_counter + id))?))).collect(),
        false => counts.iter().filter_map(|(index, count)| Some((id(*index)?, *count))).collect(),
    };
    own.retain(|(_, count)| *count > 0);
    own.sort();
    own
}

/// Decodes the counted paths of a function.
///
/// # Errors
/// The map is corrupt.
pub fn decode(function: &FunctionMap, counts: &UnitCounts) -> Result<FunctionPaths, OracleError> {
    Ok(FunctionPaths::decode(function, counts_of(function, counts))?)
}

fn verify_function(function: &FunctionMap, paths: &FunctionPaths, probes: &FunctionProbes, counts: &[u64], verdict: &mut CountVerdict) {
    let count = |number: u32| counts.get(number as usize).copied().unwrap_or(0);
    let mut expected: Vec<u64> = (0..function.blocks.len() as u32).map(|n| count(probes.first + n)).collect();
    for tail in &probes.tails {
        let unreturned = count(tail.before).wrapping_sub(count(tail.after));
        if unreturned > 0 {
            expected[tail.returning as usize] = expected[tail.returning as usize].wrapping_add(unreturned);
            verdict.left_by_tail_call.push(format!("{} (block {}): {unreturned}", function.name, tail.node));
        }
    }
    verdict.functions += 1;
    verdict.executed += usize::from(expected.iter().any(|c| *c > 0));
    if !paths.are_all_paths_finished() {
        let paths: i64 = paths.unfinished.iter().map(|u| u.count).chain(paths.lost.iter().map(|l| l.count)).sum();
        verdict.unfinished.push(format!("{}: {paths}", function.name));
    }
    for (node, block) in function.blocks.iter().enumerate() {
        if matches!(block.kind, BlockKind::Code | BlockKind::Continuation) {
            verdict.compare(&function.name, || format!("block {node}"), paths.blocks[node], expected[node]);
        }
    }
}
