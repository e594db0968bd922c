//! The maps of a stream's image: what its events are numbers of.

use crate::Folders;
use anyhow::{Context, Result, bail};
use trodden_profile::stream::{StreamHead, StreamLog, write_raw};
use trodden_profile::{CollectProblem, ImageProfile, Profile, Run, collect};
use trodden_wire::LostThreads;

/// The maps of a stream's image.
pub struct StreamMaps {
    /// With a path for each event; nothing is counted.
    pub events: Profile,
    /// As counting builds number paths.
    pub counted: ImageProfile,
}

impl StreamMaps {
    /// The image, with a path for each event.
    pub fn image(&self) -> &ImageProfile {
        &self.events.images[0]
    }
}

/// The maps of the image of a log.
///
/// # Errors
/// There are none, or the log is damaged.
pub fn maps_of(log: &StreamLog, folders: &Folders) -> Result<StreamMaps> {
    maps(log.head(), folders).with_context(|| log.path().display().to_string())
}

/// The maps of a stream's image.
///
/// # Errors
/// There are none.
pub fn maps(head: &StreamHead, folders: &Folders) -> Result<StreamMaps> {
    let folder = folders.temporary_folder("trodden-names-")?;
    let raw = folder.path().join("maps.raw");
    write_raw(&raw, head, &[], LostThreads::default())?;
    let collected = collect(vec![raw.clone()], Run::default(), folders.units.as_ref());
    // The file was made here, of the head.
    let said = |problem: &CollectProblem| problem.to_string().replace(&*raw.to_string_lossy(), "the head of the stream");
    let mut profile = collected.profile;
    if profile.images.is_empty() {
        match collected.problems.first() {
            Some(problem) => bail!("{}", said(problem)),
            None => bail!("`{}` has no units", head.image_path.display()),
        }
    }
    collected.problems.iter().map(said).for_each(|problem| log::warn!("{problem}"));
    let counted = profile.images.swap_remove(0);
    profile.images = vec![counted.of_events()];
    Ok(StreamMaps { events: profile, counted })
}
