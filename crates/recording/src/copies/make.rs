//! Builds copies of a program from its stored bitcode. A plan assigns the program's paths or edges to the copies.

use super::objects::CopyObjects;
use super::units::read_units;
use super::{CopyContext, CopyOptions, DividedCounts};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_driver::experiment;
use trodden_driver::variant::LinkInputs;
use trodden_flow::part::Measure;
use trodden_launch::StopFlag;
use trodden_partition::tasks::are_too_many_tasks;
use trodden_partition::{CopyPlan, PartitionOptions, PartitionPlan, PartitionStrategy, Procedure, bounded, cross_check, hits, weighted};
use trodden_profile::copies::{PartitionedProgram, edges};
use trodden_profile::procedures::{self, add_call_sites, add_estimates, build_edge_procedures};
use trodden_profile::{Profile, has_standard_numbering};
use trodden_unit::experiment::{Keep, ObservationTiming};
use trodden_unit::{Frame, FunctionParts, Identity, InstrumentedImage, Observation, Settings, UnitCache, UnitMap};

/// Prefix of the name of a copy's folder. The copy's number follows.
pub const COPY_FOLDER_PREFIX: &str = "copy-";

/// A program whose paths or edges can be divided among copies.
pub struct CopiedProgram {
    /// The program, in the form that is needed to merge the copies' counts.
    pub original: PartitionedProgram,
    units: Vec<(Frame, UnitMap)>,
    /// The settings that all copies share.
    settings: Settings,
}

impl CopiedProgram {
    /// Reads a program and its units. Fails if the program cannot be read, or counts a set of paths other than all paths or all untested
    /// paths.
    pub fn read(path: &Path, store: Option<&UnitCache>) -> Result<CopiedProgram> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let image = InstrumentedImage::read(&bytes).with_context(|| {
            format!("{} is not an instrumented program. Pass the program itself, not a script that runs it", path.display())
        })?;
        let mut units = read_units(path, store)?;
        let original = PartitionedProgram {
            identity: image.identity,
            path: fs::canonicalize(path)?.display().to_string(),
            build_id: image.build_id,
            units: units.iter().map(|(frame, map)| (frame.unit, Arc::new(map.clone()))).collect(),
            edges: false,
        };
        let mut seen = HashSet::new();
        units.retain(|(frame, _)| seen.insert(frame.unit));
        let settings = shared_settings(&units)?;
        Ok(CopiedProgram { original, units, settings })
    }

    /// Returns true if the program counts only untested paths, that is, paths that were not known when it was built.
    pub fn is_residual(&self) -> bool {
        self.settings.known.is_some()
    }

    fn divide_edges(self, copies: usize, weights: Option<&Profile>) -> Result<PathPartition> {
        ensure!(
            !self.is_residual(),
            "--divide edges does not apply to {}, which counts only untested paths (--residual). Pass a program that counts all paths",
            self.original.path
        );
        let edges =
            self.units.iter().map(|(frame, map)| Ok((frame.clone(), edges::map_with_edges_as_paths(map)?))).collect::<Result<Vec<_>>>()?;
        let procedures = build_edge_procedures(&self.units, &edges, weights)?;
        let functions = edges.iter().flat_map(|(_, map)| &map.functions);
        let networks = functions.map(|f| Ok(edges::build_event_network(f)?.1)).collect::<Result<Vec<_>>>()?;
        let plan = trodden_partition::edges::plan(&procedures, &networks, copies);
        let original = edges::program_with_edges_as_paths(&self.original)?;
        Ok(PathPartition::from_plan(CopiedProgram { original, units: edges, ..self }, plan))
    }

    /// Divides paths among copies. `procedures` are the functions of the distinct units, in order. Fails if the strategy cannot divide the
    /// program's paths.
    pub fn divide(&self, procedures: &[Procedure], strategy: PartitionStrategy, options: &PartitionOptions) -> Result<PartitionPlan> {
        match (self.is_residual(), strategy) {
            (false, PartitionStrategy::P3) => {
                self.log_undivided_functions(procedures, options);
                Ok(trodden_partition::plan(procedures, strategy, options))
            }
            (false, _) => Ok(trodden_partition::plan(procedures, strategy, options)),
            // A function's known paths cost little if the copy counts anything in that function. Dividing the unknown paths of one function
            // would therefore save nothing.
            (true, PartitionStrategy::Weighted) => Ok(weighted::plan_whole_procedures(procedures, options)),
            (true, PartitionStrategy::Pbl | PartitionStrategy::Sbl) => Ok(trodden_partition::plan(procedures, strategy, options)),
            (true, PartitionStrategy::P3) => bail!(
                "{} counts only untested paths (--residual), so each function must be counted by one copy. Pass --strategy weighted or \
                 pbl",
                self.original.path
            ),
        }
    }

    /// Divides paths among as few copies as possible such that each has at most `max_probes` probes. Fails if some paths need more probes
    /// than that, or the program counts only unknown paths.
    pub fn divide_by_max_probes(&self, procedures: &[Procedure], max_probes: usize, measure: Measure) -> Result<PartitionPlan> {
        ensure!(
            !self.is_residual(),
            "--max-probes does not apply to {}, which counts only untested paths (--residual). Omit --max-probes",
            self.original.path
        );
        bounded::plan_with_max_probes(procedures, max_probes, measure).map_err(|few| {
            let name =
                self.units.iter().flat_map(|(_, map)| &map.functions).nth(few.procedure).map_or("", |function| function.plain_name());
            anyhow!(
                "--max-probes {max_probes} is too small: some paths of function `{name}` must be counted by the same copy of the program, \
                 which needs {} probes. Pass a greater --max-probes",
                few.probes
            )
        })
    }

    /// Like [`CopiedProgram::divide_by_max_probes`], but makes a given number of copies. Those that are not needed count nothing.
    pub fn divide_into_bounded_copies(
        &self,
        procedures: &[Procedure],
        max_probes: usize,
        options: &PartitionOptions,
    ) -> Result<PartitionPlan> {
        let mut plan = self.divide_by_max_probes(procedures, max_probes, options.measure)?;
        let needed = plan.copies.len();
        ensure!(
            needed <= options.copies,
            "--max-probes {max_probes} requires {needed} copies of the program. Pass --copies {needed} or more"
        );
        plan.copies.resize(options.copies, CopyPlan { parts: vec![None; procedures.len()] });
        Ok(plan)
    }

    /// Logs which functions strategy p3 leaves undivided because they would be divided into too many tasks.
    fn log_undivided_functions(&self, procedures: &[Procedure], options: &PartitionOptions) {
        let functions = self.units.iter().flat_map(|(_, map)| &map.functions);
        let profitable = &options.profitable;
        let threshold = |procedure: &Procedure| profitable.threshold(&procedure.dag, options.copies);
        let is_left =
            |procedure: &Procedure| profitable.has_few_callers(procedure) && are_too_many_tasks(&procedure.dag, threshold(procedure));
        let left: Vec<&str> = procedures.iter().zip(functions).filter(|(p, _)| is_left(p)).map(|(_, f)| f.name.as_str()).collect();
        if let Some(first) = left.first() {
            let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
            log::info!(
                "--strategy p3 does not divide the paths of {first}{more} among copies, because there would be too many tasks. To divide \
                 large functions, use --strategy weighted"
            );
        }
    }

    /// The distinct units of the program.
    pub fn units(&self) -> &[(Frame, UnitMap)] {
        &self.units
    }

    /// Returns settings for a variant of the program that is sampled, and counts all paths under the same numbers.
    pub fn sampled_settings(&self) -> Settings {
        Settings {
            when: Some(ObservationTiming::Bursts),
            threads: None,
            keep: Some(Keep::Map),
            max_paths: self.units.first().map(|(_, map)| map.experiment.placement().max_paths),
            known: None,
            ..self.settings.clone()
        }
    }
}

/// A program, and the assignment of its paths or edges to copies.
pub struct PathPartition {
    /// The program, in the form that is needed to merge the copies' counts.
    pub program: PartitionedProgram,
    units: Vec<(Frame, UnitMap)>,
    /// For each copy, the part of each function that it counts. Functions are in the order of the program's units.
    pub copies: Vec<CopyPlan>,
    /// The plan for one program that counts all paths, for comparison; `None` if copies count edges or only unknown paths.
    pub whole: Option<CopyPlan>,
    /// The settings that all copies share.
    settings: Settings,
    /// Expected number of probe executions in each copy; `None` unless the division is based on a run with the same input.
    expected: Option<Vec<u64>>,
}

impl PathPartition {
    /// Divides a program's paths or edges among copies. Fails if the profile belongs to a different program, a map is corrupt, or the
    /// options contradict each other.
    pub fn new(program: CopiedProgram, options: &CopyOptions, weights: Option<&PartitionProfile>) -> Result<PathPartition> {
        if matches!(options.shared, DividedCounts::Edges) {
            ensure!(
                !options.count_hits,
                "--count-hits applies only if copies of the program count paths, not with `--divide edges`. Omit --count-hits"
            );
            return program.divide_edges(options.copies, weights.map(|w| &w.profile));
        }
        ensure!(
            !options.count_hits || !program.is_residual(),
            "--count-hits does not apply to a program built with --residual, whose copies count only untested paths. Omit --count-hits"
        );
        let by = || {
            format!("cannot base the partition of {} on {}", program.original.path, options.weights.as_deref().unwrap_or("the first run"))
        };
        let mut procedures = procedures::procedures(&program.units, weights.map(|w| &w.profile)).with_context(by)?;
        let strategy = options.strategy;
        if strategy == PartitionStrategy::P3 {
            add_call_sites(&program.units, &mut procedures);
        }
        let choices = PartitionOptions { profitable: options.profitable, ..PartitionOptions::new(options.copies, options.hits) };
        let estimated = weights.map(|_| add_estimates(&program.units, &procedures)).transpose()?;
        let basis = estimated.as_ref().unwrap_or(&procedures);
        let mut plan = match options.max_probes {
            Some(max_probes) => program.divide_into_bounded_copies(basis, max_probes, &choices)?,
            None => program.divide(basis, strategy, &choices)?,
        };
        let is_whole = !program.is_residual();
        if is_whole && options.max_probes.is_none() {
            cross_check::add_cross_checks(&procedures, &mut plan, choices.measure);
        }
        // A single copy that counts all paths is the baseline for the cost of the copies, so its labels (increments on edges) must be
        // placed with the same frequencies as theirs.
        let single = PartitionOptions { copies: 1, ..choices };
        let whole = is_whole.then(|| trodden_partition::plan(basis, PartitionStrategy::Sbl, &single).copies.remove(0));
        let expected = weights.filter(|w| w.same_input).map(|_| plan.copies.iter().map(|c| hits::copy_hits(&procedures, c).all).collect());
        let mut partition = PathPartition::from_plan(program, plan);
        partition.settings.count_hits = options.count_hits.then_some(true);
        Ok(PathPartition { expected, whole, ..partition })
    }

    /// Creates the partition that a plan describes.
    pub fn from_plan(program: CopiedProgram, plan: PartitionPlan) -> PathPartition {
        let CopiedProgram { original: program, units, settings } = program;
        PathPartition { program, units, copies: plan.copies, whole: None, settings, expected: None }
    }

    /// Returns true if the program counts only untested paths, that is, paths that were not known when it was built.
    pub fn is_residual(&self) -> bool {
        self.settings.known.is_some()
    }

    /// Returns true if this copy must count something, according to an earlier run with the same input.
    pub fn expects_counts(&self, copy: usize) -> bool {
        self.expected.as_ref().is_some_and(|hits| hits[copy] > 0)
    }

    /// Builds the copies in a folder. With `plain`, also builds a program that counts nothing. All of them write to the files that the
    /// environment names, or else to files with the name pattern `writes`. Fails if the bitcode or the link recipe is missing, a tool
    /// fails, or a signal interrupts the build.
    pub fn build_copies(
        &self,
        folder: &Path,
        plain: bool,
        writes: Option<&str>,
        stop: &StopFlag,
        context: CopyContext,
    ) -> Result<Vec<PathBuf>> {
        let nothing = CopyPlan { parts: vec![None; self.copies.first().map_or(0, |c| c.parts.len())] };
        let inputs = LinkInputs::from_program(context.driver, Path::new(&self.program.path))?;
        let settings = Settings { keep: Some(Keep::Map), ..self.settings.clone() };
        let mut objects = CopyObjects::new(&settings, &inputs.llvm, context)?;
        // This request to the plugin is also used for linking, and names no parts of functions. The request with which a unit is compiled
        // names the parts that the copy counts.
        let request = experiment::write_request(
            context.driver,
            &experiment::resolve(context.driver, Settings { count_hits: None, ..settings.clone() })?,
        )?;
        let copies: Vec<HashMap<Identity, PathBuf>> = self
            .copies
            .iter()
            .chain(plain.then_some(&nothing))
            .map(|copy| {
                let parts = self.parts_by_unit(copy);
                let nothing = FunctionParts::default();
                inputs.frames.iter().map(|f| (f.unit, objects.request_object(f, Some(parts.get(&f.unit).unwrap_or(&nothing))))).collect()
            })
            .collect();
        objects.compile_missing_objects(stop)?;
        let link = |(at, objects): (usize, HashMap<Identity, PathBuf>)| {
            stop.check()?;
            // Copies are in separate folders and have the original file name, because the file name determines the process name.
            let own = folder.join(format!("{COPY_FOLDER_PREFIX}{at:04}"));
            fs::create_dir(&own).with_context(|| format!("cannot create the folder {}", own.display()))?;
            let program = own.join(Path::new(&self.program.path).file_name().unwrap_or_else(|| "program".as_ref()));
            inputs
                .link_with(context.driver, objects, &program, &request, writes)
                .with_context(|| format!("cannot link copy {at} of the program"))?;
            Ok(program)
        };
        copies.into_iter().enumerate().map(link).collect()
    }

    /// Returns a copy's parts by unit. Units in which the copy counts nothing are left out.
    fn parts_by_unit(&self, copy: &CopyPlan) -> HashMap<Identity, FunctionParts> {
        let mut units = HashMap::<Identity, FunctionParts>::new();
        let functions = self.units.iter().flat_map(|(frame, map)| map.functions.iter().map(move |f| (frame.unit, f)));
        for ((unit, function), part) in functions.zip(&copy.parts) {
            part.iter().for_each(|part| units.entry(unit).or_default().add(unit, function, part.clone()));
        }
        units
    }

    /// Returns the functions with their executions in a profile of this program, in the same order as in plans.
    pub fn measured_procedures(&self, profile: &Profile) -> Result<Vec<Procedure>> {
        // The first image is the program itself. Libraries are left out, because they may contain units from the same object file.
        let counted: Vec<_> = profile.images.iter().take(1).flat_map(|i| &i.units).collect();
        let mut out = Vec::new();
        for (frame, map) in &self.units {
            for function in &map.functions {
                // A program may contain the same unit twice, so counts are added.
                let mut counts = std::collections::BTreeMap::<u64, u64>::new();
                for unit in counted.iter().filter(|u| u.unit == frame.unit) {
                    unit.counts_of(function).for_each(|(path, count)| *counts.entry(path).or_default() += count);
                }
                out.push(procedures::build_measured_procedure(function, &counts.into_iter().collect::<Vec<_>>())?);
            }
        }
        Ok(out)
    }
}

/// Returns the settings that all copies share. Fails unless the program counts all paths under their standard numbers or only unknown
/// paths. In the latter case, copies instrument each function as the program does.
fn shared_settings(units: &[(Frame, UnitMap)]) -> Result<Settings> {
    let mut all: Option<Settings> = None;
    for (_, map) in units {
        let observation = map.experiment.observation();
        let advice = match observation {
            Observation::EveryPath(_) | Observation::UnknownPaths(_) => None,
            // Only possible with --divide. Without it, the module `interesting` divides the interesting paths.
            Observation::InterestingPaths(_) => Some("Omit --divide, or pass the program that counts all paths"),
            Observation::IterationCounts(_) => Some("Pass the program that counts all paths, with --divide iterations"),
            Observation::SegmentCounts(_) => Some("Pass the program that counts all paths, with --divide segments:SET"),
            _ => Some("Build it with default parameters"),
        };
        if let Some(advice) = advice {
            let (source, what) = (&map.source, observation.observation_properties().kind().option);
            bail!("cannot divide the paths of {source} among copies of the program, because it was built with {what}. {advice}");
        }
        for function in &map.functions {
            ensure!(
                has_standard_numbering(function)?,
                "the paths of function `{}` cannot be divided among copies of the program, because they are counted in a table. Build the \
                 program without table-slots",
                function.name
            );
        }
        let stated = Settings::from(&map.experiment);
        let common = Settings { reach: stated.reach, threads: stated.threads, ..Settings::default() };
        let shared = match map.experiment.is_residual() {
            false => common,
            true => Settings {
                known: stated.known,
                max_paths: stated.max_paths,
                chords: stated.chords,
                trip_counts: stated.trip_counts,
                early: stated.early,
                ..common
            },
        };
        match &all {
            Some(others) if others.known != shared.known => {
                bail!("the program's source files were compiled with different sets of known paths. Build all of them with the same set")
            }
            Some(others) if *others != shared => {
                bail!("the program's source files were built with different settings of reach or threads. Use the same settings for all")
            }
            _ => all = Some(shared),
        }
    }
    Ok(all.unwrap_or_default())
}

/// The profile on which a partition is based.
pub struct PartitionProfile {
    /// The profile.
    pub profile: Profile,
    /// True if the profile is from a run of the same command with the same input.
    pub same_input: bool,
}
