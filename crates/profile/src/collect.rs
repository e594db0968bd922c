//! Builds a profile from the raw files of a run: joins the counts in these files with the maps of the compilation units.
//!
//! An instrumented executable or shared library (an image) contains its units' maps, so they are read from the path from which the profiled
//! process loaded the image. If this file has since been rebuilt, stripped or removed, the maps are read from the unit cache. Both are the
//! same, since a unit's identity is a hash of the map's input. Units whose maps cannot be found are reported and left out of the profile.

use crate::counts::Counts;
pub use crate::decode::DecodedCounters;
use crate::decode::UnitDecoder;
use crate::error::ProfileError;
use crate::model::{ImageProfile, Profile, Run, UnitProfile};
use crate::raw::{RawFile, RawProblem, RawProfile};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_container::FileKind;
use trodden_unit::{Frame, Identity, ImageError, InstrumentedImage, MapError, UnitCache, UnitMap};

/// A profile, and the problems found while it was built.
#[derive(Debug)]
pub struct CollectedProfile {
    /// The profile.
    pub profile: Profile,
    /// Missing data, and informational notes for the user.
    pub problems: Vec<CollectProblem>,
}

/// A problem found while a profile was built. Only data that such a problem mentions is missing from the profile.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum CollectProblem {
    #[error(transparent)]
    Unreadable(ProfileError),
    #[error("{file} (counts of `{image}`): {problem}")]
    Raw { file: PathBuf, image: String, problem: RawProblem },
    /// The image's file has been rebuilt since the run, and the unit cache lacks some of its maps. The image is left out of the profile.
    #[error(
        "`{image}` is not in the profile: it was rebuilt after it ran (build {ran} was counted, the file is now build {on_disk}), and the \
         unit cache lacks the maps (blocks and paths) of {missing} of the compilation units that ran. Record again"
    )]
    Rebuilt {
        image: String,
        ran: Identity,
        on_disk: Identity,
        /// Number of units without a map.
        missing: usize,
    },
    /// The image's file has been rebuilt since the run, but the unit cache has all its maps. The image is in the profile.
    #[error("`{image}` was rebuilt after it ran: the profile describes the old build {ran}, not the file's current build {on_disk}")]
    RebuiltButCached { image: String, ran: Identity, on_disk: Identity },
    #[error(
        "`{image}` (build {ran}): the profile lacks {} of its {units} compilation units, which have no map of their paths ({}), because \
         {reason}, {remedy}",
        .missing.len(), join_first_few(.missing)
    )]
    NoMaps {
        image: String,
        ran: Identity,
        units: usize,
        missing: Vec<Identity>,
        /// Why the maps cannot be read from the image's file.
        reason: String,
        /// Why the maps cannot be read from the unit cache either, and what the user can do.
        remedy: String,
    },
    #[error(
        "`{image}`: the map (blocks and paths) of compilation unit {unit} is corrupt ({what}), so the profile lacks this unit. Rebuild the \
         program and run it again"
    )]
    BadMap { image: String, unit: Identity, what: String },
}

impl CollectProblem {
    /// Returns whether the problem is only that counts are missing, and the profile already says so in [`Run::lost`].
    pub fn is_recorded_in_profile(&self) -> bool {
        let is_lost = |problem: &RawProblem| matches!(problem, RawProblem::Lost { .. });
        matches!(self, CollectProblem::Raw { problem, .. } if is_lost(problem))
            || matches!(self, CollectProblem::Unreadable(ProfileError::GivenUp(_)))
    }

    /// Returns whether counts are missing or unreliable. All other problems are informational.
    pub fn loses_counts(&self) -> bool {
        !matches!(self, CollectProblem::RebuiltButCached { .. } | CollectProblem::Unreadable(ProfileError::NotReady(_)))
    }
}

/// Returns whether a file has the header of a raw file, to which an instrumented program writes its counts.
pub fn is_raw_file(file: &Path) -> bool {
    crate::raw::has_kind(file, FileKind::RAW_COUNTS)
}

/// Lists the raw files (`*.raw`) in a folder, sorted by name. The list is empty if the folder does not exist.
pub fn raw_files(folder: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    let failed = |e| ProfileError::io(folder, "read")(e);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|e| e == "raw") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Builds a profile from the raw files of a run. Adds the counts of files that belong to the same image.
pub fn collect<P: AsRef<Path>>(files: impl IntoIterator<Item = P>, mut run: Run, store: Option<&UnitCache>) -> CollectedProfile {
    let mut collector = ProfileCollector::new(store);
    // Files that do not record the path of their image are read last: another file of the same image may have provided the path by then.
    let mut unnamed = Vec::new();
    for file in files {
        match RawFile::open(file.as_ref()) {
            Ok(raw) if raw.image_path.as_os_str().is_empty() => unnamed.push(raw),
            Ok(raw) => collector.read(raw),
            Err(error) => collector.unreadable.push(error),
        }
    }
    unnamed.into_iter().for_each(|raw| collector.read(raw));
    run.lost += collector.unreadable.iter().filter(|e| matches!(e, ProfileError::GivenUp(_))).count() as u64;
    collector.into_collected_profile(run)
}

/// Like [`collect`], for raw files that are already in memory.
pub fn collect_loaded(files: Vec<RawProfile>, run: Run, store: Option<&UnitCache>) -> CollectedProfile {
    let mut collector = ProfileCollector::new(store);
    files.into_iter().for_each(|raw| collector.add(raw));
    collector.into_collected_profile(run)
}

/// Decodes the counters of one raw file. `maps` are the maps of the image's units in the image's order; the results are in the same order.
/// Fails like [`RawProfile::read`]. An inner result is an error if the map of that unit is corrupt.
pub fn decode_counters(file: &Path, maps: &[&UnitMap]) -> Result<Vec<Result<DecodedCounters, MapError>>, ProfileError> {
    let mut raw = RawFile::open(file)?;
    let mut decoders: Vec<UnitDecoder> = maps.iter().map(|map| UnitDecoder::new(map)).collect();
    raw.for_each_word(&mut |unit, word| {
        if let Some(decoder) = decoders.get_mut(unit) {
            decoder.add_word(word.index, word.offset, word.value);
        }
    })?;
    Ok(decoders.into_iter().map(UnitDecoder::into_decoded_counters).collect())
}

struct ProfileCollector<'a> {
    store: Option<&'a UnitCache>,
    maps: HashMap<Identity, Arc<UnitMap>>,
    /// The executables and shared libraries, in the order in which they were found.
    images: Vec<ImageCounts>,
    /// Number of threads whose counts are missing.
    lost: u64,
    unreadable: Vec<ProfileError>,
    problems: Vec<CollectProblem>,
    image_problems: Vec<CollectProblem>,
}

struct ImageCounts {
    identity: Identity,
    path: String,
    build_id: Option<String>,
    /// False if the image's file now contains a different build, and maps of some of its units were not found elsewhere. Such an image is
    /// left out of the profile.
    is_known: bool,
    /// Units in the image's order; `None` for a unit without a usable map.
    units: Vec<Option<UnitProfile>>,
}

struct ImageFile {
    frames: HashMap<Identity, Frame>,
    build_id: Option<String>,
    /// Identity of the build that is in the file now, if it is not the build that ran.
    other: Option<Identity>,
    reason: String,
}

impl<'a> ProfileCollector<'a> {
    fn new(store: Option<&'a UnitCache>) -> ProfileCollector<'a> {
        let (problems, image_problems) = (Vec::new(), Vec::new());
        ProfileCollector { store, maps: HashMap::new(), images: Vec::new(), lost: 0, unreadable: Vec::new(), problems, image_problems }
    }

    /// Adds the counts of a raw file. Adds nothing if reading fails.
    fn read(&mut self, mut raw: RawFile) {
        let units: Vec<(Identity, u64)> = raw.units.iter().map(|u| (Identity(u.unit), u.counters)).collect();
        let image = self.find_or_add_image(Identity(raw.header.image), &raw.image_path, &units);
        let maps = self.maps_of(image);
        let mut decoders: Vec<Option<UnitDecoder>> = maps.iter().map(|map| map.as_deref().map(UnitDecoder::new)).collect();
        let read = raw.for_each_word(&mut |unit, word| {
            if let Some(decoder) = &mut decoders[unit] {
                decoder.add_word(word.index, word.offset, word.value);
            }
        });
        match read {
            Ok(()) => {
                self.lost += raw.lost;
                self.add_problems(&raw.file.path, &raw.image_path, raw.problems);
                self.add_decoded_counts(image, &raw.file.path, &raw.image_path, decoders);
            }
            Err(error) => self.unreadable.push(error),
        }
    }

    /// Adds the counts of a raw file whose regions (one for each thread) are already summed.
    fn add(&mut self, raw: RawProfile) {
        let units: Vec<(Identity, u64)> = raw.units.iter().map(|u| (u.unit, u.counters)).collect();
        let image = self.find_or_add_image(raw.image, &raw.image_path, &units);
        let maps = self.maps_of(image);
        let mut decoders: Vec<Option<UnitDecoder>> = maps.iter().map(|map| map.as_deref().map(UnitDecoder::new)).collect();
        for (unit, decoder) in raw.units.iter().zip(&mut decoders) {
            if let Some(decoder) = decoder {
                unit.sums_with_overflow().for_each(|(index, value)| decoder.add_sum(index, value));
            }
        }
        self.lost += raw.lost;
        self.add_problems(&raw.file, &raw.image_path, raw.problems);
        self.add_decoded_counts(image, &raw.file, &raw.image_path, decoders);
    }

    fn add_problems(&mut self, file: &Path, image: &Path, problems: Vec<RawProblem>) {
        // Each region belongs to one thread, so each corrupt region loses the counts of one thread.
        let is_corrupt =
            |problem: &&RawProblem| matches!(problem, RawProblem::Truncated { .. } | RawProblem::Stray { .. } | RawProblem::Cells(_));
        self.lost += problems.iter().filter(is_corrupt).count() as u64;
        let image = image.display().to_string();
        let located = |problem| CollectProblem::Raw { file: file.to_owned(), image: image.clone(), problem };
        self.problems.extend(problems.into_iter().map(located));
    }

    fn maps_of(&self, image: usize) -> Vec<Option<Arc<UnitMap>>> {
        self.images[image].units.iter().map(|unit| unit.as_ref().map(|u| u.map.clone())).collect()
    }

    fn add_decoded_counts(&mut self, image: usize, file: &Path, image_path: &Path, decoders: Vec<Option<UnitDecoder>>) {
        for (index, decoder) in decoders.into_iter().enumerate() {
            let Some(decoder) = decoder else { continue };
            let image = &mut self.images[image];
            let unit = image.units[index].as_mut().expect("a unit with a decoder has a map");
            match decoder.into_decoded_counters() {
                Ok(decoded) => {
                    unit.counts.merge(&decoded.counts);
                    if decoded.invalid_cells > 0 {
                        let cells = RawProblem::Cells(decoded.invalid_cells);
                        self.add_problems(file, image_path, vec![cells]);
                    }
                }
                Err(what) => {
                    let (image, unit, what) = (image.path.clone(), unit.unit, what.to_string());
                    self.image_problems.push(CollectProblem::BadMap { image, unit, what });
                }
            }
        }
    }

    fn into_collected_profile(self, mut run: Run) -> CollectedProfile {
        run.lost += self.lost;
        let image = |image: ImageCounts| {
            let all = image.units.len();
            let units: Vec<UnitProfile> = image.units.into_iter().flatten().collect();
            let is_shown = image.is_known && (!units.is_empty() || all == 0);
            is_shown.then_some(ImageProfile { identity: image.identity, path: image.path, build_id: image.build_id, units })
        };
        let images = self.images.into_iter().filter_map(image).collect();
        let unreadable = self.unreadable.into_iter().map(CollectProblem::Unreadable);
        let problems = unreadable.chain(self.problems).chain(self.image_problems).collect();
        CollectedProfile { profile: Profile { run, images, sampling: None }, problems }
    }

    /// Returns the index of an image in `images`. Adds a new image, with the maps of its units.
    fn find_or_add_image(&mut self, ran: Identity, path: &Path, units: &[(Identity, u64)]) -> usize {
        if let Some(known) = self.images.iter().position(|i| i.identity == ran) {
            return known;
        }
        let disk = read_image(ran, path);
        let image = path.display().to_string();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for &(unit, words) in units {
            let map = match self.find_map(&image, unit, words, &disk) {
                Ok(map) => {
                    missing.extend(map.is_none().then_some(unit));
                    map
                }
                Err(what) => {
                    self.image_problems.push(CollectProblem::BadMap { image: image.clone(), unit, what });
                    None
                }
            };
            found.push(map.map(|map| UnitProfile { unit, map, counts: Counts::default() }));
        }
        let is_known = disk.other.is_none() || missing.is_empty();
        self.images.push(ImageCounts { identity: ran, path: image.clone(), build_id: disk.build_id, is_known, units: found });
        match (disk.other, missing.is_empty()) {
            (Some(on_disk), true) => self.image_problems.push(CollectProblem::RebuiltButCached { image, ran, on_disk }),
            (Some(on_disk), false) => {
                self.image_problems.push(CollectProblem::Rebuilt { image, ran, on_disk, missing: missing.len() });
            }
            (None, true) => {}
            (None, false) => {
                let (units, reason, remedy) = (units.len(), disk.reason, self.describe_remedy());
                self.image_problems.push(CollectProblem::NoMaps { image, ran, units, missing, reason, remedy });
            }
        }
        self.images.len() - 1
    }

    /// Finds a unit's map in memory, in the image or in the unit cache; `None` if none of them has it. Fails if the map is corrupt or does
    /// not fit the number of counters in the raw file (`words`).
    fn find_map(&mut self, image: &str, unit: Identity, words: u64, disk: &ImageFile) -> Result<Option<Arc<UnitMap>>, String> {
        let map = match self.maps.get(&unit) {
            Some(map) => map.clone(),
            None => match self.load_map(image, unit, disk)? {
                Some(map) => {
                    map.check()?;
                    self.maps.entry(unit).or_insert(Arc::new(map)).clone()
                }
                None => return Ok(None),
            },
        };
        match map.words_per_region() == Some(words) {
            true => Ok(Some(map)),
            false => Err(format!("it has {} counters, the program has {words}", map.words_per_region().unwrap_or(u64::MAX))),
        }
    }

    fn load_map(&mut self, image: &str, unit: Identity, disk: &ImageFile) -> Result<Option<UnitMap>, String> {
        let mut first = None;
        if let Some(frame) = disk.frames.get(&unit) {
            match frame.map() {
                Ok(map) => return Ok(Some(map)),
                Err(e) => first = Some(format!("in `{image}`: {e}")),
            }
        }
        let Some(store) = self.store else { return first.map_or(Ok(None), Err) };
        match store.get(unit) {
            Ok(Some(frame)) => frame.map().map(Some).map_err(|e| format!("{}: {e}", store.path(unit).display())),
            Ok(None) => first.map_or(Ok(None), Err),
            Err(e) => Err(format!("{}: {e}", store.path(unit).display())),
        }
    }

    fn describe_remedy(&self) -> String {
        match self.store {
            Some(store) => format!(
                "and the maps are not in the unit cache {} either. Set TRODDEN_CACHE to the cache that the program was built with, or \
                 rebuild the program and run it again",
                store.root().display()
            ),
            None => {
                "and there is no unit cache. Set TRODDEN_CACHE to the cache that the program was built with, or rebuild the program and \
                    run it again"
                    .into()
            }
        }
    }
}

fn read_image(ran: Identity, path: &Path) -> ImageFile {
    let nothing = |reason: String| ImageFile { frames: HashMap::new(), build_id: None, other: None, reason };
    if path.as_os_str().is_empty() {
        return nothing("the path of its file was not recorded".into());
    }
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => return nothing(format!("its file cannot be read ({e})")),
    };
    let image = match InstrumentedImage::read(&bytes) {
        Ok(image) => image,
        Err(ImageError::NotInstrumented) => return nothing("its file is no longer an instrumented program".into()),
        Err(e) => return nothing(format!("its file is {e}")),
    };
    if image.identity != ran {
        return ImageFile { other: Some(image.identity), ..nothing("its file is a different build".into()) };
    }
    let reason = match image.frame_errors.first() {
        Some(error) => format!("its file is corrupt ({error})"),
        None => "its file does not contain them (was it stripped?)".into(),
    };
    let frames = image.frames.into_iter().map(|f| (f.unit, f)).collect();
    ImageFile { frames, build_id: image.build_id, other: None, reason }
}

fn join_first_few(units: &[Identity]) -> String {
    const MAX_LISTED: usize = 3;
    let mut text: Vec<String> = units.iter().take(MAX_LISTED).map(|u| u.to_string()).collect();
    if units.len() > MAX_LISTED {
        text.push("...".into());
    }
    text.join(", ")
}
