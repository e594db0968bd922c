//! `trodden info FILE`: what is known of an instrumented program, and what in it is not counted; or what a stored profile holds.

use crate::cli::Info;
use crate::output::{json_text, print, print_text};
use crate::surroundings::folders;
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::ExitCode;
use trodden_analysis::libraries;
use trodden_profile::Profile;
use trodden_report::info::{ImageSummary, ProfileSummary};
use trodden_unit::{Image, ImageError};

/// Prints what is known of the file. The status is 1 if a profile is damaged.
///
/// # Errors
/// It cannot be read, or is neither an instrumented image nor a profile.
pub fn run(info: &Info) -> Result<ExitCode> {
    let bytes = fs::read(&info.file).with_context(|| format!("cannot read {}", info.file.display()))?;
    if !bytes.starts_with(b"\x7fELF") {
        let recovered = Profile::recover(&info.file)?;
        let summary = ProfileSummary::new(&recovered);
        match info.json {
            true => print(&json_text(&summary)?)?,
            false => print_text(&summary.text(&info.file, bytes.len() as u64))?,
        }
        return Ok(if summary.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let image = match Image::read(&bytes) {
        Err(ImageError::NotInstrumented) => bail!("{}: {}", info.file.display(), ImageError::NotInstrumented),
        other => other.with_context(|| info.file.display().to_string())?,
    };
    let summary = ImageSummary::new(&info.file, &image, folders().units.as_ref(), libraries::needed(&info.file, &bytes))?;
    match info.json {
        true => print(&json_text(&summary)?)?,
        false => print_text(&summary.text(info.all))?,
    }
    Ok(ExitCode::SUCCESS)
}
