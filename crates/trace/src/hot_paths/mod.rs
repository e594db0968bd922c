//! Profiles of programs with block addresses, from the paths that a path detector has found in their machine code.
//!
//! A path of the detector (K. Vaswani, *Efficient Online Path Profiling*, section 5.2) ends at backward and indirect branches and after a
//! number of branches; a path of a unit ends where its numbering cuts the graph. So a detector's path may contain several of the unit's
//! paths, or a part of one. [`fragment`] splits the detector's paths by function, [`remainders`] assigns a block to each fragment in which
//! no block starts, [`flows`] estimates how often each fragment followed each other fragment, and [`join`] assembles paths. Paths within
//! one fragment are counted exactly. Joined paths are counted in proportion to the counts of the fragments that follow, which is exact if
//! only one follows.

mod apportion;
mod flows;
mod fragment;
mod join;
mod remainders;

use crate::branch_import::{ImportError, group_by_unit, image_profiles};
use crate::probe_graphs::ProbeGraphs;
use fragment::{Fragment, split_into_fragments};
use join::{JoinedFragmentPaths, join};
use remainders::assign_blocks_to_remainders;
use trodden_binary::{AddressSpace, MappedFile, ProbedImage};
use trodden_profile::{BranchSampling, Profile, Run, Sampling, SamplingSource, UnattributedBranches};

/// How a path of the detector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotPathExit {
    /// The procedure returned.
    Returned,
    /// The path continues at this address.
    At(u64),
    /// The path ended at an indirect branch, so that only the next path shows where control continued.
    Indirect,
    /// The path's code is not completely known.
    Unknown,
}

/// A path that the detector found, as the addresses of its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPath {
    /// The straight runs of code, each as the addresses of the first and last instruction. All but the first were jumped to.
    pub runs: Vec<(u64, u64)>,
    /// How the path ended.
    pub exit: HotPathExit,
    /// Number of executions.
    pub count: u64,
}

/// The result of importing a detector's paths.
#[derive(Debug)]
pub struct HotPathImport {
    /// The profile. Its `sampling` field is set.
    pub profile: Profile,
    /// Number of executions of paths that began and ended within one of the detector's paths.
    pub whole: u64,
    /// Number of executions of paths that were joined from several of the detector's paths.
    pub joined: u64,
    /// Number of path executions whose end is known but whose start is not. These executions are not in the profile.
    pub without_beginning: u64,
    /// Number of path executions whose start is known but whose end is not. These executions are not in the profile.
    pub without_end: u64,
    /// Number of executions of the detector's paths outside the programs.
    pub elsewhere: u64,
}

/// Builds the profile of `images`, which were mapped at `mappings`.
///
/// # Errors
/// A program's map is corrupt, or no path belongs to any of the programs.
pub fn import_hot_paths(
    images: Vec<ProbedImage>,
    mappings: &[MappedFile],
    paths: &[HotPath],
    run: Run,
) -> Result<HotPathImport, ImportError> {
    let mut space = AddressSpace::new(&images);
    for mapping in mappings {
        space.map(mapping)?;
    }
    let place = |address: u64| space.resolve(0, address).find_map(|(image, at)| images[image].range_at(at).map(|range| (image, range, at)));
    let mut graphs = ProbeGraphs::new(&images);
    let mut found: Vec<Fragment> = Vec::new();
    let (mut elsewhere, mut losses) = (0, UnattributedBranches::default());
    for path in paths {
        let before = found.len();
        split_into_fragments(&mut graphs, &place, path, &mut losses, &mut found)?;
        elsewhere += if found.len() == before { path.count } else { 0 };
    }
    if found.is_empty() {
        let what = "none of the paths is in it. Is it the program that ran?".to_owned();
        let image = images.first().map(|i| i.path.clone()).unwrap_or_default();
        return Err(trodden_binary::BinaryError::NoBlockAddresses { image, what }.into());
    }
    let found = assign_blocks_to_remainders(&mut graphs, found)?;
    let joined = join(&mut graphs, &found)?;
    losses.ambiguous = losses.ambiguous.saturating_add(joined.ambiguous);
    // A path whose start and end are known but whose middle is not is in both counts.
    losses.incomplete = joined.without_beginning.max(joined.without_end);
    let (without_beginning, without_end) = (joined.without_beginning, joined.without_end);
    let descriptors = paths.len() as u64;
    let (whole, together) = (joined.whole, joined.joined);
    let profile = profile(&images, joined, losses, descriptors, run);
    Ok(HotPathImport { profile, whole, joined: together, without_beginning, without_end, elsewhere })
}

fn profile(images: &[ProbedImage], joined: JoinedFragmentPaths, losses: UnattributedBranches, descriptors: u64, run: Run) -> Profile {
    let by_unit = group_by_unit(images, joined.paths.into_iter().filter(|(_, count)| *count > 0));
    let sampling = BranchSampling {
        source: SamplingSource::HotPaths,
        samples: descriptors,
        windows: joined.whole,
        records: joined.fragments,
        whole_paths: joined.whole + joined.joined,
        losses,
        observed: Vec::new(),
    };
    let executions = |place| by_unit.get(&place).into_iter().flatten().map(|(at, count)| (*at, *count)).collect();
    Profile { run, images: image_profiles(images, executions), sampling: Some(Sampling::Branches(sampling)) }
}
