//! Profiles of branches that hardware recorded, of programs that count nothing.

use crate::{Destination, Surroundings, deliver};
use anyhow::{Context, Result};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use trodden_profile::{BranchSampling, BranchSource, Collected, Run};
use trodden_text::words;
use trodden_trace::{BranchImport, import};

/// Makes a profile of a text; `name` says in messages what it is.
///
/// # Errors
/// The text or a program cannot be read, or nothing in it belongs to the programs.
pub fn profile_of(text: impl BufRead, name: &Path, programs: &[PathBuf], run: Run, around: &Surroundings) -> Result<BranchImport> {
    Ok(import(text, name, programs, around.units.as_ref(), run)?)
}

/// Says what was seen, and stores the profile.
///
/// # Errors
/// There are no branches, or no whole path, in it, or it cannot be stored.
pub fn store(imported: BranchImport, name: &Path, destination: &Destination, around: &Surroundings) -> Result<()> {
    let sampling =
        imported.profile.sampling.as_ref().and_then(|s| s.branches()).cloned().context("an imported profile says how it was sampled")?;
    anyhow::ensure!(sampling.records > 0, "{} holds no branches: {}", name.display(), remedy(sampling.samples));
    report(&imported, &sampling);
    anyhow::ensure!(sampling.whole_paths > 0, "no path was seen from its beginning to its end");
    deliver(&Collected { profile: imported.profile, problems: Vec::new() }, destination, around).map(drop)
}

fn remedy(samples: u64) -> &'static str {
    match samples {
        0 => "print samples with the field brstack, or branches of a trace with --itrace=b -F pid,tid,ip,addr",
        _ => "its samples were taken without branch stacks; record with `perf record -b`, on a processor that has branch records",
    }
}

/// What was seen, and what was lost.
fn report(imported: &BranchImport, sampling: &BranchSampling) {
    log::info!("{}", sampling.summary());
    let losses = &sampling.losses;
    let mut parts = Vec::new();
    let mut part = |number: u64, what: &str| parts.extend((number > 0).then(|| format!("{number} {what}")));
    part(losses.cut_off, "paths whose beginning or end was not seen");
    part(losses.ambiguous, "sequences of blocks that stand for several paths");
    part(losses.inferred, "blocks without their address that are on the only path");
    if !parts.is_empty() {
        log::info!("not counted, or inferred: {}", parts.join(", "));
    }
    if losses.inconsistent > 0 {
        log::warn!(
            "{} sequences of blocks that the functions' graphs do not allow, in {}: is this the program that ran?",
            losses.inconsistent,
            listed(&imported.uncertain)
        );
    }
    if losses.broken + losses.gaps > 0 {
        let what = "branches that do not follow the one before them";
        log::warn!("{} {what}, {} places where perf lost something: what was under way there is cut off", losses.broken, losses.gaps);
    }
    if sampling.source == BranchSource::BranchRecords {
        log::info!("its counts are estimates: shares of paths, not numbers of executions; paths longer than a window are missing");
    }
    imported.without.iter().for_each(|what| log::warn!("no addresses: {what}"));
}

fn listed(functions: &[(String, u64)]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<&(String, u64)> = functions.iter().collect();
    names.sort_by_key(|(name, times)| (std::cmp::Reverse(*times), name));
    words::listed(&names.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>(), SHOWN)
}
