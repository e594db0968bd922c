//! `trodden import --perf FILE --program PROG`: a profile of branches that hardware recorded, of a program that counts nothing.

use crate::cli::Import;
use crate::surroundings::surroundings;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use trodden_profile::Run;
use trodden_recording::{import, one_run};

/// Reads the text and stores the profile.
///
/// # Errors
/// The text or a program cannot be read, nothing in it belongs to the programs, or the profile cannot be stored.
pub fn run(job: &Import) -> Result<ExitCode> {
    let (text, name): (Box<dyn BufRead>, &Path) = match job.perf.as_os_str() == "-" {
        true => (Box::new(io::stdin().lock()), Path::new("standard input")),
        false => {
            let file = File::open(&job.perf).with_context(|| format!("cannot read {}", job.perf.display()))?;
            (Box::new(BufReader::new(file)), &job.perf)
        }
    };
    let (around, destination) = (surroundings(), job.destination.value());
    let run = Run { suite: destination.suite.clone(), ..one_run() };
    import::store(import::profile_of(text, name, &job.program, run, &around)?, name, &destination, &around)?;
    Ok(ExitCode::SUCCESS)
}
