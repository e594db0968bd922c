//! From the raw files of a run to a profile: counts joined with the maps of the units they belong to.
//!
//! An image's maps are in frames inside the image, so the image is read at the path that its process saw. If it was rebuilt, stripped or
//! removed since, the unit store is read, which has units by identity. A map found there is exactly the right one, because a unit's
//! identity is the hash of the map's input. Maps that cannot be found are listed; everything else is in the profile.

use crate::error::ProfileError;
use crate::events;
use crate::interesting;
use crate::labels;
use crate::model::{ImageProfile, Profile, Run, UnitProfile};
use crate::raw::{RawProblem, RawProfile, RawUnitCounts};
use crate::sum;
use crate::tables;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_unit::{Frame, Identity, Image, ImageError, UnitMap, UnitStore};

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
    /// The image on disk is another build than the one that ran, and the unit store lacks maps: it is not in the profile.
    #[error(
        "`{image}` was rebuilt after it ran: build {ran} was counted, the file is build {on_disk} now; {missing} units are not in the \
            unit store either: run it again"
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
    /// The image on disk is another build than the one that ran, but the unit store has all its maps: it is in the profile.
    #[error(
        "`{image}` was rebuilt after it ran: build {ran} was counted (its maps are in the unit store), the file is build {on_disk} now"
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

/// The raw files (`*.raw`) in a folder, by name. None if there is no such folder.
///
/// # Errors
/// The folder cannot be read.
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

/// Makes a profile of the raw files of a run. Files of one image are summed.
pub fn collect<P: AsRef<Path>>(files: impl IntoIterator<Item = P>, run: Run, store: Option<&UnitStore>) -> Collected {
    let (mut raws, mut unreadable) = (Vec::new(), Vec::new());
    for file in files {
        match RawProfile::read(file.as_ref()) {
            Ok(raw) => raws.push(raw),
            Err(error) => unreadable.push(CollectProblem::Unreadable(error)),
        }
    }
    let given_up = unreadable.iter().filter(|p| matches!(p, CollectProblem::Unreadable(ProfileError::GivenUp(_)))).count();
    let mut collected = join(raws, run, store);
    collected.profile.run.lost += given_up as u64;
    collected.problems.splice(0..0, unreadable);
    collected
}

/// Makes a profile of raw files that were read already. Files of one image are summed.
pub fn join(files: Vec<RawProfile>, mut run: Run, store: Option<&UnitStore>) -> Collected {
    let mut collector = Collector { store, maps: HashMap::new(), problems: Vec::new() };
    let mut raws: Vec<(RawProfile, Vec<PathBuf>)> = Vec::new();
    for raw in files {
        collector.note_problems(&raw);
        run.lost += raw.lost;
        let file = raw.file.clone();
        match raws.iter_mut().find(|(r, _)| r.image == raw.image) {
            Some((known, files)) => {
                files.push(file);
                add(known, raw);
            }
            None => raws.push((raw, vec![file])),
        }
    }
    let images = raws.into_iter().filter_map(|(raw, files)| collector.image(raw, &files)).collect();
    Collected { profile: Profile { run, images, sampling: None }, problems: collector.problems }
}

/// Adds another raw file of the same image.
fn add(known: &mut RawProfile, other: RawProfile) {
    for (unit, more) in known.units.iter_mut().zip(other.units) {
        unit.add(&more);
    }
    known.regions += other.regions;
    if known.image_path.as_os_str().is_empty() {
        known.image_path = other.image_path;
    }
}

struct Collector<'a> {
    store: Option<&'a UnitStore>,
    maps: HashMap<Identity, Arc<UnitMap>>,
    problems: Vec<CollectProblem>,
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

impl Collector<'_> {
    fn note_problems(&mut self, raw: &RawProfile) {
        let image = raw.image_path.display().to_string();
        let note = |problem: &RawProblem| CollectProblem::Raw { file: raw.file.clone(), image: image.clone(), problem: problem.clone() };
        self.problems.extend(raw.problems.iter().map(note));
    }

    fn image(&mut self, raw: RawProfile, files: &[PathBuf]) -> Option<ImageProfile> {
        let path = raw.image_path.display().to_string();
        let disk = look_at(&raw);
        let all = raw.units.len();
        let (mut units, mut missing) = (Vec::new(), Vec::new());
        let (mut tables, mut timed) = (Vec::new(), Vec::new());
        for (place, unit) in raw.units.into_iter().enumerate() {
            match self.map(&path, &unit, &disk) {
                Ok(Some(map)) => {
                    if tables::has_tables(&map) {
                        tables.push((units.len(), place));
                    }
                    let unit = match labels::has_labels(&map) {
                        true => self.by_path(&path, unit, &map),
                        false => unit,
                    };
                    let (counts, events) = if map.events().is_some() { events::take_apart(&unit) } else { (unit.counts, Vec::new()) };
                    let mut counts = interesting::by_path(&map, counts);
                    if map.has_times() {
                        timed.push((units.len(), place));
                        counts.retain(|c| c.0 < map.counters);
                    }
                    units.push(UnitProfile { unit: unit.unit, map, counts, events, first_seen: Vec::new() });
                }
                Ok(None) => missing.push(unit.unit),
                Err(what) => self.problems.push(CollectProblem::BadMap { image: path.clone(), unit: unit.unit, what }),
            }
        }
        self.read_tables(&path, files, &mut units, &tables);
        self.read_times(files, &mut units, &timed);
        let (image, ran) = (path.clone(), raw.image);
        match (disk.other, missing.is_empty()) {
            (Some(on_disk), true) => self.problems.push(CollectProblem::RebuiltButStored { image, ran, on_disk }),
            (Some(on_disk), false) => {
                self.problems.push(CollectProblem::Rebuilt { image, ran, on_disk, missing: missing.len() });
                return None;
            }
            (None, true) => {}
            (None, false) => {
                let remedy = self.remedy();
                self.problems.push(CollectProblem::NoMaps { image, ran, units: all, missing, reason: disk.reason, remedy });
            }
        }
        (!units.is_empty() || all == 0).then_some(ImageProfile { identity: raw.image, path, build_id: disk.build_id, units })
    }

    /// Replaces counts by sums of labels with counts by path.
    fn by_path(&mut self, image: &str, mut unit: RawUnitCounts, map: &UnitMap) -> RawUnitCounts {
        match labels::to_paths(map, std::mem::take(&mut unit.counts)) {
            Ok(counts) => unit.counts = counts,
            Err(what) => self.problems.push(CollectProblem::BadMap { image: image.into(), unit: unit.unit, what: what.to_string() }),
        }
        unit
    }

    /// Replaces cells of tables with counts by path. Units are given by their index in the profile and in the image.
    fn read_tables(&mut self, image: &str, files: &[PathBuf], units: &mut [UnitProfile], which: &[(usize, usize)]) {
        if which.is_empty() {
            return;
        }
        for (unit, _) in which {
            let unit = &mut units[*unit];
            unit.counts = tables::without_cells(&unit.map, std::mem::take(&mut unit.counts));
        }
        for file in files {
            let maps: Vec<_> = which.iter().map(|(unit, place)| (*place, units[*unit].map.clone())).collect();
            let maps: Vec<_> = maps.iter().map(|(place, map)| (*place, &**map)).collect();
            match tables::read(file, &maps) {
                Ok(read) => {
                    for ((unit, _), counts) in which.iter().zip(&read.counts) {
                        units[*unit].counts = sum::merge(&units[*unit].counts, counts);
                    }
                    if read.damaged > 0 {
                        let problem = RawProblem::Cells(read.damaged);
                        self.problems.push(CollectProblem::Raw { file: file.clone(), image: image.into(), problem });
                    }
                }
                Err(error) => self.problems.push(CollectProblem::Unreadable(error)),
            }
        }
    }

    /// Notes when paths were taken first: of units as for tables.
    fn read_times(&mut self, files: &[PathBuf], units: &mut [UnitProfile], which: &[(usize, usize)]) {
        let maps: Vec<_> = which.iter().map(|(unit, place)| (*place, units[*unit].map.clone())).collect();
        let maps: Vec<_> = maps.iter().map(|(place, map)| (*place, &**map)).collect();
        for file in files.iter().filter(|_| !which.is_empty()) {
            match tables::read_times(file, &maps) {
                Ok(times) => {
                    for ((unit, _), times) in which.iter().zip(&times) {
                        units[*unit].first_seen = sum::earliest(&units[*unit].first_seen, times);
                    }
                }
                Err(error) => self.problems.push(CollectProblem::Unreadable(error)),
            }
        }
    }

    /// The map of a unit: known already, from the image, or from the store. `None` if it is in none of these.
    fn map(&mut self, image: &str, unit: &RawUnitCounts, disk: &OnDisk) -> Result<Option<Arc<UnitMap>>, String> {
        let map = match self.maps.get(&unit.unit) {
            Some(map) => map.clone(),
            None => match self.find(image, unit.unit, disk)? {
                Some(map) => {
                    map.check()?;
                    self.maps.entry(unit.unit).or_insert(Arc::new(map)).clone()
                }
                None => return Ok(None),
            },
        };
        match map.words() == Some(unit.counters) {
            true => Ok(Some(map)),
            false => Err(format!("it has {} counters, the program {}", map.words().unwrap_or(u64::MAX), unit.counters)),
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
            Ok(Some(frame)) if frame.unit == unit => frame.map().map(Some).map_err(|e| format!("{}: {e}", store.path(unit).display())),
            Ok(Some(frame)) => Err(format!("{} holds unit {}", store.path(unit).display(), frame.unit)),
            Ok(None) => first.map_or(Ok(None), Err),
            Err(e) => Err(format!("{}: {e}", store.path(unit).display())),
        }
    }

    fn remedy(&self) -> String {
        match self.store {
            Some(store) => format!(
                "they are not in the unit store {} either; set TRODDEN_STORE to the store the program was built with, or build it again \
                    and run it again",
                store.root().display()
            ),
            None => "there is no unit store; set TRODDEN_STORE to the store the program was built with, or build it again and run it again"
                .into(),
        }
    }
}

fn look_at(raw: &RawProfile) -> OnDisk {
    let nothing = |reason: String| OnDisk { frames: HashMap::new(), build_id: None, other: None, reason };
    if raw.image_path.as_os_str().is_empty() {
        return nothing("and where its file is was not recorded".into());
    }
    let bytes = match std::fs::read(&raw.image_path) {
        Ok(bytes) => bytes,
        Err(e) => return nothing(format!("and its file cannot be read ({e})")),
    };
    let image = match Image::read(&bytes) {
        Ok(image) => image,
        Err(ImageError::NotInstrumented) => return nothing("and its file is not an instrumented program any more".into()),
        Err(e) => return nothing(format!("and its file is {e}")),
    };
    if image.identity != raw.image {
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
