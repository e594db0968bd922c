//! The unit maps of a stream's image, which give its events their meaning.

use crate::Folders;
use anyhow::{Context, Result, bail};
use trodden_profile::stream::{StreamHeader, StreamLog, write_raw};
use trodden_profile::{CollectProblem, ImageProfile, Profile, Run, collect};
use trodden_wire::LostThreads;

/// The maps of a stream's image.
pub struct StreamMaps {
    /// The image with one path per event, and no counts.
    pub events: Profile,
    /// The image with paths as numbered by counting builds.
    pub counted: ImageProfile,
}

impl StreamMaps {
    /// The image with one path per event.
    pub fn image(&self) -> &ImageProfile {
        &self.events.images[0]
    }
}

/// Returns the maps for the image of a log.
///
/// # Errors
/// The maps are missing.
pub fn maps_of(log: &StreamLog, folders: &Folders) -> Result<StreamMaps> {
    maps(log.head(), folders).with_context(|| log.path().display().to_string())
}

/// Returns the maps for a stream's image.
///
/// # Errors
/// The maps are missing.
pub fn maps(head: &StreamHeader, folders: &Folders) -> Result<StreamMaps> {
    let folder = folders.temporary_folder("trodden-names-")?;
    let raw = folder.path().join("maps.raw");
    write_raw(&raw, head, &[], LostThreads::default())?;
    let collected = collect(vec![raw.clone()], Run::default(), folders.units.as_ref());
    // Messages name the temporary file, which is an encoding of the stream's header.
    let message = |problem: &CollectProblem| problem.to_string().replace(&*raw.to_string_lossy(), "the header of the stream");
    let mut profile = collected.profile;
    if profile.images.is_empty() {
        match collected.problems.first() {
            Some(problem) => bail!("{}", message(problem)),
            None => bail!("`{}` has no instrumented units", head.image_path.display()),
        }
    }
    collected.problems.iter().map(message).for_each(|problem| log::warn!("{problem}"));
    let counted = profile.images.swap_remove(0);
    profile.images = vec![counted.with_event_paths()];
    Ok(StreamMaps { events: profile, counted })
}
