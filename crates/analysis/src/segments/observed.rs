//! The segments of runs, derived from streams if there are any, and otherwise as the program counted them. Several runs (a suite) and
//! several processes of a run are merged by image.

use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use trodden_profile::segments::{self, CountedSegments, CountsBySegment, FunctionPath, Segment, function_map, unit_map};
use trodden_profile::stream::{CounterLookup, SegmentReader, StreamLog};
use trodden_profile::{ImageProfile, Profile, RunStore};
use trodden_stored::maps::load_maps;
use trodden_stored::place::{LOG_EXTENSION, files_with_extension};
use trodden_stored::{Folders, named as stored, streams};
use trodden_text::words::plural;

/// The segments that some runs executed.
pub struct ObservedSegments {
    /// The unit maps of the images, and the counts if programs counted segments.
    pub profile: Profile,
    /// The segments observed in each image of `profile`.
    pub images: Vec<CountedSegments>,
    /// True if programs counted segments. Only the segments that the programs were built to count are then known.
    pub is_counted: bool,
}

/// A path that is named in the same way in all builds of the same code: source file, function name and path number.
pub type NamedPath = (String, String, u64);
/// Counts of segments by their named paths.
pub type NamedCounts = BTreeMap<Vec<NamedPath>, u64>;

impl ObservedSegments {
    /// Loads the segments of a run, a suite, a profile, or stream logs. Fails if the run has neither streams nor counted segments.
    pub fn load(wanted: &str, depth: usize, folders: &Folders) -> Result<ObservedSegments> {
        let Some(observed) = ObservedSegments::load_if_any(wanted, depth, folders)? else {
            bail!(
                "`{wanted}` has no segments (paths across calls). Build the program with --stream and record it with `trodden record \
                 --whole-program`, or record a program made by `trodden instrument PROGRAM --segments RUN`"
            );
        };
        Ok(observed)
    }

    /// Like [`ObservedSegments::load`], but returns `None` if there are no segments.
    pub fn load_if_any(wanted: &str, depth: usize, folders: &Folders) -> Result<Option<ObservedSegments>> {
        let logs = find_logs(wanted)?;
        if !logs.is_empty() {
            return from_logs(&logs, depth, folders).map(Some);
        }
        let profile = stored::load_profile(wanted)?;
        Ok(profile.images.iter().any(segments::counts_segments).then(|| ObservedSegments::from_profile(profile)))
    }

    /// Collects the segments that programs counted.
    pub fn from_profile(profile: Profile) -> ObservedSegments {
        let images = profile.images.iter().map(segments::counted_segments).collect();
        ObservedSegments { profile, images, is_counted: true }
    }

    /// Returns the number of calls of the longest segment that was observed or that a program was built to count.
    pub fn deepest(&self) -> usize {
        let all = self.images.iter().flat_map(|found| found.counts.keys().chain(&found.interesting));
        all.map(|segment| segment.len() - 1).max().unwrap_or(0)
    }

    /// Returns all segments with `depth` calls, each with its image and its count.
    pub fn segments_of_depth(&self, depth: usize) -> Vec<(&ImageProfile, Segment, u64)> {
        let all = self.profile.images.iter().zip(&self.images);
        all.flat_map(|(image, found)| segments::sum_to_depth(&found.counts, depth).into_iter().map(move |(s, n)| (image, s, n))).collect()
    }

    /// Returns the counts of all segments with `depth` calls, by name.
    pub fn counts_by_name(&self, depth: usize) -> NamedCounts {
        let mut out = NamedCounts::new();
        for (image, segment, count) in self.segments_of_depth(depth) {
            *out.entry(names_of_segment_paths(image, &segment)).or_default() += count;
        }
        out
    }

    /// Returns, by name, the segments that programs were built to count, and those of them that cannot be counted, because uninstrumented
    /// code makes one of their calls. Suffixes of longer segments are included unless `exact_depth_only` is true.
    pub fn requested_and_uncountable(&self, depth: usize, exact_depth_only: bool) -> (BTreeSet<Vec<NamedPath>>, BTreeSet<Vec<NamedPath>>) {
        let (mut requested, mut unplaced) = (BTreeSet::new(), BTreeSet::new());
        for (image, found) in self.profile.images.iter().zip(&self.images) {
            let of = |segments: &BTreeSet<Segment>| -> Vec<Vec<NamedPath>> {
                let deep = segments.iter().filter(|s| s.len() > depth && (!exact_depth_only || s.len() == depth + 1));
                deep.map(|s| names_of_segment_paths(image, &s[s.len() - 1 - depth..])).collect()
            };
            requested.extend(of(&found.interesting));
            unplaced.extend(of(&found.unplaced));
        }
        (requested, unplaced)
    }
}

/// Returns the names of a segment's paths, which are the same in all builds of the same code.
pub fn names_of_segment_paths(image: &ImageProfile, segment: &[FunctionPath]) -> Vec<NamedPath> {
    let name = |at: &FunctionPath| (unit_map(image, at.function).source.clone(), function_map(image, at.function).name.clone(), at.path);
    segment.iter().map(name).collect()
}

/// Returns the stream logs of the named run, or no logs if the name is not a run with streams.
pub(crate) fn find_logs(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_dir() || path.extension().is_some_and(|e| e == LOG_EXTENSION) {
        return streams::find_logs(wanted);
    }
    let Ok(store) = RunStore::find(Path::new(".")) else { return Ok(Vec::new()) };
    if path.is_file() {
        return Ok(Vec::new());
    }
    let folders: Vec<PathBuf> = store.select(wanted)?.into_iter().map(|run| store.streams(run.number)).collect();
    let (with, without): (Vec<PathBuf>, Vec<PathBuf>) = folders.into_iter().partition(|folder| folder.is_dir());
    if !with.is_empty() && !without.is_empty() {
        bail!(
            "cannot combine the runs of `{wanted}`, because only some of them have streams (recorded sequences of paths). Name only runs \
             with streams, or only runs without"
        );
    }
    let logs = with.iter().map(|folder| files_with_extension(folder, LOG_EXTENSION)).collect::<Result<Vec<_>>>()?;
    Ok(logs.concat())
}

fn from_logs(logs: &[PathBuf], depth: usize, folders: &Folders) -> Result<ObservedSegments> {
    let mut images: Vec<(ImageProfile, CountsBySegment)> = Vec::new();
    for file in logs {
        let log = streams::open_log(file)?;
        let lost: u64 = log.threads().iter().map(|t| t.lost).sum();
        if lost > 0 {
            let events = plural(lost.into(), "event", "events");
            log::warn!("{} lacks {events} that were lost during recording, so calls near the gaps may be missing or wrong", file.display());
        }
        let mut maps = load_maps(&log, folders)?;
        let image = maps.events.images.swap_remove(0);
        let place = images.iter().position(|i| i.0.identity == image.identity).unwrap_or_else(|| {
            images.push((image, CountsBySegment::new()));
            images.len() - 1
        });
        let (image, counts) = &mut images[place];
        for (segment, count) in count_segments(&log, image, depth)? {
            *counts.entry(segment).or_default() += count;
        }
    }
    let (images, found): (Vec<ImageProfile>, Vec<CountsBySegment>) = images.into_iter().unzip();
    let found = found.into_iter().map(|counts| CountedSegments { counts, ..CountedSegments::default() }).collect();
    let run = trodden_profile::Run { directory: folders.current_text(), ..trodden_profile::Run::default() };
    Ok(ObservedSegments { profile: Profile { run, images, sampling: None }, images: found, is_counted: false })
}

fn count_segments(log: &StreamLog, image: &ImageProfile, depth: usize) -> Result<CountsBySegment> {
    let mut counts = CountsBySegment::new();
    let places = CounterLookup::new(log.header(), image);
    for thread in log.threads() {
        let mut reader = SegmentReader::new(&places, depth);
        log.visit(thread, 0, |event| {
            reader.feed_symbol(event);
            true
        })?;
        for (segment, count) in reader.into_segment_counts() {
            *counts.entry(segment).or_default() += count;
        }
    }
    Ok(counts)
}
