//! Makes profiles of uninstrumented programs from recorded branches.

use crate::{ProfileDestination, RecordingContext, deliver_profile};
use anyhow::{Context, Result};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use trodden_profile::{BranchSampling, CollectedProfile, Run, SamplingSource};
use trodden_text::words;
use trodden_trace::{BranchImport, import};

/// Makes a profile from perf's text output. `name` identifies that output in messages. Fails if the text or a program cannot be read, or
/// if no branch is inside the programs.
pub fn profile_from_branch_text(
    text: impl BufRead,
    name: &Path,
    programs: &[PathBuf],
    run: Run,
    context: &RecordingContext,
) -> Result<BranchImport> {
    Ok(import(text, name, programs, context.units.as_ref(), run)?)
}

/// Logs what was imported, and stores the profile. Fails if the text contains no branches or no complete path, or the profile cannot be
/// stored.
pub fn store_import(imported: BranchImport, name: &Path, destination: &ProfileDestination, context: &RecordingContext) -> Result<()> {
    let sampling = imported
        .profile
        .sampling
        .as_ref()
        .and_then(|s| s.branches())
        .cloned()
        .context("the imported profile does not say how it was sampled")?;
    anyhow::ensure!(sampling.records > 0, "{} has no branches. {}", name.display(), no_path_advice(sampling.samples));
    log_summary(&imported, &sampling);
    anyhow::ensure!(sampling.whole_paths > 0, "cannot count paths: no path was recorded from its beginning to its end");
    deliver_profile(&CollectedProfile { profile: imported.profile, problems: Vec::new() }, destination, context).map(drop)
}

fn no_path_advice(samples: u64) -> &'static str {
    match samples {
        0 => "Print samples with the field brstack, or the branches of a trace with --itrace=b -F pid,tid,ip,addr",
        _ => "Its samples have no branch stacks. Record with `perf record -b`, on a processor with branch records",
    }
}

fn log_summary(imported: &BranchImport, sampling: &BranchSampling) {
    log::info!("{}", sampling.summary());
    let losses = &sampling.losses;
    let mut parts = Vec::new();
    let mut part = |number: u64, one: &str, several: &str| parts.extend((number > 0).then(|| words::plural(number.into(), one, several)));
    part(losses.incomplete, "path whose beginning or end was not recorded", "paths whose beginning or end was not recorded");
    part(losses.ambiguous, "sequence of blocks that matches several paths", "sequences of blocks that match several paths");
    part(losses.inferred, "block inferred from the only possible path", "blocks inferred from the only possible path");
    if !parts.is_empty() {
        log::info!("some paths were not counted, or were inferred: {}", parts.join(", "));
    }
    if losses.inconsistent > 0 {
        log::warn!(
            "cannot assign {} to paths, in {}. Check that --program names the program that ran",
            words::plural(losses.inconsistent.into(), "sequence of blocks", "sequences of blocks"),
            list_functions(&imported.uncertain)
        );
    }
    if losses.broken + losses.gaps > 0 {
        log::warn!(
            "the recorded branches have gaps: {}; {}. The paths in progress at these points are incomplete",
            words::plural(losses.broken.into(), "branch does not continue the previous one", "branches do not continue the previous one"),
            words::plural(losses.gaps.into(), "point where perf lost data", "points where perf lost data")
        );
    }
    if sampling.source == SamplingSource::BranchRecords {
        log::info!(
            "the counts are estimates: only their proportions are meaningful, not their absolute values. Paths with more branches than the \
             processor records at once are missing"
        );
    }
    imported
        .functions_without_addresses
        .iter()
        .for_each(|what| log::warn!("no addresses are known for {what}, so its branches are not counted"));
}

fn list_functions(functions: &[(String, u64)]) -> String {
    const MAX_SHOWN_FUNCTIONS: usize = 5;
    let mut names: Vec<&(String, u64)> = functions.iter().collect();
    names.sort_by_key(|(name, times)| (std::cmp::Reverse(*times), name));
    words::list_names(&names.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>(), MAX_SHOWN_FUNCTIONS)
}
