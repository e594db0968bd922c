//! `trodden info FILE`: what is known of an instrumented program, and what in it is not counted; or what a profile and its streams hold.

use crate::cli::Info;
use crate::output::{json_text, print, print_found, print_text};
use crate::surroundings::folders;
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::ExitCode;
use trodden_analysis::libraries;
use trodden_profile::Profile;
use trodden_report::info::{ImageSummary, ProfileSummary};
use trodden_report::input_kind::{InputKind, name_of};
use trodden_report::streams::StreamStatistics;
use trodden_stored::named;
use trodden_stored::streams::logs_of_run;
use trodden_unit::{Image, ImageError};

/// Prints what is known of the file. The status is 1 if a profile is damaged.
///
/// # Errors
/// It cannot be read, or is neither an instrumented image nor a profile nor a stream.
pub fn run(info: &Info) -> Result<ExitCode> {
    match InputKind::of(&info.file)? {
        InputKind::Program => program(info),
        InputKind::Profile => profile(info),
        InputKind::StreamLogs => {
            let report = StreamStatistics::read(name_of(&info.file)?, &folders())?;
            print_found(info.json, || json_text(&report), || Ok(report.text()))?;
            Ok(ExitCode::SUCCESS)
        }
        other => Err(other.refused(&info.file, "info")),
    }
}

/// A profile or a run, with the statistics of its streams.
fn profile(info: &Info) -> Result<ExitCode> {
    let name = name_of(&info.file)?;
    let files = named::files(name)?;
    let [file] = files.as_slice() else { bail!("`{name}` is a suite of {} runs: name one of them", files.len()) };
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    let recovered = Profile::recover(file)?;
    let summary = ProfileSummary::new(&recovered);
    let streams = logs_of_run(name).map(|logs| StreamStatistics::of_logs(&logs, &folders())).transpose()?;
    if info.json {
        let mut document = serde_json::to_value(&summary)?;
        if let Some(streams) = streams {
            document["streams"] = serde_json::to_value(streams)?;
        }
        print(&json_text(&document)?)?;
    } else {
        let streams = streams.map(|streams| format!("\n{}", streams.text())).unwrap_or_default();
        print_text(&(summary.text(file, bytes) + &streams))?;
    }
    Ok(if summary.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn program(info: &Info) -> Result<ExitCode> {
    let bytes = fs::read(&info.file).with_context(|| format!("cannot read {}", info.file.display()))?;
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
