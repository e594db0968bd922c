//! `trodden pgo`: a program made faster by what its own runs say, in one command. See [`trodden_driver::guided`]; what is made of paths is
//! described in [`trodden_analysis::transformations`].

use crate::cli::Pgo;
use crate::context::context;
use crate::notes::note;
use crate::surroundings::surroundings;
use anyhow::{Result, ensure};
use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use trodden_analysis::transformations::{TransformationOptions, TransformedFunction, plan, transformed};
use trodden_driver::guided::{self, Guided, Training, hot_paths};
use trodden_recording::{PROGRAM_VARIABLE, record};
use trodden_unit::{Transformation, TransformationPlan};

/// Share of the program's executed instructions, in percent, that a copied path saves at least.
const MIN_SHARE: f64 = 0.05;

/// Builds, trains, builds, trains, and makes the program.
///
/// # Errors
/// A build, a training or a tool fails, or it is not clear which program is meant.
pub fn run(job: &Pgo) -> Result<ExitCode> {
    check_places(job)?;
    let guided = Guided {
        command: job.command.clone(),
        clean: job.clean.clone(),
        program: job.program.clone(),
        only_variables: job.choices.only_variables,
        addresses: job.choices.hot_paths.is_some(),
        output: job.output.clone(),
    };
    let functions = RefCell::new(Vec::new());
    let edges = |program: &Path| record::train(&job.train, program, &surroundings());
    let paths = |program: &Path| -> Result<TransformationPlan> {
        let found = by_paths(job, program)?;
        let plan = plan(&found);
        functions.replace(found);
        Ok(plan)
    };
    let training = Training { edges: &edges, paths: if job.choices.edges { None } else { Some(&paths) } };
    let made = guided::make(context(), &guided, &training)?;
    report(&made.output, &functions.take());
    if let Some(kept) = &job.choices.keep_profile {
        crate::output::write_file(kept, &made.profile)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the places of the results before anything is built.
fn check_places(job: &Pgo) -> Result<()> {
    for (option, file) in [("--output", &job.output), ("--keep-profile", &job.choices.keep_profile)] {
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
    let options =
        TransformationOptions { least_saving: job.choices.min_share.unwrap_or(MIN_SHARE) / 100.0, ..TransformationOptions::default() };
    let profile = match &job.choices.hot_paths {
        Some(table) => hot_paths::train(context(), &job.train, PROGRAM_VARIABLE, program, table)?,
        None => record::train(&job.train, program, &surroundings())?,
    };
    Ok(transformed(&profile, &options)?)
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
        let copied =
            if transformed.iter().any(TransformedFunction::is_changed) { "" } else { "; nothing is copied: no copy would save enough" };
        note(format_args!("functions whose branches are weighed by the paths taken: {}{copied}", transformed.len()));
    }
    note(format_args!("the program is {}", output.display()));
}
