//! Merges the profiles of several instrumented copies of a program, each of which counted some of the paths, into one profile of the
//! program. A copy's control-flow graphs have a subset of the program's edges ([`trodden_unit::parts`]), so its paths are translated edge
//! by edge.
//!
//! The merged profile is correct only if all copies ran the same execution. They did not if two copies counted the same path differently,
//! if a shared library that all copies count in full has different counts, or if a function's counts violate flow conservation: as many
//! paths must begin after a cut edge, at which paths are divided, as end with it. If a signal ended all copies, interrupted paths can cause
//! the same symptoms ([`MergedCopies::interrupted`]).

mod copy_edges;
mod differences;
pub mod edges;
mod measurements;

pub use copy_edges::CopyToProgramEdges;
pub use differences::{edge_differences, path_differences};
pub use measurements::{CopyMeasurements, CopyTimes, counted_probe_hits};

use crate::counts::Counts;
use crate::model::{ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
use crate::paths::FunctionPaths;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use trodden_flow::{Dag, Numbering};
use trodden_unit::{FunctionMap, Identity, MapError, UnitMap, parts};

/// A difference between the counts of instrumented copies, which shows that they did not run the same execution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum CopyDivergence {
    /// Two copies have different counts for the same path.
    Counts {
        function: String,
        path: u64,
        /// Number of the first copy, and its count of the path.
        one: (usize, u64),
        /// Number of the second copy, and its count of the path.
        other: (usize, u64),
    },
    /// The counts of a function, taken from several copies, violate flow conservation.
    Flow {
        function: String,
        /// Number of paths that begin after a cut edge minus number of paths that end with it; `None` if the copies count edges instead of
        /// paths.
        missing: Option<i64>,
    },
    /// An executable or shared library that all copies count in full has different counts in one copy, or did not run in it.
    Image {
        image: String,
        /// Number of the copy that differs from copy 0.
        copy: usize,
        /// Name of a function whose counts differ; `None` if only one of the two copies ran the image.
        function: Option<String>,
    },
}

impl CopyDivergence {
    /// Returns whether the difference can be caused by a path that a signal interrupted. A copy counts a path as soon as it can distinguish
    /// the path from the others that it counts, so when the signal arrives, some copies have counted the path and others have not.
    fn may_be_interruption(&self) -> bool {
        match self {
            CopyDivergence::Flow { .. } => true,
            CopyDivergence::Counts { one, other, .. } => one.1.abs_diff(other.1) == 1,
            CopyDivergence::Image { .. } => false,
        }
    }
}

impl fmt::Display for CopyDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyDivergence::Counts { function, path, one, other } => write!(
                f,
                "path {path} of function `{function}` was executed {} times in copy {} and {} times in copy {}",
                one.1, one.0, other.1, other.0
            ),
            CopyDivergence::Flow { function, missing: Some(missing) } => {
                write!(f, "the copies' counts for function `{function}` violate flow conservation (difference {missing})")
            }
            CopyDivergence::Flow { function, missing: None } => {
                write!(f, "the copies' edge counts for function `{function}` violate flow conservation")
            }
            CopyDivergence::Image { image, copy, function: Some(function) } => {
                write!(f, "function `{function}` of `{image}` has different counts in copy {copy} and copy 0")
            }
            CopyDivergence::Image { image, copy, function: None } => write!(f, "`{image}` ran in only one of copy {copy} and copy 0"),
        }
    }
}

/// Reason why the profiles of copies cannot be merged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum CopiesError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("function `{function}` in copy {copy} of the program differs from the program's own function. Create the copies again")]
    OtherProgram { copy: usize, function: String },
    #[error("no copy of the program counted anything. Check that the command runs the program that was copied")]
    Nothing,
    #[error("no copy of the program counts function `{0}`. Create the copies again")]
    Uncounted(String),
}

/// The program of which the copies were made. Each copy counts some of its paths.
#[derive(Clone, Debug)]
pub struct PartitionedProgram {
    /// Identity of the image.
    pub identity: Identity,
    /// Its path.
    pub path: String,
    /// The linker's build ID, if it has one.
    pub build_id: Option<String>,
    /// Its units in link order.
    pub units: Vec<(Identity, Arc<UnitMap>)>,
    /// Whether the copies count edges instead of paths. In the maps above, each path is then a single edge ([`edges`]).
    pub edges: bool,
}

/// The merged counts of all copies, and what the copies disagree about.
#[derive(Debug)]
pub struct MergedCopies {
    /// The profile.
    pub profile: Profile,
    /// Differences that show that the copies did not run the same execution.
    pub divergences: Vec<CopyDivergence>,
    /// Differences that are explained by the signal that ended all copies in the middle of a path.
    pub interrupted: Vec<CopyDivergence>,
    /// Number of paths for which two or more copies have the same count.
    pub confirmed: u64,
    /// Complete counts of the original program, if the command also started processes that ran it instead of a copy.
    pub restarted: Option<ImageProfile>,
    /// Numbers of the copies that have no counts, because no function was executed in them.
    pub silent: Vec<usize>,
}

/// Merges the profiles of copies, which are numbered by their index in `copies`. Fails if no copy has any count, or if the copies were not
/// made from this program.
pub fn merge_copies(program: &PartitionedProgram, run: Run, copies: &[Profile]) -> Result<MergedCopies, CopiesError> {
    // The profile of a copy has no image if none of the copy's functions was executed.
    let own: Vec<Option<&ImageProfile>> = copies.iter().map(|copy| copy.images.iter().find(|i| is_image_of_copy(i))).collect();
    if own.iter().all(Option::is_none) {
        return Err(CopiesError::Nothing);
    }
    let silent: Vec<usize> = (0..own.len()).filter(|at| own[*at].is_none()).collect();
    let profile = Profile { run, images: Vec::new(), sampling: None };
    let mut merged = MergedCopies { profile, divergences: Vec::new(), interrupted: Vec::new(), confirmed: 0, restarted: None, silent };
    let mut seen = HashMap::<Identity, usize>::new();
    let mut units = Vec::new();
    for (unit, map) in &program.units {
        let occurrence = seen.entry(*unit).or_default();
        let parts: Vec<Option<&UnitProfile>> = own.iter().map(|i| find_copied_unit((*i)?, *unit, *occurrence)).collect();
        *occurrence += 1;
        let (mut counts, mut first_seen) = (Vec::new(), Vec::new());
        for function in &map.functions {
            let own = merged.merge_function(function, program.edges, &parts, &mut first_seen)?;
            counts.extend(own.into_iter().map(|(path, count)| (function.first_counter + path, count)));
        }
        counts.sort_unstable();
        first_seen.sort_unstable();
        first_seen.dedup_by_key(|seen| seen.0);
        let counts = Counts { executions: counts, events: Vec::new(), first_seen };
        units.push(UnitProfile { unit: *unit, map: map.clone(), counts });
    }
    let PartitionedProgram { identity, path, build_id, .. } = program.clone();
    merged.profile.images.push(ImageProfile { identity, path, build_id, units });
    merged.add_full_images(copies);
    if let Some(end) = CopiesSignalEnd::from_copies(copies) {
        let is_expected = |at: &CopyDivergence| end == CopiesSignalEnd::FromOutside || at.may_be_interruption();
        (merged.interrupted, merged.divergences) = merged.divergences.into_iter().partition(is_expected);
        if end == CopiesSignalEnd::FromOutside {
            merged.profile.run.interrupted = copies.len() as u64;
        }
    }
    Ok(merged)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopiesSignalEnd {
    /// The signal came from another process, a timer or a resource limit, so each copy was interrupted at a different point.
    FromOutside,
    /// The program raised the signal itself, at a point that every copy reaches, or its exit status shows that a signal ended it.
    FromProgram,
}

impl CopiesSignalEnd {
    /// Signals that an instruction of the program itself causes: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
    const SYNCHRONOUS_SIGNALS: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];

    /// Returns the kind of signal that ended all copies; `None` if a copy ended differently from the others, or without a signal.
    fn from_copies(copies: &[Profile]) -> Option<CopiesSignalEnd> {
        let first = copies.first()?.run.ending?;
        if copies.iter().any(|copy| copy.run.ending != Some(first)) {
            return None;
        }
        match first {
            ProcessEnding::Signal(signal) if !CopiesSignalEnd::SYNCHRONOUS_SIGNALS.contains(&signal) => Some(CopiesSignalEnd::FromOutside),
            ProcessEnding::Signal(_) => Some(CopiesSignalEnd::FromProgram),
            // Shells and signal handlers exit with status 128 + signal number. Only signals 1 to 15 are recognised, because larger values
            // are ordinary exit statuses.
            ProcessEnding::Exit(status) => (129..=143).contains(&status).then_some(CopiesSignalEnd::FromProgram),
        }
    }
}

/// Returns whether an image is one of several instrumented copies of a program, each of which counts some of the paths.
pub fn is_image_of_copy(image: &ImageProfile) -> bool {
    image.units.iter().any(|u| parts::origin(&u.map).is_some())
}

/// Finds the unit of a copy that was made from the program's unit `unit`. `occurrence` distinguishes identical units of one program.
fn find_copied_unit(image: &ImageProfile, unit: Identity, occurrence: usize) -> Option<&UnitProfile> {
    image.units.iter().filter(|u| parts::origin(&u.map) == Some(unit)).nth(occurrence)
}

struct CopyFunctionCounts {
    copy: usize,
    edges: CopyToProgramEdges,
    /// Counts by path ID, as the original program numbers its paths.
    counts: BTreeMap<u64, u64>,
    /// Time of each path's first execution, by path ID of the original program; empty if the copy does not record times.
    first_seen: Vec<(u64, u64)>,
}

impl CopyFunctionCounts {
    /// Translates the counts of the copy's function `own` to the path IDs of the program's function `function`.
    fn new(copy: usize, function: &FunctionMap, own: &FunctionMap, unit: &UnitProfile) -> Result<CopyFunctionCounts, CopiesError> {
        let other = || CopiesError::OtherProgram { copy, function: function.name.clone() };
        let edges = CopyToProgramEdges::new(function, own).ok_or_else(other)?;
        let mut part = CopyFunctionCounts { copy, edges, counts: BTreeMap::new(), first_seen: Vec::new() };
        let mut counted = unit.counts_of(own).peekable();
        if counted.peek().is_some() {
            let dag = own.dag()?;
            let numbering = own.numbering(&dag).map_err(|_| other())?;
            for (id, count) in counted {
                let path = numbering.path(&dag, id).ok_or_else(other)?;
                let whole = part.edges.program_path_id(function, &path);
                part.counts.insert(whole, count);
                part.first_seen.extend(unit.first_seen(own, id).map(|time| (whole, time)));
            }
        }
        Ok(part)
    }
}

impl MergedCopies {
    fn merge_function(
        &mut self,
        function: &FunctionMap,
        of_edges: bool,
        units: &[Option<&UnitProfile>],
        first_seen: &mut Vec<(u64, u64)>,
    ) -> Result<BTreeMap<u64, u64>, CopiesError> {
        let mut parts = Vec::new();
        for (copy, unit) in units.iter().enumerate() {
            let Some(unit) = unit else { continue };
            if let Some(own) = unit.map.functions.iter().find(|f| f.name == function.name) {
                parts.push(CopyFunctionCounts::new(copy, function, own, unit)?);
            }
        }
        let seen = parts.iter().flat_map(|p| &p.first_seen);
        first_seen.extend(seen.map(|(path, time)| (function.first_counter + path, *time)));
        let mut counts = BTreeMap::new();
        match parts.as_slice() {
            [] if function.counters > 0 && self.silent.is_empty() => return Err(CopiesError::Uncounted(function.name.clone())),
            [] => {}
            several if of_edges => {
                several.iter().for_each(|part| counts.extend(&part.counts));
                let parts: Vec<&CopyToProgramEdges> = several.iter().map(|p| &p.edges).collect();
                self.divergences.extend(edges::complete_edge_counts(function, &parts, &mut counts)?);
            }
            [only] => counts.clone_from(&only.counts),
            several => {
                let dag = function.dag()?;
                let numbering = function.numbering(&dag)?;
                self.merge_shared_paths(function, &dag, &numbering, several, &mut counts);
                self.check_flow_conservation(function, &counts)?;
            }
        }
        Ok(counts)
    }

    fn merge_shared_paths(
        &mut self,
        function: &FunctionMap,
        dag: &Dag,
        numbering: &Numbering,
        parts: &[CopyFunctionCounts],
        counts: &mut BTreeMap<u64, u64>,
    ) {
        for part in parts {
            for (&id, &count) in &part.counts {
                if counts.insert(id, count).is_some() {
                    continue;
                }
                let path = numbering.path(dag, id).unwrap_or_default();
                let others = parts.iter().filter(|p| p.copy != part.copy && p.edges.contains(&path));
                let differing = |p: &&CopyFunctionCounts| p.counts.get(&id).copied().unwrap_or(0) != count;
                let (wrong, right): (Vec<&CopyFunctionCounts>, Vec<&CopyFunctionCounts>) = others.partition(differing);
                self.confirmed += u64::from(!right.is_empty());
                self.divergences.extend(wrong.iter().map(|p| CopyDivergence::Counts {
                    function: function.name.clone(),
                    path: id,
                    one: (part.copy, count),
                    other: (p.copy, p.counts.get(&id).copied().unwrap_or(0)),
                }));
            }
        }
    }

    /// Checks flow conservation: as many paths must begin after each cut edge as end with it.
    fn check_flow_conservation(&mut self, function: &FunctionMap, counts: &BTreeMap<u64, u64>) -> Result<(), CopiesError> {
        let paths = FunctionPaths::decode(function, counts.iter().map(|(id, count)| (*id, *count)))?;
        let missing = paths.lost.iter().map(|l| l.count).max_by_key(|c| c.unsigned_abs());
        self.divergences.extend(missing.map(|missing| CopyDivergence::Flow { function: function.name.clone(), missing: Some(missing) }));
        Ok(())
    }

    /// Compares the images that all copies count in full, such as shared libraries, and adds them to the profile.
    fn add_full_images(&mut self, copies: &[Profile]) {
        let others = |p: &Profile| p.images.iter().filter(|i| !is_image_of_copy(i)).cloned().collect::<Vec<ImageProfile>>();
        let Some(first) = copies.first().map(others) else { return };
        for (copy, profile) in copies.iter().enumerate().skip(1) {
            let own = others(profile);
            for image in &first {
                match own.iter().find(|i| i.identity == image.identity) {
                    None => self.divergences.push(CopyDivergence::Image { image: image.path.clone(), copy, function: None }),
                    Some(same) => self.divergences.extend(find_first_difference(image, same, copy)),
                }
            }
            let more = own.iter().filter(|i| first.iter().all(|f| f.identity != i.identity));
            self.divergences.extend(more.map(|i| CopyDivergence::Image { image: i.path.clone(), copy, function: None }));
        }
        let program = self.profile.images[0].identity;
        let (restarted, others): (Vec<ImageProfile>, Vec<ImageProfile>) = first.into_iter().partition(|i| i.identity == program);
        self.restarted = restarted.into_iter().next();
        self.profile.images.extend(others);
    }

    /// Returns the profile, with the counts of the processes that ran the original program ([`MergedCopies::restarted`]) added.
    pub fn into_profile(mut self) -> Profile {
        if let Some(restarted) = self.restarted {
            let units = self.profile.images[0].units.iter_mut().zip(&restarted.units);
            units.for_each(|(unit, more)| unit.counts.merge(&more.counts));
        }
        self.profile
    }
}

fn find_first_difference(one: &ImageProfile, other: &ImageProfile, copy: usize) -> Option<CopyDivergence> {
    let pairs = one.units.iter().zip(&other.units);
    let mut functions = pairs.flat_map(|(a, b)| a.map.functions.iter().map(move |f| (a, b, f)));
    let (_, _, function) = functions.find(|(a, b, f)| a.counts_of(f).ne(b.counts_of(f)))?;
    Some(CopyDivergence::Image { image: one.path.clone(), copy, function: Some(function.name.clone()) })
}
