//! Copies of a program that watches for paths (`trodden instrument --watch`). Each copy watches for some of these paths.
//!
//! D. Saha, P. Dhoolia and G. Paul (ESEC/FSE 2013, section 8) name the runtime verification of policies by distributed runs as future work.
//! [`super::path_sets`] divides the watched paths. Together, the copies notice every path that the program would notice.
//!
//! Copies only count. The program's messages about matches are printed after the counts have been merged, because messages of the copies
//! would make their output differ. Actions that change the execution are rejected.

use super::path_sets::{self, PathOwners};
use super::preparation::CopyInput;
use super::shared::{self, CopyPartition};
use super::units::read_units;
use super::{CopyContext, CopyJob, RecordedCopies};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use trodden_driver::experiment;
use trodden_driver::variant::VariantDefaults;
use trodden_profile::{ImageProfile, Profile};
use trodden_unit::experiment::{InputPurpose, SettingsFile};
use trodden_unit::{KnownPaths, Settings};
use trodden_wire::ON_UNTESTED_VARIABLE;

/// Option of `trodden instrument` that builds a program which watches for paths.
const REQUIRED_BUILD_OPTION: &str = "--watch";

pub fn watches_paths(program: &Path, context: CopyContext) -> bool {
    read_units(program, context.recording.units.as_ref()).is_ok_and(|units| units.iter().any(|(_, map)| map.experiment.is_watched()))
}

/// Records a run with copies that each watch for some of the paths. Fails if the copies cannot be built or run, or an option does not apply
/// to them.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<RecordedCopies> {
    path_sets::check_options(&job.options, REQUIRED_BUILD_OPTION)?;
    shared::record_with_partition(job, context, input, |program| WatchPartition::new(program, job.options.copies, context))
}

struct WatchPartition {
    image: ImageProfile,
    settings: Settings,
    /// All paths that are not watched.
    others: KnownPaths,
    owners: PathOwners,
    copies: usize,
    /// The program's path expression, if matches are to be reported.
    reported_expression: Option<String>,
}

impl WatchPartition {
    fn new(program: &Path, copies: usize, context: CopyContext) -> Result<WatchPartition> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let units = read_units(program, context.recording.units.as_ref())?;
        let reported_expression = reported_expression(&bytes, program, context)?;
        let settings = path_sets::settings_common_to_units(&units, program, REQUIRED_BUILD_OPTION)?;
        let file = settings
            .watched
            .as_ref()
            .and_then(SettingsFile::stored)
            .context("the programis corrupt: it does not name the paths that it was built to count. Build it again")?;
        let others = experiment::load_stored_paths(context.driver, InputPurpose::Watched, file)?;
        let (owners, copies) = path_sets::divide_paths(others.unknown(), &path_sets::estimate_executions(&units)?, copies);
        path_sets::log_division(&owners, copies, "watched for");
        let image = path_sets::image_without_counts(program, &bytes, units)?;
        Ok(WatchPartition { image, settings, others, owners, copies, reported_expression })
    }
}

/// Returns the expression of a program that reports matches, or `None` if the program only counts them.
fn reported_expression(bytes: &[u8], program: &Path, context: CopyContext) -> Result<Option<String>> {
    let defaults = VariantDefaults::from_program(bytes)?;
    let expression = defaults.watched.with_context(|| {
        format!(
            "cannot determine what {} does when a watched path matches, because it has no symbols. Link the program without stripping \
             symbols",
            program.display()
        )
    })?;
    let variable = context.driver.variables.get(OsStr::new(ON_UNTESTED_VARIABLE)).map(|word| word.to_string_lossy().into_owned());
    let action = variable.or(defaults.on_untested).unwrap_or_default();
    ensure!(
        matches!(action.as_str(), "" | "count" | "report"),
        "cannot divide the watched paths of {} among copies, because each copy would perform the action `{action}` at different matches. \
         Set {ON_UNTESTED_VARIABLE}=report",
        program.display()
    );
    Ok((action == "report").then_some(expression))
}

impl CopyPartition for WatchPartition {
    const WRITES_STREAMS: bool = false;
    // Overrides the action on watched paths that the program's link recipe sets.
    const VARIABLES: &[(&str, &str)] = &[(ON_UNTESTED_VARIABLE, "count")];

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |copy: usize| {
            let mut others = self.others.clone();
            others.make_unknown_paths_known_if(|key, path| self.owners[key][&path] != copy);
            Ok(Settings { watched: Some(experiment::store_known_paths(context.driver, &others)?), ..self.settings.clone() })
        };
        (0..self.copies).map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let (own, elsewhere) = path_sets::images_of_copies(profiles, work);
        let (image, differences) = path_sets::merge_copies(self.image.clone(), &own)?;
        if let Some(expression) = &self.reported_expression {
            for unit in &image.units {
                for function in &unit.map.functions {
                    unit.counts_of(function).for_each(|(path, _)| log::info!("path {path} of {} matches {expression}", function.name));
                }
            }
        }
        Ok((path_sets::join_images(image, elsewhere), differences))
    }

    fn store_results(&self, _: &CopyJob, _: Option<u64>, _: &Path, _: CopyContext) -> Result<()> {
        Ok(())
    }
}
