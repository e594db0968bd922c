//! Turns the paths in the path profiler's first table, or all paths that its detector has found, into a profile of the program, which
//! `trodden report`, `diff` and `pgo` can read.
//!
//! The program must be built with the addresses of its blocks. Each descriptor is walked through the code, and the walk is translated into
//! paths through the functions' graphs.

use super::places::MappedPlaces;
use super::walk::{InstructionWalk, walk};
use crate::hot_paths::{HotPath, HotPathImport, import_hot_paths};
use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::Path;
use trodden_binary::{MappedFile, ProbedImage};
use trodden_hardware::{
    BranchType, DetectorCounts, DetectorParameters, Metric, OperationMapping, PathDescriptor, PathExtension, PathProfile, Profiler,
    StackOverflowPolicy,
};
use trodden_profile::{Profile, Run};
use trodden_unit::UnitCache;

/// Which of the detector's paths are translated into the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// The paths in the first table.
    Table,
    /// All paths that the detector has found.
    Complete,
}

/// Checks that a detector's paths can be translated into paths of functions.
///
/// # Errors
/// The paths extend over calls or end at them, or the detector does not keep a path for each active procedure.
pub fn check_mapping(mapping: &OperationMapping) -> Result<()> {
    let follows = mapping.follows_procedures() && !mapping.operations(BranchType::Call).pop;
    ensure!(
        follows && !matches!(mapping.extension, PathExtension::Calls(_)),
        "--profile needs a preset whose paths stay within functions. Pass --preset ball-larus or --preset extended-loops"
    );
    Ok(())
}

/// Builds the profile of a run, and reports what could not be counted. `store` has the compilation units of programs that do not contain
/// their own.
///
/// # Errors
/// No mapped program has block addresses, or no path is in such a program.
pub fn table_profile(
    kind: ProfileKind,
    detector: &DetectorParameters,
    profiler: &Profiler,
    (places, mappings): (&MappedPlaces, &[MappedFile]),
    store: Option<&UnitCache>,
    run: Run,
) -> Result<Profile> {
    let held = match kind {
        ProfileKind::Table => profiler.table_profile(Metric::Frequency, 0).unwrap_or_default(),
        ProfileKind::Complete => profiler.complete_path_profile(Metric::Frequency).cloned().unwrap_or_default(),
    };
    let images = read_images(mappings, store)?;
    let paths = hot_paths(&held, detector, places);
    let imported = import_hot_paths(images, mappings, &paths, run)?;
    log::info!(
        "the profile has {} executions of paths, of which {} were joined from several pieces and are estimates. Of {} executions that the \
         detector of hot paths counted, {} are in other code",
        imported.whole + imported.joined,
        imported.joined,
        held.total(),
        imported.elsewhere
    );
    report_losses(kind, detector, &imported, &profiler.detector_counts());
    Ok(imported.profile)
}

/// Reports what was not counted and why: a table holds only some of the detector's paths, and the detector itself drops some.
fn report_losses(kind: ProfileKind, detector: &DetectorParameters, imported: &HotPathImport, counts: &DetectorCounts) {
    let losses = imported.profile.sampling.as_ref().and_then(|s| s.branches()).map_or_else(Default::default, |s| s.losses);
    let parts = [
        (imported.without_beginning, "paths whose end is known, but not their start"),
        (imported.without_end, "paths whose start is known, but not their end"),
    ];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} executions of {what}")).collect();
    if !parts.is_empty() {
        let mut why: Vec<String> = Vec::new();
        if kind == ProfileKind::Table {
            why.push("the table holds only some of the paths (`trodden-lab simulate --profile-of complete` uses all)".to_owned());
        }
        let is_dropped = detector.overflow == StackOverflowPolicy::Drop;
        for (number, what) in [
            (
                if is_dropped { counts.overflows } else { 0 },
                "were dropped because the path stack was full (--stack-overflow spill keeps them)",
            ),
            (counts.repairs, "repairs of the path stack after longjmp or an exception dropped the current paths"),
            (counts.unfinished, "were incomplete at the end of a thread, a longjmp or an exception"),
            (counts.gaps, "gaps in the stream interrupted the current paths"),
            (losses.ambiguous, "times it is unknown which blocks without instructions of their own were executed"),
        ] {
            why.extend((number > 0).then(|| format!("{number} {what}")));
        }
        log::info!("some executions were not counted: {}", parts.join(", and "));
        if !why.is_empty() {
            log::info!("some paths are missing for these reasons: {}", why.join("; "));
        }
    }
    if losses.inconsistent > 0 {
        log::warn!(
            "the order of the executed blocks contradicts the program's control-flow graphs (number of contradictions: {}). Check that \
             this is the program that ran",
            losses.inconsistent
        );
    }
}

/// Returns the mapped programs with block addresses.
fn read_images(mappings: &[MappedFile], store: Option<&UnitCache>) -> Result<Vec<ProbedImage>> {
    let paths: BTreeSet<&str> = mappings.iter().map(|m| m.path.as_str()).collect();
    let (mut images, mut why) = (Vec::new(), Vec::new());
    for path in paths {
        match ProbedImage::read(Path::new(path), store) {
            Ok(image) => images.push(image),
            Err(error) => why.push(error.to_string()),
        }
    }
    if images.is_empty() {
        bail!(
            "no program that ran has usable addresses of basic blocks. Build with `trodden build --addresses`. The reasons are:\n{}",
            why.join("\n")
        );
    }
    for image in &images {
        image
            .unplaced_functions
            .iter()
            .for_each(|what| log::warn!("{}: no addresses are known for {what}, so its branches are not counted", image.path.display()));
    }
    Ok(images)
}

fn hot_paths(held: &PathProfile, detector: &DetectorParameters, places: &MappedPlaces) -> Vec<HotPath> {
    let memory = places.memory();
    let hot = |(path, count): (PathDescriptor, u64)| {
        let walk = walk(&memory, detector, &path);
        HotPath { runs: straight_code_runs(&walk), exit: walk.exit, count }
    };
    held.hottest_paths().into_iter().map(hot).collect()
}

/// Returns the straight runs of code that a walk followed, each as the addresses of its first and last instruction.
fn straight_code_runs(walk: &InstructionWalk) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for step in &walk.steps {
        match runs.last_mut() {
            Some((_, last)) if !step.is_jumped_to => *last = step.address.0,
            _ => runs.push((step.address.0, step.address.0)),
        }
    }
    runs
}
