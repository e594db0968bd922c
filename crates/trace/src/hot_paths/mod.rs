//! Profiles of programs of the tier `addresses`, from what a path detector found: paths of machine code with their counts.
//!
//! A path of the detector (K. Vaswani, *Efficient Online Path Profiling*, section 5.2) ends at backward and indirect
//! branches and after a number of branches; a path of a unit ends where its numbering cuts the graph. So one of the
//! detector's may be several of the unit's, or a piece of one. [`fragment`] turns each into what it does to the number
//! of a path under way, [`rests`] finds the blocks of those in which none begins, [`flows`] says how often each followed
//! each, and [`join`] puts pieces together.
//!
//! What begins and ends within one of the detector's paths is counted as it is. Pieces are joined by the counts of what
//! follows: a piece that ends at an address goes on with each piece that begins there, in proportion to their counts.
//! That is exact where only one begins there, and an estimate elsewhere. Executions of blocks are exact if no piece is
//! missing: each is gone through as often as it was executed.

mod apportion;
mod flows;
mod fragment;
mod join;
mod rests;

use crate::branch_import::{ImportError, by_unit, image_profiles};
use crate::probe_graphs::ProbeGraphs;
use fragment::{Fragment, fragments};
use join::{Joined, join};
use rests::place_rests;
use trodden_binary::{AddressSpace, MappedFile, ProbedImage};
use trodden_profile::{BranchSampling, BranchSource, Losses, Profile, Run, Sampling};

/// How a path of the detector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotPathExit {
    /// The procedure returned.
    Returned,
    /// It goes on at this address.
    At(u64),
    /// It goes on where only the next path says: an indirect branch.
    Indirect,
    /// Its code is not known to the end.
    Unknown,
}

/// A path of the detector as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPath {
    /// Straight runs of code of its procedure: addresses of the first and the last instruction. All but the first were jumped to.
    pub runs: Vec<(u64, u64)>,
    /// How it ended.
    pub exit: HotPathExit,
    /// How often it was executed.
    pub count: u64,
}

/// What came of the detector's paths.
#[derive(Debug)]
pub struct HotPathImport {
    /// The profile; its `sampling` is set.
    pub profile: Profile,
    /// Executions of paths that began and ended within one of the detector's paths.
    pub whole: u64,
    /// Executions of paths that were joined of pieces.
    pub joined: u64,
    /// Paths of which the end was seen, but not all before it: they are not counted.
    pub without_beginning: u64,
    /// Paths of which the beginning was seen, but not the end: they are not counted.
    pub without_end: u64,
    /// Executions of the detector's paths outside of the programs.
    pub elsewhere: u64,
}

/// Makes a profile of the programs.
///
/// # Errors
/// A program's map is damaged, or none of the paths lies in any of them.
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
    let (mut elsewhere, mut losses) = (0, Losses::default());
    for path in paths {
        let before = found.len();
        fragments(&mut graphs, &place, path, &mut losses, &mut found)?;
        elsewhere += if found.len() == before { path.count } else { 0 };
    }
    if found.is_empty() {
        let what = "none of the paths lies in it: is it the program that ran?".to_owned();
        let image = images.first().map(|i| i.path.clone()).unwrap_or_default();
        return Err(trodden_binary::BinaryError::Addresses { image, what }.into());
    }
    let found = place_rests(&mut graphs, found)?;
    let joined = join(&mut graphs, &found)?;
    losses.ambiguous = losses.ambiguous.saturating_add(joined.ambiguous);
    // A path without its middle is in both.
    losses.cut_off = joined.without_beginning.max(joined.without_end);
    let (without_beginning, without_end) = (joined.without_beginning, joined.without_end);
    let descriptors = paths.len() as u64;
    let (whole, together) = (joined.whole, joined.joined);
    let profile = profile(&images, joined, losses, descriptors, run);
    Ok(HotPathImport { profile, whole, joined: together, without_beginning, without_end, elsewhere })
}

/// Puts counts into the model.
fn profile(images: &[ProbedImage], joined: Joined, losses: Losses, descriptors: u64, run: Run) -> Profile {
    let by_unit = by_unit(images, joined.paths.into_iter().filter(|(_, count)| *count > 0));
    let sampling = BranchSampling {
        source: BranchSource::HotPaths,
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
