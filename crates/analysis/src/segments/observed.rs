//! The segments of runs: read off their streams where they have such, else as the program counted them.
//!
//! Several runs (a suite) and several processes of a run add up, by image.

use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trodden_profile::segments::{self, CountedSegments, FunctionPath, Segment, SegmentCounts, map, unit};
use trodden_profile::stream::{Places, SegmentReader, StreamLog};
use trodden_profile::{ImageProfile, Profile, RunStore};
use trodden_stored::maps::maps_of;
use trodden_stored::place::{LOG, with_extension};
use trodden_stored::{Folders, named as stored, streams};
use trodden_text::words::plural;

/// Segments of some runs.
pub struct ObservedSegments {
    /// The maps of the images; where programs counted, their counts.
    pub profile: Profile,
    /// For each of its images what was observed.
    pub images: Vec<CountedSegments>,
    /// Whether programs counted: then only what they were made to count is known.
    pub is_counted: bool,
}

/// A path by name, as it is in any build of the same code.
pub type NamedPath = (String, String, u64);
/// Segments by name.
pub type NamedCounts = BTreeMap<Vec<NamedPath>, u64>;

impl ObservedSegments {
    /// What a name stands for: a run or a suite, a profile, or logs.
    ///
    /// # Errors
    /// There is no such thing, or it has neither streams nor counts of segments.
    pub fn load(wanted: &str, depth: usize, folders: &Folders) -> Result<ObservedSegments> {
        let Some(observed) = ObservedSegments::load_if_any(wanted, depth, folders)? else {
            bail!(
                "`{wanted}` has no segments: record a program built with --stream by `trodden record --whole-program`, or one made by \
                    `trodden instrument PROGRAM --segments RUN`. The streams of a run in the store are found by its number"
            );
        };
        Ok(observed)
    }

    /// The same; `None` if it has no segments.
    ///
    /// # Errors
    /// There is no such thing.
    pub fn load_if_any(wanted: &str, depth: usize, folders: &Folders) -> Result<Option<ObservedSegments>> {
        let logs = logs(wanted)?;
        if !logs.is_empty() {
            return of_logs(&logs, depth, folders).map(Some);
        }
        let profile = stored::load(wanted)?;
        Ok(profile.images.iter().any(segments::are_counted).then(|| ObservedSegments::from_profile(profile)))
    }

    /// What programs counted.
    pub fn from_profile(profile: Profile) -> ObservedSegments {
        let images = profile.images.iter().map(segments::counted).collect();
        ObservedSegments { profile, images, is_counted: true }
    }

    /// Calls of the longest segment that was observed, or that a program was made to count.
    pub fn deepest(&self) -> usize {
        let all = self.images.iter().flat_map(|found| found.counts.keys().chain(&found.interesting));
        all.map(|segment| segment.len() - 1).max().unwrap_or(0)
    }

    /// All segments of a depth with their images.
    pub fn of_depth(&self, depth: usize) -> Vec<(&ImageProfile, Segment, u64)> {
        let all = self.profile.images.iter().zip(&self.images);
        all.flat_map(|(image, found)| segments::of_depth(&found.counts, depth).into_iter().map(move |(s, n)| (image, s, n))).collect()
    }

    /// The same by name.
    pub fn named(&self, depth: usize) -> NamedCounts {
        let mut out = NamedCounts::new();
        for (image, segment, count) in self.of_depth(depth) {
            *out.entry(named(image, &segment)).or_default() += count;
        }
        out
    }

    /// The segments that programs were made to count, and those of them that no code counts, by name; also the ends of longer ones, unless
    /// `alone`.
    pub fn asked(&self, depth: usize, alone: bool) -> (BTreeSet<Vec<NamedPath>>, BTreeSet<Vec<NamedPath>>) {
        let (mut asked, mut unplaced) = (BTreeSet::new(), BTreeSet::new());
        for (image, found) in self.profile.images.iter().zip(&self.images) {
            let of = |segments: &BTreeSet<Segment>| -> Vec<Vec<NamedPath>> {
                let deep = segments.iter().filter(|s| s.len() > depth && (!alone || s.len() == depth + 1));
                deep.map(|s| named(image, &s[s.len() - 1 - depth..])).collect()
            };
            asked.extend(of(&found.interesting));
            unplaced.extend(of(&found.unplaced));
        }
        (asked, unplaced)
    }
}

/// A segment by the names of its functions.
pub fn named(image: &ImageProfile, segment: &[FunctionPath]) -> Vec<NamedPath> {
    let name = |at: &FunctionPath| (unit(image, at.function).source.clone(), map(image, at.function).name.clone(), at.path);
    segment.iter().map(name).collect()
}

/// The logs of what a name stands for; none if it is no run with streams.
fn logs(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_dir() || path.extension().is_some_and(|e| e == LOG) {
        return streams::logs(wanted);
    }
    let Ok(store) = RunStore::find(Path::new(".")) else { return Ok(Vec::new()) };
    if path.is_file() {
        return Ok(Vec::new());
    }
    let folders: Vec<PathBuf> = store.select(wanted)?.into_iter().map(|run| store.streams(run.number)).collect();
    let (with, without): (Vec<PathBuf>, Vec<PathBuf>) = folders.into_iter().partition(|folder| folder.is_dir());
    if !with.is_empty() && !without.is_empty() {
        bail!("some runs of `{wanted}` have streams and others have not: name the ones or the others");
    }
    let logs = with.iter().map(|folder| with_extension(folder, LOG)).collect::<Result<Vec<_>>>()?;
    Ok(logs.concat())
}

fn of_logs(logs: &[PathBuf], depth: usize, folders: &Folders) -> Result<ObservedSegments> {
    let mut images: Vec<(ImageProfile, SegmentCounts)> = Vec::new();
    for file in logs {
        let log = streams::open_log(file)?;
        let lost: u64 = log.threads().iter().map(|t| t.lost).sum();
        if lost > 0 {
            let events = plural(lost.into(), "event", "events");
            log::warn!("{} lost {events}: calls around gaps may be missing or wrong", file.display());
        }
        let mut maps = maps_of(&log, folders)?;
        let image = maps.events.images.swap_remove(0);
        let place = images.iter().position(|i| i.0.identity == image.identity).unwrap_or_else(|| {
            images.push((image, SegmentCounts::new()));
            images.len() - 1
        });
        let (image, counts) = &mut images[place];
        for (segment, count) in read(&log, image, depth)? {
            *counts.entry(segment).or_default() += count;
        }
    }
    let (images, found): (Vec<ImageProfile>, Vec<SegmentCounts>) = images.into_iter().unzip();
    let found = found.into_iter().map(|counts| CountedSegments { counts, ..CountedSegments::default() }).collect();
    let run = trodden_profile::Run { directory: folders.current_text(), ..trodden_profile::Run::default() };
    Ok(ObservedSegments { profile: Profile { run, images, sampling: None }, images: found, is_counted: false })
}

fn read(log: &StreamLog, image: &ImageProfile, depth: usize) -> Result<SegmentCounts> {
    let mut counts = SegmentCounts::new();
    let places = Places::new(log.head(), image);
    for thread in log.threads() {
        let mut reader = SegmentReader::new(&places, depth);
        log.visit(thread, 0, |event| {
            reader.feed(event);
            true
        })?;
        for (segment, count) in reader.finish() {
            *counts.entry(segment).or_default() += count;
        }
    }
    Ok(counts)
}
