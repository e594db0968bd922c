//! From the raw files of a run to a profile: counts joined with the maps of the units they belong to.
//!
//! An image's maps are in frames inside the image, so the image is read at the path that its process saw. If it was rebuilt, stripped or
//! removed since, the unit cache is read, which has units by identity. A map found there is exactly the right one, because a unit's
//! identity is the hash of the map's input. Maps that cannot be found are listed; everything else is in the profile.

use crate::counts::Counts;
pub use crate::decode::Decoded;
use crate::decode::UnitDecoder;
use crate::error::ProfileError;
use crate::model::{ImageProfile, Profile, Run, UnitProfile};
use crate::raw::{RawFile, RawProblem, RawProfile};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_container::FileKind;
use trodden_unit::{Frame, Identity, Image, ImageError, MapError, UnitCache, UnitMap};

/// A profile, and the problems found on the way.
#[derive(Debug)]
pub struct Collected {
    /// The profile.
    pub profile: Profile,
    /// Missing data, and remarks for the user.
    pub problems: Vec<CollectProblem>,
}

/// A problem found while a profile was made from raw files. Everything that no problem names is in the profile.
#[derive(Debug, thiserror::Error)]
pub enum CollectProblem {
    /// A raw file could not be read.
    #[error(transparent)]
    Unreadable(ProfileError),
    /// A raw file has a problem.
    #[error("{file} (counts of `{image}`): {problem}")]
    Raw {
        /// The raw file.
        file: PathBuf,
        /// The image.
        image: String,
        /// What is wrong.
        problem: RawProblem,
    },
    /// The image on disk is another build than the one that ran, and the unit cache lacks maps: it is not in the profile.
    #[error(
        "`{image}` was rebuilt after it ran: build {ran} was counted, the file is build {on_disk} now; {missing} units are not in the \
            unit cache either: run it again"
    )]
    Rebuilt {
        /// Path of the image.
        image: String,
        /// Identity of the build that ran.
        ran: Identity,
        /// Identity of the build on disk.
        on_disk: Identity,
        /// Number of units without a map.
        missing: usize,
    },
    /// The image on disk is another build than the one that ran, but the unit cache has all its maps: it is in the profile.
    #[error(
        "`{image}` was rebuilt after it ran: build {ran} was counted (its maps are in the unit cache), the file is build {on_disk} now"
    )]
    RebuiltButStored {
        /// Path of the image.
        image: String,
        /// Identity of the build that ran.
        ran: Identity,
        /// Identity of the build on disk.
        on_disk: Identity,
    },
    /// Units without a map: they are not in the profile.
    #[error("`{image}` (build {ran}): no map of {} of its {units} units ({}), {reason}: {remedy}", .missing.len(), some(.missing))]
    NoMaps {
        /// Path of the image.
        image: String,
        /// Its identity.
        ran: Identity,
        /// Number of all its units.
        units: usize,
        /// Those without a map.
        missing: Vec<Identity>,
        /// Why the image itself gave none.
        reason: String,
        /// The remedy.
        remedy: String,
    },
    /// The map of a unit is damaged, or of another program: the unit is not in the profile.
    #[error("`{image}`: the map of unit {unit} is damaged: {what}: build the program again and run it again")]
    BadMap {
        /// Path of the image.
        image: String,
        /// The unit.
        unit: Identity,
        /// What is wrong.
        what: String,
    },
}

impl CollectProblem {
    /// Whether counts are missing in a way that the profile itself says ([`Run::lost`]).
    pub fn is_marked(&self) -> bool {
        let is_lost = |problem: &RawProblem| matches!(problem, RawProblem::Lost { .. });
        matches!(self, CollectProblem::Raw { problem, .. } if is_lost(problem))
            || matches!(self, CollectProblem::Unreadable(ProfileError::GivenUp(_)))
    }

    /// Whether counts are missing or unreliable. Otherwise the problem is a remark.
    pub fn loses_counts(&self) -> bool {
        !matches!(self, CollectProblem::RebuiltButStored { .. } | CollectProblem::Unreadable(ProfileError::NotReady(_)))
    }
}

/// Whether a file is what a counted program wrote, by its first bytes.
pub fn is_raw_file(file: &Path) -> bool {
    crate::raw::begins_as(file, FileKind::RAW_COUNTS)
}

/// The raw files (`*.raw`) in a folder, by name. None if there is no such folder.
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

/// Makes a profile of the raw files of a run. Files of one image are added up; each file is opened once, and read to its end.
pub fn collect<P: AsRef<Path>>(files: impl IntoIterator<Item = P>, mut run: Run, store: Option<&UnitCache>) -> Collected {
    let mut collector = Collector::new(store);
    // What does not know its image's path is read when another file may have named it.
    let mut without_path = Vec::new();
    for file in files {
        match RawFile::open(file.as_ref()) {
            Ok(raw) if raw.image_path.as_os_str().is_empty() => without_path.push(raw),
            Ok(raw) => collector.read(raw),
            Err(error) => collector.unreadable.push(error),
        }
    }
    without_path.into_iter().for_each(|raw| collector.read(raw));
    run.lost += collector.unreadable.iter().filter(|e| matches!(e, ProfileError::GivenUp(_))).count() as u64;
    collector.finish(run)
}

/// Makes a profile of raw files that were read already. Files of one image are added up.
pub fn join(files: Vec<RawProfile>, run: Run, store: Option<&UnitCache>) -> Collected {
    let mut collector = Collector::new(store);
    files.into_iter().for_each(|raw| collector.add(raw));
    collector.finish(run)
}

/// What the counters of an image's units hold in one raw file, unit by unit in the order of the image.
///
/// # Errors
/// As of [`RawProfile::read`]; of a unit, that its map is damaged.
pub fn counters(file: &Path, maps: &[&UnitMap]) -> Result<Vec<Result<Decoded, MapError>>, ProfileError> {
    let mut raw = RawFile::open(file)?;
    let mut decoders: Vec<UnitDecoder> = maps.iter().map(|map| UnitDecoder::new(map)).collect();
    raw.each_word(&mut |unit, word| {
        if let Some(decoder) = decoders.get_mut(unit) {
            decoder.word(word.index, word.offset, word.value);
        }
    })?;
    Ok(decoders.into_iter().map(UnitDecoder::finish).collect())
}

struct Collector<'a> {
    store: Option<&'a UnitCache>,
    maps: HashMap<Identity, Arc<UnitMap>>,
    /// In the order in which they were found.
    images: Vec<ImageCounts>,
    /// Threads whose counts are in no file.
    lost: u64,
    unreadable: Vec<ProfileError>,
    /// Of files, and of images.
    problems: Vec<CollectProblem>,
    image_problems: Vec<CollectProblem>,
}

/// An image in the making.
struct ImageCounts {
    identity: Identity,
    path: String,
    build_id: Option<String>,
    /// Whether enough of its maps were found.
    is_known: bool,
    /// By place in the image; none without a map.
    units: Vec<Option<UnitProfile>>,
}

/// What was found in an image's file.
struct OnDisk {
    frames: HashMap<Identity, Frame>,
    build_id: Option<String>,
    /// Its identity, if it is another build.
    other: Option<Identity>,
    /// Why there are no (or not all) frames.
    reason: String,
}

impl<'a> Collector<'a> {
    fn new(store: Option<&'a UnitCache>) -> Collector<'a> {
        let (problems, image_problems) = (Vec::new(), Vec::new());
        Collector { store, maps: HashMap::new(), images: Vec::new(), lost: 0, unreadable: Vec::new(), problems, image_problems }
    }

    /// Adds what a file holds, if all of it can be read.
    fn read(&mut self, mut raw: RawFile) {
        let units: Vec<(Identity, u64)> = raw.units.iter().map(|u| (Identity(u.unit), u.counters)).collect();
        let image = self.image(Identity(raw.header.image), &raw.image_path, &units);
        let maps = self.maps_of(image);
        let mut decoders: Vec<Option<UnitDecoder>> = maps.iter().map(|map| map.as_deref().map(UnitDecoder::new)).collect();
        let read = raw.each_word(&mut |unit, word| {
            if let Some(decoder) = &mut decoders[unit] {
                decoder.word(word.index, word.offset, word.value);
            }
        });
        match read {
            Ok(()) => {
                self.lost += raw.lost;
                self.note(&raw.file.path, &raw.image_path, raw.problems);
                self.put(image, &raw.file.path, &raw.image_path, decoders);
            }
            Err(error) => self.unreadable.push(error),
        }
    }

    /// Adds the sums over the regions of a file.
    fn add(&mut self, raw: RawProfile) {
        let units: Vec<(Identity, u64)> = raw.units.iter().map(|u| (u.unit, u.counters)).collect();
        let image = self.image(raw.image, &raw.image_path, &units);
        let maps = self.maps_of(image);
        let mut decoders: Vec<Option<UnitDecoder>> = maps.iter().map(|map| map.as_deref().map(UnitDecoder::new)).collect();
        for (unit, decoder) in raw.units.iter().zip(&mut decoders) {
            if let Some(decoder) = decoder {
                unit.wide().for_each(|(index, value)| decoder.sum(index, value));
            }
        }
        self.lost += raw.lost;
        self.note(&raw.file, &raw.image_path, raw.problems);
        self.put(image, &raw.file, &raw.image_path, decoders);
    }

    fn note(&mut self, file: &Path, image: &Path, problems: Vec<RawProblem>) {
        // Regions are threads': of those whose region is damaged, counts are lost. The profile says so from now on.
        let is_damage =
            |problem: &&RawProblem| matches!(problem, RawProblem::CutShort { .. } | RawProblem::Stray { .. } | RawProblem::Cells(_));
        self.lost += problems.iter().filter(is_damage).count() as u64;
        let image = image.display().to_string();
        let note = |problem| CollectProblem::Raw { file: file.to_owned(), image: image.clone(), problem };
        self.problems.extend(problems.into_iter().map(note));
    }

    fn maps_of(&self, image: usize) -> Vec<Option<Arc<UnitMap>>> {
        self.images[image].units.iter().map(|unit| unit.as_ref().map(|u| u.map.clone())).collect()
    }

    /// Adds what was decoded to an image's units.
    fn put(&mut self, image: usize, file: &Path, image_path: &Path, decoders: Vec<Option<UnitDecoder>>) {
        for (place, decoder) in decoders.into_iter().enumerate() {
            let Some(decoder) = decoder else { continue };
            let image = &mut self.images[image];
            let unit = image.units[place].as_mut().expect("what has a decoder has a map");
            match decoder.finish() {
                Ok(decoded) => {
                    unit.counts.merge(&decoded.counts);
                    if decoded.damaged_cells > 0 {
                        let cells = RawProblem::Cells(decoded.damaged_cells);
                        self.note(file, image_path, vec![cells]);
                    }
                }
                Err(what) => {
                    let (image, unit, what) = (image.path.clone(), unit.unit, what.to_string());
                    self.image_problems.push(CollectProblem::BadMap { image, unit, what });
                }
            }
        }
    }

    /// The profile.
    fn finish(self, mut run: Run) -> Collected {
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
        Collected { profile: Profile { run, images, sampling: None }, problems }
    }

    /// The place of an image, whose maps are looked for where it comes first.
    fn image(&mut self, ran: Identity, path: &Path, units: &[(Identity, u64)]) -> usize {
        if let Some(known) = self.images.iter().position(|i| i.identity == ran) {
            return known;
        }
        let disk = look_at(ran, path);
        let image = path.display().to_string();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for &(unit, words) in units {
            let map = match self.map(&image, unit, words, &disk) {
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
            (Some(on_disk), true) => self.image_problems.push(CollectProblem::RebuiltButStored { image, ran, on_disk }),
            (Some(on_disk), false) => {
                self.image_problems.push(CollectProblem::Rebuilt { image, ran, on_disk, missing: missing.len() });
            }
            (None, true) => {}
            (None, false) => {
                let (units, reason, remedy) = (units.len(), disk.reason, self.remedy());
                self.image_problems.push(CollectProblem::NoMaps { image, ran, units, missing, reason, remedy });
            }
        }
        self.images.len() - 1
    }

    /// The map of a unit: known already, from the image, or from the store. `None` if neither has it.
    fn map(&mut self, image: &str, unit: Identity, words: u64, disk: &OnDisk) -> Result<Option<Arc<UnitMap>>, String> {
        let map = match self.maps.get(&unit) {
            Some(map) => map.clone(),
            None => match self.find(image, unit, disk)? {
                Some(map) => {
                    map.check()?;
                    self.maps.entry(unit).or_insert(Arc::new(map)).clone()
                }
                None => return Ok(None),
            },
        };
        match map.words() == Some(words) {
            true => Ok(Some(map)),
            false => Err(format!("it has {} counters, the program {words}", map.words().unwrap_or(u64::MAX))),
        }
    }

    fn find(&mut self, image: &str, unit: Identity, disk: &OnDisk) -> Result<Option<UnitMap>, String> {
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

    fn remedy(&self) -> String {
        match self.store {
            Some(store) => format!(
                "they are not in the unit cache {} either; set TRODDEN_CACHE to the store the program was built with, or build it again \
                    and run it again",
                store.root().display()
            ),
            None => "there is no unit cache; set TRODDEN_CACHE to the store the program was built with, or build it again and run it again"
                .into(),
        }
    }
}

fn look_at(ran: Identity, path: &Path) -> OnDisk {
    let nothing = |reason: String| OnDisk { frames: HashMap::new(), build_id: None, other: None, reason };
    if path.as_os_str().is_empty() {
        return nothing("and where its file is was not recorded".into());
    }
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => return nothing(format!("and its file cannot be read ({e})")),
    };
    let image = match Image::read(&bytes) {
        Ok(image) => image,
        Err(ImageError::NotInstrumented) => return nothing("and its file is not an instrumented program any more".into()),
        Err(e) => return nothing(format!("and its file is {e}")),
    };
    if image.identity != ran {
        return OnDisk { other: Some(image.identity), ..nothing("and its file is another build".into()) };
    }
    let reason = match image.frame_errors.first() {
        Some(error) => format!("and its file is damaged ({error})"),
        None => "and its file does not carry them (was it stripped?)".into(),
    };
    let frames = image.frames.into_iter().map(|f| (f.unit, f)).collect();
    OnDisk { frames, build_id: image.build_id, other: None, reason }
}

/// The first few of a list.
fn some(units: &[Identity]) -> String {
    const SHOWN: usize = 3;
    let mut text: Vec<String> = units.iter().take(SHOWN).map(|u| u.to_string()).collect();
    if units.len() > SHOWN {
        text.push("...".into());
    }
    text.join(", ")
}
