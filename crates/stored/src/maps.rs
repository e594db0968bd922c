//! Loads the unit maps of an image, which are needed to decode the events of its streams.

use crate::Folders;
use anyhow::{Context, Result, bail};
use trodden_profile::stream::{StreamHeader, StreamLog, write_raw};
use trodden_profile::{CollectProblem, ImageProfile, Profile, Run, collect};
use trodden_wire::LostThreads;

/// The unit maps of the image that a stream comes from. The image is contained twice, with different path numbers.
pub struct StreamMaps {
    /// A profile without counts. In its only image, the paths are numbered so that each event of the stream is a path.
    pub events: Profile,
    /// The same image with the path numbers that counting builds use.
    pub counted: ImageProfile,
}

impl StreamMaps {
    /// Returns the image in which each event of the stream is a path.
    pub fn image(&self) -> &ImageProfile {
        &self.events.images[0]
    }
}

/// Loads the unit maps of the image that a log comes from. Fails if they are missing.
pub fn load_maps(log: &StreamLog, folders: &Folders) -> Result<StreamMaps> {
    load_maps_for_header(log.header(), folders).with_context(|| log.path().display().to_string())
}

/// Loads the unit maps of the image that a stream's header describes. Fails if they are missing.
pub fn load_maps_for_header(header: &StreamHeader, folders: &Folders) -> Result<StreamMaps> {
    let folder = folders.temporary_folder("trodden-names-")?;
    let raw = folder.path().join("maps.raw");
    write_raw(&raw, header, &[], LostThreads::default())?;
    let collected = collect(vec![raw.clone()], Run::default(), folders.units.as_ref());
    // The user does not know the temporary file, so the message must not name it.
    let message = |problem: &CollectProblem| problem.to_string().replace(&*raw.to_string_lossy(), "the stream's header");
    let mut profile = collected.profile;
    if profile.images.is_empty() {
        match collected.problems.first() {
            Some(problem) => bail!("{}", message(problem)),
            None => bail!("`{}` has no part that was compiled by trodden", header.image_path.display()),
        }
    }
    collected.problems.iter().map(message).for_each(|problem| log::warn!("{problem}"));
    let counted = profile.images.swap_remove(0);
    profile.images = vec![counted.with_events_as_paths()];
    Ok(StreamMaps { events: profile, counted })
}
