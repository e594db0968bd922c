//! `trodden pgo`: a program made faster by what its own runs say, in one command.
//!
//! ```text
//! build with markers -> train -> edge profile -> build by it, paths counted -> train again -> transformation plan -> code changed by them
//! ```
//!
//! The second training counts the paths of exactly the code that the edge profile has led to, and the last step works
//! on the bitcode that was kept of it; so what paths say is not lost between two compilations. What is made of paths
//! is described in [`trodden_analysis::transformations`].

mod building;
mod hot_paths;

use crate::cli::Pgo;
use crate::commands::instrument;
use crate::driver::experiment;
use crate::driver::profdata;
use crate::notes::note;
use crate::surroundings::surroundings;
use crate::temporary;
use anyhow::{Context, Result, ensure};
use building::Building;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_analysis::transformations::{TransformationOptions, TransformedFunction, plan, transformed};
use trodden_recording::record;
use trodden_unit::experiment::SettingsFile;
use trodden_unit::{Settings, Transformation};

/// Builds, trains, builds, trains, and makes the program.
///
/// # Errors
/// A build, a training or a tool fails, or it is not clear which program is meant.
pub fn run(job: &Pgo) -> Result<ExitCode> {
    check_places(job)?;
    let folder = temporary::folder("trodden-pgo-")?;
    let profile = folder.path().join("edges.profdata");
    note("1 of 5: building to collect an edge profile");
    let building = Building::from_job(job)?;
    let program = building.run(None)?;
    note("2 of 5: training");
    fs::write(&profile, profdata::indexed(&record::train(&job.train, &program, &surroundings())?)?)
        .with_context(|| format!("cannot write {}", profile.display()))?;
    let how = if job.hot_paths.is_some() { "addresses of blocks" } else { "paths counted" };
    note(format_args!("3 of 5: building by the edge profile, with {how}"));
    let again = building.run(Some(&profile))?;
    ensure!(again == program, "the second build made {} instead of {}: name one with --program", again.display(), program.display());
    let transformed = if job.edges { Vec::new() } else { by_paths(job, &program)? };
    note("5 of 5: making the program, with nothing counted");
    let output = job.output.clone().unwrap_or_else(|| with_ending(&program));
    let file = folder.path().join("transformation-plan");
    fs::write(&file, plan(&transformed).to_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    let settings = Settings { apply: Some(SettingsFile::File(file)), ..Settings::default() };
    instrument::make(&program, &output, &experiment::resolve(settings)?)?;
    report(&output, &transformed);
    if let Some(kept) = &job.keep_profile {
        crate::output::write_file(kept, &fs::read(&profile)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the places of the results before anything is built.
fn check_places(job: &Pgo) -> Result<()> {
    for (option, file) in [("--output", &job.output), ("--keep-profile", &job.keep_profile)] {
        let Some(file) = file else { continue };
        ensure!(!file.is_dir(), "{} is a folder: {option} takes the name of a file", file.display());
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            ensure!(folder.is_dir(), "there is no folder {} for the file that {option} names: make it", folder.display());
        }
    }
    Ok(())
}

/// What the paths of the second training say.
fn by_paths(job: &Pgo, program: &Path) -> Result<Vec<TransformedFunction>> {
    note("4 of 5: training again, for paths");
    let options = TransformationOptions { least_saving: job.min_share / 100.0, ..TransformationOptions::default() };
    let profile = match &job.hot_paths {
        Some(table) => hot_paths::train(&job.train, program, table)?,
        None => record::train(&job.train, program, &surroundings())?,
    };
    Ok(transformed(&profile, &options)?)
}

/// `prog.fast` for `prog`, in the current folder.
fn with_ending(program: &Path) -> PathBuf {
    let mut name = program.file_name().unwrap_or_default().to_owned();
    name.push(".fast");
    env::current_dir().unwrap_or_default().join(name)
}

fn report(output: &Path, transformed: &[TransformedFunction]) {
    for one in transformed.iter().filter(|d| d.is_changed()) {
        let of = |kind: fn(&Transformation) -> bool| one.transformations.iter().filter(|d| kind(d)).count();
        let (copies, loops) = (of(|d| matches!(d, Transformation::Copy(_))), of(|d| matches!(d, Transformation::LastIterations(_))));
        let parts = [
            (loops, "loops whose last iteration has code of its own"),
            (copies, "copies of paths behind branches that earlier ones decide"),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what}: {n}")).collect();
        note(format_args!("{} ({:.1}% of all instructions): {}", one.function, one.share * 100.0, parts.join(", ")));
    }
    if !transformed.is_empty() {
        let copied = if transformed.iter().any(TransformedFunction::is_changed) {
            ""
        } else {
            "; nothing is copied: no copy would save enough (--min-share)"
        };
        note(format_args!("functions whose branches are weighed by the paths taken: {}{copied}", transformed.len()));
    }
    note(format_args!("the program is {}", output.display()));
}
