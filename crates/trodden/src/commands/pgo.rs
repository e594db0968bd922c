//! `trodden pgo`: optimises a program with profiles of its own runs. [`trodden_driver::guided`] describes the steps, and
//! [`trodden_analysis::transformations`] the transformations that are based on paths.

use crate::cli::PgoArguments;
use crate::context::driver_context;
use crate::notes::note;
use crate::surroundings::recording_context;
use anyhow::{Result, ensure};
use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use trodden_analysis::transformations::{TransformationOptions, TransformedFunction, build_plan, find_transformations};
use trodden_driver::guided::{self, ProfileGuidedBuild, TrainingSteps, hot_paths};
use trodden_recording::{PROGRAM_VARIABLE, record};
use trodden_report::words::plural;
use trodden_unit::{Transformation, TransformationPlan};

/// Default minimum saving for which the code of a path is duplicated, in percent of all instructions that the program executes.
const DEFAULT_MIN_SAVING_PERCENT: f64 = 0.05;

/// Builds and trains the program twice, and then builds the optimised program. Fails if a build, a training or a tool fails, or the build
/// links several programs and `--program` names none of them.
pub fn run(job: &PgoArguments) -> Result<ExitCode> {
    check_output_files(job)?;
    let guided = ProfileGuidedBuild {
        command: job.command.clone(),
        clean: job.clean.clone(),
        program: job.program.clone(),
        only_variables: job.choices.only_variables,
        addresses: job.choices.hot_paths.is_some(),
        output: job.output.clone(),
    };
    let functions = RefCell::new(Vec::new());
    let edges = |program: &Path| record::train(&job.train, program, &recording_context());
    let paths = |program: &Path| -> Result<TransformationPlan> {
        let found = train_and_select_transformations(job, program)?;
        let plan = build_plan(&found);
        functions.replace(found);
        Ok(plan)
    };
    let training = TrainingSteps { edges: &edges, paths: if job.choices.edges { None } else { Some(&paths) } };
    let made = guided::run(driver_context(), &guided, &training)?;
    report_transformations(&made.output, &functions.take());
    if let Some(kept) = &job.choices.keep_profile {
        crate::output::write_file(kept, &made.profile)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check_output_files(job: &PgoArguments) -> Result<()> {
    for (option, file) in [("--output", &job.output), ("--keep-profile", &job.choices.keep_profile)] {
        let Some(file) = file else { continue };
        ensure!(!file.is_dir(), "{option} {} is a folder. Pass the name of a file", file.display());
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            ensure!(
                folder.is_dir(),
                "folder {}, in which {option} should write a file, does not exist. Create this folder",
                folder.display()
            );
        }
    }
    Ok(())
}

/// Runs the second training, and selects transformations based on its paths.
fn train_and_select_transformations(job: &PgoArguments, program: &Path) -> Result<Vec<TransformedFunction>> {
    let options = TransformationOptions {
        min_saving: job.choices.min_share.unwrap_or(DEFAULT_MIN_SAVING_PERCENT) / 100.0,
        ..TransformationOptions::default()
    };
    let profile = match &job.choices.hot_paths {
        Some(table) => hot_paths::train(driver_context(), &job.train, PROGRAM_VARIABLE, program, table)?,
        None => record::train(&job.train, program, &recording_context())?,
    };
    Ok(find_transformations(&profile, &options)?)
}

fn report_transformations(output: &Path, transformed: &[TransformedFunction]) {
    for function in transformed.iter().filter(|function| function.is_changed()) {
        let number = |kind: fn(&Transformation) -> bool| function.transformations.iter().filter(|t| kind(t)).count();
        let (copies, loops) =
            (number(|t| matches!(t, Transformation::Copy(_))), number(|t| matches!(t, Transformation::LastIterations(_))));
        let parts = [
            (loops, "loops with separate code for the last iteration"),
            (copies, "copies of paths whose branches are decided by earlier ones"),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what}: {n}")).collect();
        note(format_args!("{} ({:.1}% of all instructions): {}", function.function, function.share * 100.0, parts.join(", ")));
    }
    if !transformed.is_empty() {
        let copied = if transformed.iter().any(TransformedFunction::is_changed) {
            ""
        } else {
            "; no path was copied, since no copy would save enough"
        };
        note(format_args!(
            "the branch weights of {} come from path counts{copied}",
            plural(transformed.len() as u128, "function", "functions")
        ));
    }
    note(format_args!("the optimised program is {}", output.display()));
}
