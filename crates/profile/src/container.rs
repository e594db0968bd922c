//! Stored profiles: files that contain everything needed to show and compare profiles, including the maps of the units.
//!
//! The handbook describes the format (`docs/handbook/src/file-formats.md`); [`crate::blocks`] reads and writes its blocks. Each block has
//! its own checksum, so the intact blocks of a corrupt file can be recovered. Files are replaced atomically, so readers never see an
//! incomplete one.

use crate::atomic_file::{self, FilePermissions};
pub use crate::blocks::UnitMapsByIdentity;
use crate::blocks::{
    BlockContent, BlockOrGap, BlockReadMode, BlockReader, BlockWriter, CountsBlock, EventsBlock, FILE_HEADER_LENGTH, ImageBlock,
    ImageUnitEntry, ProfileBlockHeader, ProfileBlockKind,
};
use crate::counts::Counts;
use crate::error::ProfileError;
use crate::model::{ImageProfile, Profile, Run, UnitProfile};
use crate::sampling::Sampling;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use trodden_unit::Identity;

/// Prefix of the temporary file names under which profiles are written before they are complete.
pub const TEMPORARY_PREFIX: &str = ".profile-";
/// Usual file name extension of stored profiles.
pub const PROFILE_EXTENSION: &str = "trodden";

/// The profile that was recovered from a possibly corrupt file.
#[derive(Clone, Debug)]
pub struct RecoveredProfile {
    /// The profile made of the intact blocks. Counts that were lost are zero.
    pub profile: Profile,
    /// The lost parts; empty if the file is intact.
    pub lost: Vec<LostProfilePart>,
}

/// A part of a stored profile that is missing or unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct LostProfilePart {
    /// Offset in the file.
    pub offset: u64,
    /// What was lost, and why.
    pub what: String,
}

impl Profile {
    /// Reads a stored profile. Fails if the file cannot be read, is of a different kind or version, or has any corrupt part.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        Profile::read_with_shared_maps(path, &mut UnitMapsByIdentity::new())
    }

    /// Reads a stored profile. Uses the unit maps that are already in `maps`, and adds the others to it. Fails like [`Profile::read`].
    pub fn read_with_shared_maps(path: &Path, maps: &mut UnitMapsByIdentity) -> Result<Profile, ProfileError> {
        let recovered = assemble_profile(path, maps, true)?;
        Ok(recovered.profile)
    }

    /// Reads the intact part of a stored profile. Fails if the file cannot be read, is of a different kind or version, or contains no
    /// intact image.
    pub fn recover(path: &Path) -> Result<RecoveredProfile, ProfileError> {
        Profile::recover_with_shared_maps(path, &mut UnitMapsByIdentity::new())
    }

    /// Reads the intact part of a stored profile, sharing maps like [`Profile::read_with_shared_maps`]. Fails like [`Profile::recover`].
    pub fn recover_with_shared_maps(path: &Path, maps: &mut UnitMapsByIdentity) -> Result<RecoveredProfile, ProfileError> {
        let recovered = assemble_profile(path, maps, false)?;
        match recovered.profile.images.is_empty() && !recovered.lost.is_empty() {
            true => Err(ProfileError::NothingIntact { path: path.to_owned(), lost: recovered.lost.len() }),
            false => Ok(recovered),
        }
    }

    /// Writes the profile to a file by atomic replacement ([`atomic_file`]). Only the owner can read the file, since its command line may
    /// contain a password.
    pub fn write(&self, path: &Path) -> Result<(), ProfileError> {
        let failed = |e| ProfileError::io(path, "write")(e);
        atomic_file::write_with_access(path, TEMPORARY_PREFIX, FilePermissions::OWNER_ONLY, |out| self.write_to(out)).map_err(failed)
    }

    /// Writes the profile, in the format of a stored profile, to any kind of output.
    pub fn write_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut blocks = BlockWriter::new(out)?;
        blocks.write_block(ProfileBlockKind::Run, Identity([0; 16]), &self.run)?;
        if let Some(sampling) = &self.sampling {
            blocks.write_block(ProfileBlockKind::Sampling, Identity([0; 16]), sampling)?;
        }
        let mut written = HashSet::new();
        for (number, image) in self.images.iter().enumerate() {
            for unit in &image.units {
                if written.insert(unit.unit) {
                    blocks.write_block(ProfileBlockKind::Map, unit.unit, &*unit.map)?;
                }
            }
            let entry = |u: &UnitProfile| ImageUnitEntry { unit: u.unit, executed: u.counts.executions.len() as u64 };
            let units = image.units.iter().map(entry).collect();
            let (path, build_id) = (image.path.clone(), image.build_id.clone());
            blocks.write_block(ProfileBlockKind::Image, image.identity, &ImageBlock { number: number as u32, path, build_id, units })?;
            for (place, unit) in image.units.iter().enumerate().filter(|(_, u)| !u.counts.is_empty()) {
                blocks.write_block(
                    ProfileBlockKind::Counts,
                    unit.unit,
                    &CountsBlock::delta_encode_counts(number as u32, place as u32, &unit.counts.executions),
                )?;
                if !unit.counts.events.is_empty() {
                    let events = EventsBlock { image: number as u32, place: place as u32, events: unit.counts.events.clone() };
                    blocks.write_block(ProfileBlockKind::Events, unit.unit, &events)?;
                }
                if !unit.counts.first_seen.is_empty() {
                    blocks.write_block(
                        ProfileBlockKind::Times,
                        unit.unit,
                        &CountsBlock::delta_encode_counts(number as u32, place as u32, &unit.counts.first_seen),
                    )?;
                }
            }
        }
        blocks.write_end_block()
    }
}

/// The part of a stored profile that a run store needs to list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileHeader {
    /// The run.
    pub run: Run,
    /// Identity, path and linker's build ID of each image.
    pub images: Vec<(Identity, String, Option<String>)>,
}

impl ProfileHeader {
    /// Reads the run and the images, and checks that the profile is complete: all checksums match, and the end block is present. Does not
    /// decompress maps and counts. Fails if the file cannot be read, is of a different kind or version, or has any corrupt part.
    pub fn read(path: &Path) -> Result<ProfileHeader, ProfileError> {
        let file = open_regular_file(path)?;
        let mut blocks = BlockReader::new(path, file)?;
        let corrupt = |offset, what: &str| ProfileError::Corrupt { path: path.to_owned(), offset, what: what.to_owned() };
        let (mut run, mut images, mut number, mut complete) = (None, Vec::new(), 0, false);
        let mode = |kind, _| match kind {
            ProfileBlockKind::Run | ProfileBlockKind::Image | ProfileBlockKind::End => BlockReadMode::Decode,
            _ => BlockReadMode::Verify,
        };
        while let Some(item) = blocks.next(&mode)? {
            match item {
                BlockOrGap::Corrupt { offset, what } => return Err(corrupt(offset, &what)),
                BlockOrGap::Block { offset, .. } if complete => return Err(corrupt(offset, "unexpected data after the end block")),
                BlockOrGap::Block { offset, header, content } => match *content {
                    BlockContent::Run(found) => run = Some(found),
                    BlockContent::Image(image) => images.push((header.subject, image.path, image.build_id)),
                    BlockContent::End(blocks) if blocks != number => {
                        return Err(corrupt(offset, "blocks are missing before the end block"));
                    }
                    BlockContent::End(_) => complete = true,
                    _ => {}
                },
            }
            number += 1;
        }
        match run {
            Some(run) if complete => Ok(ProfileHeader { run, images }),
            Some(_) => Err(corrupt(blocks.length(), "the end block is missing")),
            None => Err(corrupt(FILE_HEADER_LENGTH, "the description of the run is missing")),
        }
    }
}

/// Rewrites a stored profile with a changed [`Run`], and copies all other blocks unchanged. Fails if the first block is not a run, or the
/// file cannot be written.
pub(crate) fn update_run_in_file(path: &Path, access: FilePermissions, change: impl FnOnce(&mut Run)) -> Result<(), ProfileError> {
    let mut file = open_regular_file(path)?;
    let mut blocks = BlockReader::new(path, file.try_clone().map_err(ProfileError::io(path, "read"))?)?;
    let mut run = match blocks.next(&|_, _| BlockReadMode::Decode)? {
        Some(BlockOrGap::Block { content, .. }) if matches!(*content, BlockContent::Run(_)) => {
            let BlockContent::Run(run) = *content else { unreachable!("just seen") };
            run
        }
        _ => {
            return Err(ProfileError::Corrupt {
                path: path.to_owned(),
                offset: FILE_HEADER_LENGTH,
                what: "the first block is not the description of a run".into(),
            });
        }
    };
    change(&mut run);
    let rest = blocks.offset();
    let written = atomic_file::write_with_access(path, TEMPORARY_PREFIX, access, |out| {
        file.seek(SeekFrom::Start(0))?;
        io::copy(&mut (&file).take(FILE_HEADER_LENGTH), out)?;
        BlockWriter::with_written_header(out).write_block(ProfileBlockKind::Run, Identity([0; 16]), &run)?;
        file.seek(SeekFrom::Start(rest))?;
        io::copy(&mut file, out).map(drop)
    });
    written.map_err(ProfileError::io(path, "write"))
}

/// Opens a regular file. Fails for all other files, because opening a named pipe would block until a writer opens it.
fn open_regular_file(path: &Path) -> Result<File, ProfileError> {
    let kind = path.metadata().map_err(ProfileError::io(path, "read"))?;
    if !kind.is_file() {
        let what = "it is not a regular file".to_string();
        return Err(ProfileError::Foreign { path: path.to_owned(), expected: "stored profile", what });
    }
    File::open(path).map_err(ProfileError::io(path, "read"))
}

/// Reads all blocks and assembles the profile. If `strict`, fails at the first corrupt or missing part.
fn assemble_profile(path: &Path, maps: &mut UnitMapsByIdentity, strict: bool) -> Result<RecoveredProfile, ProfileError> {
    let file = File::open(path).map_err(ProfileError::io(path, "read"))?;
    let mut blocks = BlockReader::new(path, file)?;
    let mut assembler = ProfileAssembler::new(maps);
    loop {
        let maps = &*assembler.maps;
        let mode = |kind, subject| match kind {
            // An earlier profile of the same build has already provided the map.
            ProfileBlockKind::Map if maps.contains_key(&subject) => BlockReadMode::Skip,
            _ => BlockReadMode::Decode,
        };
        let Some(item) = blocks.next(&mode)? else { break };
        assembler.add_item(item);
        if strict && let Some(LostProfilePart { offset, what }) = assembler.lost.pop() {
            return Err(ProfileError::Corrupt { path: path.to_owned(), offset, what });
        }
    }
    let recovered = assembler.into_recovered_profile(blocks.length());
    match recovered.lost.first() {
        Some(LostProfilePart { offset, what }) if strict => {
            Err(ProfileError::Corrupt { path: path.to_owned(), offset: *offset, what: what.clone() })
        }
        _ => Ok(recovered),
    }
}

struct ProfileAssembler<'a> {
    maps: &'a mut UnitMapsByIdentity,
    run: Option<Run>,
    sampling: Option<Sampling>,
    images: Vec<PendingImage>,
    blocks: u64,
    complete: bool,
    lost: Vec<LostProfilePart>,
}

struct PendingImage {
    offset: u64,
    identity: Identity,
    image: ImageBlock,
    /// Counts of each unit, by the unit's index in the image.
    counts: HashMap<u32, Counts>,
}

impl<'a> ProfileAssembler<'a> {
    fn new(maps: &'a mut UnitMapsByIdentity) -> ProfileAssembler<'a> {
        ProfileAssembler { maps, run: None, sampling: None, images: Vec::new(), blocks: 0, complete: false, lost: Vec::new() }
    }

    fn add_item(&mut self, item: BlockOrGap) {
        let (offset, header, content) = match item {
            BlockOrGap::Block { offset, header, content } => (offset, header, content),
            BlockOrGap::Corrupt { offset, what } => return self.add_loss(offset, what),
        };
        if self.complete {
            return self.add_loss(offset, "unexpected data after the end block".into());
        }
        match *content {
            BlockContent::End(blocks) => {
                self.complete = true;
                if blocks != self.blocks {
                    self.add_loss(offset, format!("only {} of {blocks} blocks could be read", self.blocks));
                }
                return;
            }
            BlockContent::Run(run) => self.run = Some(run),
            BlockContent::Sampling(sampling) => self.sampling = Some(sampling),
            BlockContent::Map(map) => match map.check() {
                Ok(()) => drop(self.maps.insert(header.subject, Arc::new(*map))),
                Err(what) => self.add_loss(offset, format!("the map of unit {}: {what}", header.subject)),
            },
            BlockContent::NotDecoded => {}
            BlockContent::Image(image) => {
                self.images.push(PendingImage { offset, identity: header.subject, image, counts: HashMap::new() });
            }
            BlockContent::Counts(block) => {
                let counts = block.decode_counts();
                self.add_counts(offset, &header, (block.image, block.place), "counts", |unit| counts.map(|c| unit.executions = c));
            }
            BlockContent::Events(EventsBlock { image, place, events }) => {
                let events = Some(events).filter(|events| events.is_sorted_by(|a, b| a.0 < b.0));
                self.add_counts(offset, &header, (image, place), "events", |unit| events.map(|e| unit.events = e));
            }
            BlockContent::Times(block) => {
                let times = block.decode_counts();
                self.add_counts(offset, &header, (block.image, block.place), "times", |unit| times.map(|t| unit.first_seen = t));
            }
        }
        self.blocks += 1;
    }

    /// Adds a block of counts, events or times to its unit. `put` stores the content, and returns `None` if it is not in ascending order.
    fn add_counts(
        &mut self,
        offset: u64,
        header: &ProfileBlockHeader,
        (image, place): (u32, u32),
        what: &str,
        put: impl FnOnce(&mut Counts) -> Option<()>,
    ) {
        let lost = |why: &str| format!("{what} of unit {}: {why}", header.subject);
        let Some(pending) = self.images.iter_mut().find(|p| p.image.number == image) else {
            return self.add_loss(offset, lost("their image is missing"));
        };
        if pending.image.units.get(place as usize).is_none_or(|u| u.unit != header.subject) {
            return self.add_loss(offset, lost("their image does not contain this unit"));
        }
        if put(pending.counts.entry(place).or_default()).is_none() {
            self.add_loss(offset, lost("they are not in ascending order"));
        }
    }

    fn into_recovered_profile(mut self, length: u64) -> RecoveredProfile {
        if !self.complete {
            self.add_loss(length, "the end block is missing".into());
        }
        if self.run.is_none() {
            self.add_loss(0, "the description of the run is missing".into());
        }
        let images = std::mem::take(&mut self.images).into_iter().map(|pending| self.finish_image(pending)).collect();
        let profile = Profile { run: self.run.unwrap_or_default(), images, sampling: self.sampling };
        RecoveredProfile { profile, lost: self.lost }
    }

    fn finish_image(&mut self, mut pending: PendingImage) -> ImageProfile {
        let mut units = Vec::with_capacity(pending.image.units.len());
        for (place, entry) in pending.image.units.iter().enumerate() {
            let unit = entry.unit;
            let Some(map) = self.maps.get(&unit).cloned() else {
                self.add_loss(pending.offset, format!("unit {unit} of `{}`: its map is missing", pending.image.path));
                continue;
            };
            let mut counts = pending.counts.remove(&(place as u32)).unwrap_or_default();
            let have = counts.executions.len();
            if have as u64 != entry.executed {
                self.add_loss(pending.offset, format!("unit {unit} of `{}`: only {have} of {} counts", pending.image.path, entry.executed));
            }
            let outside = [
                (counts.executions.last().map(|c| c.0), "counts"),
                (counts.events.last().map(|e| e.0), "events"),
                (counts.first_seen.last().map(|t| t.0), "times"),
            ];
            for (_, what) in outside.iter().filter(|(last, _)| last.is_some_and(|last| last >= map.counters)) {
                self.add_loss(
                    pending.offset,
                    format!("unit {unit} of `{}`: its {what} are for counters that its map does not have", pending.image.path),
                );
            }
            counts.retain(|counter| counter < map.counters);
            units.push(UnitProfile { unit, map, counts });
        }
        ImageProfile { identity: pending.identity, path: pending.image.path, build_id: pending.image.build_id, units }
    }

    fn add_loss(&mut self, offset: u64, what: String) {
        self.lost.push(LostProfilePart { offset, what });
    }
}
