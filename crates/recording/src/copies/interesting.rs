//! Copies of a program that only counts interesting paths (`trodden instrument --interesting`). Each copy counts some of these paths, as
//! with strategy P3 restricted to a subset of the paths (Afraz, Saha and Kanade, ESEC/FSE 2015, section 1).
//!
//! [`super::path_sets`] divides the interesting paths. If the program counts all paths of each function in the set, complete functions are
//! assigned to copies instead.

use super::path_sets::{self, PathOwners};
use super::preparation::CopyInput;
use super::shared::{self, CopyPartition};
use super::units::read_units;
use super::{CopyContext, CopyJob, RecordedCopies};
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use trodden_driver::experiment;
use trodden_flow::NumberingScheme;
use trodden_profile::{ImageProfile, Profile};
use trodden_unit::experiment::{InputPurpose, SettingsFile};
use trodden_unit::{FunctionKey, InterestingPaths, KnownPaths, Observation, Settings};

/// Option of `trodden instrument` that builds a program which counts only interesting paths.
const REQUIRED_BUILD_OPTION: &str = "--interesting";

/// Returns the interesting paths that a program counts, or `None` if the program was built differently.
fn find_interesting_paths(program: &Path, context: CopyContext) -> Option<InterestingPaths> {
    let units = read_units(program, context.recording.units.as_ref()).ok()?;
    units.iter().find_map(|(_, map)| match map.experiment.observation() {
        Observation::InterestingPaths(paths) => Some(paths),
        _ => None,
    })
}

pub fn counts_interesting_paths(program: &Path, context: CopyContext) -> bool {
    find_interesting_paths(program, context).is_some()
}

/// Records a run with copies that each count some of the interesting paths. Fails if the copies cannot be built or run, or an option does
/// not apply to them.
pub fn run(job: &CopyJob, context: CopyContext, input: &dyn Fn() -> Result<CopyInput>) -> Result<RecordedCopies> {
    path_sets::check_options(&job.options, REQUIRED_BUILD_OPTION)?;
    shared::record_with_partition(job, context, input, |program| InterestingPartition::new(program, job.options.copies, context))
}

struct InterestingPartition {
    image: ImageProfile,
    settings: Settings,
    paths: KnownPaths,
    /// True if complete functions are assigned to copies. The copy that owns a function's path 0 then counts the whole function.
    whole_functions: bool,
    owners: PathOwners,
    copies: usize,
}

impl InterestingPartition {
    fn new(program: &Path, copies: usize, context: CopyContext) -> Result<InterestingPartition> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let units = read_units(program, context.recording.units.as_ref())?;
        let numbering = find_interesting_paths(program, context).and_then(|paths| paths.numbering);
        // With other schemes, several paths may have the same number, and a number may mean different paths in different copies.
        ensure!(
            matches!(numbering, None | Some(NumberingScheme::KnownTable)),
            "cannot divide the interesting paths of {} among copies, because it was built with --scheme. Build it without --scheme",
            program.display()
        );
        let settings = path_sets::settings_common_to_units(&units, program, REQUIRED_BUILD_OPTION)?;
        let file = settings
            .interesting
            .as_ref()
            .and_then(SettingsFile::stored)
            .context("the programis corrupt: it does not name the paths that it was built to count. Build it again")?;
        let mut paths = experiment::load_stored_paths(context.driver, InputPurpose::Interesting, file)?;
        // The set of interesting paths may also name functions of other programs.
        let functions: HashSet<(&str, &str)> =
            units.iter().flat_map(|(_, map)| map.functions.iter().map(|f| (map.source.as_str(), f.name.as_str()))).collect();
        paths.retain_functions_where(|(unit, name, _)| functions.contains(&(unit.as_str(), name.as_str())));
        let weights = path_sets::estimate_executions(&units)?;
        let whole_functions = numbering.is_none();
        let (owners, copies) = match whole_functions {
            true => path_sets::divide_paths(paths.known().map(|(key, _)| (key, vec![0])), &weights, copies),
            false => path_sets::divide_paths(paths.known(), &weights, copies),
        };
        ensure!(
            copies > 0,
            "none of the interesting paths is in a function of {}. Build it again with interesting paths of its own functions",
            program.display()
        );
        path_sets::log_division(&owners, copies, "counted");
        let image = path_sets::image_without_counts(program, &bytes, units)?;
        Ok(InterestingPartition { image, settings, paths, whole_functions, owners, copies })
    }

    fn is_owner(&self, copy: usize, function: &FunctionKey, path: u64) -> bool {
        self.owners.get(function).and_then(|owners| owners.get(&path)) == Some(&copy)
    }
}

impl CopyPartition for InterestingPartition {
    const WRITES_STREAMS: bool = false;

    fn settings(&self, context: CopyContext) -> Result<Vec<Settings>> {
        let of = |copy: usize| {
            let mut own = self.paths.clone();
            match self.whole_functions {
                true => own.retain_functions_where(|key| self.is_owner(copy, key, 0)),
                false => own.retain_paths(|key, path| self.is_owner(copy, key, path)),
            }
            Ok(Settings { interesting: Some(experiment::store_known_paths(context.driver, &own)?), ..self.settings.clone() })
        };
        (0..self.copies).map(of).collect()
    }

    fn merge(&self, profiles: Vec<Profile>, work: &Path) -> Result<(Vec<ImageProfile>, Vec<String>)> {
        let (own, elsewhere) = path_sets::images_of_copies(profiles, work);
        let (image, differences) = path_sets::merge_copies(self.image.clone(), &own)?;
        Ok((path_sets::join_images(image, elsewhere), differences))
    }

    fn store_results(&self, _: &CopyJob, _: Option<u64>, _: &Path, _: CopyContext) -> Result<()> {
        Ok(())
    }
}
