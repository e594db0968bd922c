//! `trodden sample`: counts programs that run already, in bursts.

use crate::cli::Sample;
use crate::surroundings::surroundings;
use anyhow::Result;
use std::process::ExitCode;
use trodden_recording::sample;

/// Counts programs that run already.
///
/// # Errors
/// There is no such program or file, it is not of the sample tier, or its counts cannot be read.
pub fn attach(job: &Sample) -> Result<ExitCode> {
    let wanted =
        sample::Sample { subjects: job.subjects.clone(), time: job.time, bursts: job.bursts.value(), destination: job.destination.value() };
    sample::attach(&wanted, &surroundings())?;
    Ok(ExitCode::SUCCESS)
}
