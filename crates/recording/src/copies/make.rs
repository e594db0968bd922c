//! Makes the copies of a program: a plan divides its counting, and each part is built into a program from the stored bitcode.

use super::objects::Objects;
use super::units::units;
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
use trodden_partition::tasks::are_too_many;
use trodden_partition::{CopyPlan, PartitionOptions, PartitionPlan, PartitionStrategy, Procedure, bounded, cross_check, hits, weighted};
use trodden_profile::copies::{PartitionedProgram, edges};
use trodden_profile::procedures::{self, add_call_sites, add_estimates, edge_procedures};
use trodden_profile::{Profile, has_standard_numbering};
use trodden_unit::experiment::{Keep, Timing};
use trodden_unit::{Frame, FunctionParts, Identity, Image, Observation, Settings, UnitCache, UnitMap};

/// Prefix of the names of copies' folders; the number follows.
pub const COPY_PREFIX: &str = "copy-";
/// A program whose counting can be divided.
pub struct CopiedProgram {
    /// The program in the form that merging needs.
    pub original: PartitionedProgram,
    units: Vec<(Frame, UnitMap)>,
    /// Settings that all copies share.
    settings: Settings,
}

impl CopiedProgram {
    /// Reads a program.
    ///
    /// # Errors
    /// It cannot be read, or does not count all its paths or all its unknown paths.
    pub fn read(path: &Path, store: Option<&UnitCache>) -> Result<CopiedProgram> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let image = Image::read(&bytes)
            .with_context(|| format!("{}: pass the instrumented program itself, not a script that runs it", path.display()))?;
        let mut units = units(path, store)?;
        let original = PartitionedProgram {
            identity: image.identity,
            path: fs::canonicalize(path)?.display().to_string(),
            build_id: image.build_id,
            units: units.iter().map(|(frame, map)| (frame.unit, Arc::new(map.clone()))).collect(),
            edges: false,
        };
        let mut known = HashSet::new();
        units.retain(|(frame, _)| known.insert(frame.unit));
        let settings = settings(&units)?;
        Ok(CopiedProgram { original, units, settings })
    }

    /// Whether the program counts unknown paths only.
    pub fn is_residual(&self) -> bool {
        self.settings.known.is_some()
    }

    fn divide_edges(self, copies: usize, weights: Option<&Profile>) -> Result<PathPartition> {
        ensure!(!self.is_residual(), "{} counts unknown paths only: pass a program that counts all to --divide edges", self.original.path);
        let edges = self.units.iter().map(|(frame, map)| Ok((frame.clone(), edges::edge_unit(map)?))).collect::<Result<Vec<_>>>()?;
        let procedures = edge_procedures(&self.units, &edges, weights)?;
        let functions = edges.iter().flat_map(|(_, map)| &map.functions);
        let networks = functions.map(|f| Ok(edges::network(f)?.1)).collect::<Result<Vec<_>>>()?;
        let plan = trodden_partition::edges::plan(&procedures, &networks, copies);
        let original = edges::edge_program(&self.original)?;
        Ok(PathPartition::planned(CopiedProgram { original, units: edges, ..self }, plan))
    }

    /// Divides the counting of paths. `procedures` are the functions of the distinct units.
    ///
    /// # Errors
    /// The strategy does not suit the program.
    pub fn divide(&self, procedures: &[Procedure], strategy: PartitionStrategy, options: &PartitionOptions) -> Result<PartitionPlan> {
        match (self.is_residual(), strategy) {
            (false, PartitionStrategy::P3) => {
                self.note_undivided(procedures, options);
                Ok(trodden_partition::plan(procedures, strategy, options))
            }
            (false, _) => Ok(trodden_partition::plan(procedures, strategy, options)),
            // Known paths cost little in a function that is counted anyway, so dividing its unknown paths would save nothing.
            (true, PartitionStrategy::Weighted) => Ok(weighted::whole(procedures, options)),
            (true, PartitionStrategy::Pbl | PartitionStrategy::Sbl) => Ok(trodden_partition::plan(procedures, strategy, options)),
            (true, PartitionStrategy::P3) => bail!(
                "{} counts unknown paths only, which copies share by whole functions: pass --strategy weighted or pbl",
                self.original.path
            ),
        }
    }

    /// Divides the counting among as few copies as possible with at most `most` probes each.
    ///
    /// # Errors
    /// Some paths need more probes than that, or the program counts unknown paths only.
    pub fn bounded(&self, procedures: &[Procedure], most: usize, measure: Measure) -> Result<PartitionPlan> {
        ensure!(!self.is_residual(), "{} counts unknown paths only: leave --max-probes out", self.original.path);
        bounded::plan(procedures, most, measure).map_err(|few| {
            let name =
                self.units.iter().flat_map(|(_, map)| &map.functions).nth(few.procedure).map_or("", |function| function.plain_name());
            anyhow!("--max-probes {most} is too small for `{name}`: some of its paths need {} probes together", few.probes)
        })
    }

    /// As [`CopiedProgram::bounded`], for a given number of copies. Copies that are not needed count nothing.
    pub fn divide_bounded(&self, procedures: &[Procedure], most: usize, options: &PartitionOptions) -> Result<PartitionPlan> {
        let mut plan = self.bounded(procedures, most, options.measure)?;
        let needed = plan.copies.len();
        ensure!(needed <= options.copies, "--max-probes {most} needs {needed} copies: pass --copies {needed} or more");
        plan.copies.resize(options.copies, CopyPlan { parts: vec![None; procedures.len()] });
        Ok(plan)
    }

    /// Reports the functions that p3 does not divide because they would have too many tasks.
    fn note_undivided(&self, procedures: &[Procedure], options: &PartitionOptions) {
        let functions = self.units.iter().flat_map(|(_, map)| &map.functions);
        let profitable = &options.profitable;
        let threshold = |procedure: &Procedure| profitable.threshold(&procedure.dag, options.copies);
        let is_left = |procedure: &Procedure| profitable.has_few_callers(procedure) && are_too_many(&procedure.dag, threshold(procedure));
        let left: Vec<&str> = procedures.iter().zip(functions).filter(|(p, _)| is_left(p)).map(|(_, f)| f.name.as_str()).collect();
        if let Some(first) = left.first() {
            let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
            log::info!(
                "strategy p3 does not divide {first}{more}, which would have too many tasks: `--strategy weighted` divides large functions"
            );
        }
    }

    /// The distinct units.
    pub fn units(&self) -> &[(Frame, UnitMap)] {
        &self.units
    }

    /// Settings of a sampled variant that counts all paths under the same numbers.
    pub fn sampled(&self) -> Settings {
        Settings {
            when: Some(Timing::Bursts),
            threads: None,
            keep: Some(Keep::Map),
            max_paths: self.units.first().map(|(_, map)| map.experiment.placement().max_paths),
            known: None,
            ..self.settings.clone()
        }
    }
}

/// A program with a partition of its counting.
pub struct PathPartition {
    /// The program in the form that merging needs.
    pub program: PartitionedProgram,
    units: Vec<(Frame, UnitMap)>,
    /// For each copy, its part of each function of the units, in order.
    pub copies: Vec<CopyPlan>,
    /// The plan of a single copy that counts all paths; only if copies count paths, and all of them.
    pub whole: Option<CopyPlan>,
    /// Settings that all copies share.
    settings: Settings,
    /// Expected hits of each copy, if the partition was based on a run with the same input.
    expected: Option<Vec<u64>>,
}

impl PathPartition {
    /// Divides a program's counting.
    ///
    /// # Errors
    /// The profile is not of this program, or a map is damaged.
    pub fn new(program: CopiedProgram, options: &CopyOptions, weights: Option<&Weights>) -> Result<PathPartition> {
        if matches!(options.shared, DividedCounts::Edges) {
            ensure!(!options.count_hits, "only copies that count paths can count hits: leave out --count-hits");
            return program.divide_edges(options.copies, weights.map(|w| &w.profile));
        }
        ensure!(!options.count_hits || !program.is_residual(), "only copies that count all paths can count hits: leave out --count-hits");
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
            Some(most) => program.divide_bounded(basis, most, &choices)?,
            None => program.divide(basis, strategy, &choices)?,
        };
        let is_whole = !program.is_residual();
        if is_whole && options.max_probes.is_none() {
            cross_check::add(&procedures, &mut plan, choices.measure);
        }
        // The baseline for the relative cost of copies. Its labels must be placed by the same frequencies as theirs.
        let single = PartitionOptions { copies: 1, ..choices };
        let whole = is_whole.then(|| trodden_partition::plan(basis, PartitionStrategy::Sbl, &single).copies.remove(0));
        let expected = weights.filter(|w| w.same_input).map(|_| plan.copies.iter().map(|c| hits::of_copy(&procedures, c).all).collect());
        let mut partition = PathPartition::planned(program, plan);
        partition.settings.count_hits = options.count_hits.then_some(true);
        Ok(PathPartition { expected, whole, ..partition })
    }

    /// A partition by a plan for the program's units.
    pub fn planned(program: CopiedProgram, plan: PartitionPlan) -> PathPartition {
        let CopiedProgram { original: program, units, settings } = program;
        PathPartition { program, units, copies: plan.copies, whole: None, settings, expected: None }
    }

    /// Whether the program counts unknown paths only.
    pub fn is_residual(&self) -> bool {
        self.settings.known.is_some()
    }

    /// Whether an earlier run on the same input implies that a copy counts something.
    pub fn expects_counts(&self, copy: usize) -> bool {
        self.expected.as_ref().is_some_and(|hits| hits[copy] > 0)
    }

    /// Builds the programs of the copies in a folder and, if `plain`, one that counts nothing. They write where the environment says, or
    /// else to files of the pattern `writes`.
    ///
    /// # Errors
    /// The bitcode or the link recipe is missing, a tool fails, or a signal interrupts the build.
    pub fn make(&self, folder: &Path, plain: bool, writes: Option<&str>, stop: &StopFlag, context: CopyContext) -> Result<Vec<PathBuf>> {
        let nothing = CopyPlan { parts: vec![None; self.copies.first().map_or(0, |c| c.parts.len())] };
        let inputs = LinkInputs::from_program(context.driver, Path::new(&self.program.path))?;
        let settings = Settings { keep: Some(Keep::Map), ..self.settings.clone() };
        let mut objects = Objects::new(&settings, &inputs.llvm, context)?;
        // The request without parts is for links and the plugin; each unit has its own parts.
        let request = experiment::write_request(
            context.driver,
            &experiment::resolve(context.driver, Settings { count_hits: None, ..settings.clone() })?,
        )?;
        let copies: Vec<HashMap<Identity, PathBuf>> = self
            .copies
            .iter()
            .chain(plain.then_some(&nothing))
            .map(|copy| {
                let parts = self.parts(copy);
                let nothing = FunctionParts::default();
                inputs.frames.iter().map(|f| (f.unit, objects.request(f, Some(parts.get(&f.unit).unwrap_or(&nothing))))).collect()
            })
            .collect();
        objects.make(stop)?;
        let link = |(at, objects): (usize, HashMap<Identity, PathBuf>)| {
            stop.check()?;
            // Each copy gets its own folder and keeps the file name, which is the process name.
            let own = folder.join(format!("{COPY_PREFIX}{at:04}"));
            fs::create_dir(&own).with_context(|| format!("cannot create the folder {}", own.display()))?;
            let program = own.join(Path::new(&self.program.path).file_name().unwrap_or_else(|| "program".as_ref()));
            inputs.link_with(context.driver, objects, &program, &request, writes).with_context(|| format!("cannot link copy {at}"))?;
            Ok(program)
        };
        copies.into_iter().enumerate().map(link).collect()
    }

    /// A copy's parts of each unit in which it counts something.
    fn parts(&self, copy: &CopyPlan) -> HashMap<Identity, FunctionParts> {
        let mut units = HashMap::<Identity, FunctionParts>::new();
        let functions = self.units.iter().flat_map(|(frame, map)| map.functions.iter().map(move |f| (frame.unit, f)));
        for ((unit, function), part) in functions.zip(&copy.parts) {
            part.iter().for_each(|part| units.entry(unit).or_default().add(unit, function, part.clone()));
        }
        units
    }

    /// The functions with their executions in a profile of the program, in the order of the plans.
    pub fn measured(&self, profile: &Profile) -> Result<Vec<Procedure>> {
        // The first image is the program's own; libraries may contain units of the same object.
        let counted: Vec<_> = profile.images.iter().take(1).flat_map(|i| &i.units).collect();
        let mut out = Vec::new();
        for (frame, map) in &self.units {
            for function in &map.functions {
                // A program may contain a unit twice.
                let mut counts = std::collections::BTreeMap::<u64, u64>::new();
                for unit in counted.iter().filter(|u| u.unit == frame.unit) {
                    unit.counts_of(function).for_each(|(path, count)| *counts.entry(path).or_default() += count);
                }
                out.push(procedures::measured_procedure(function, &counts.into_iter().collect::<Vec<_>>())?);
            }
        }
        Ok(out)
    }
}

/// The settings that all copies share. Fails unless the program counts all its paths under their usual numbers, or is residual; copies of
/// a residual program keep its functions as they are.
fn settings(units: &[(Frame, UnitMap)]) -> Result<Settings> {
    let mut all: Option<Settings> = None;
    for (_, map) in units {
        let observation = map.experiment.observation();
        let remedy = match observation {
            Observation::EveryPath(_) | Observation::UnknownPaths(_) => None,
            // Reached only with --divide: the paths themselves are divided by `interesting`.
            Observation::InterestingPaths(_) => Some("record it with --copies alone, or pass the program that counts all paths"),
            Observation::SegmentCounts(_) => Some("pass the program that counts all paths, with --divide segments:SET"),
            _ => Some("build it with default parameters"),
        };
        if let Some(remedy) = remedy {
            let (source, what) = (&map.source, observation.observed().kind().option);
            bail!("the unit of {source} was built with {what}, which copies cannot share: {remedy}");
        }
        for function in &map.functions {
            ensure!(
                has_standard_numbering(function)?,
                "the paths of function `{}` do not have their usual numbers: build without table-slots",
                function.name
            );
        }
        let said = Settings::from(&map.experiment);
        let common = Settings { reach: said.reach, threads: said.threads, ..Settings::default() };
        let taken = match map.experiment.is_residual() {
            false => common,
            true => Settings {
                known: said.known,
                max_paths: said.max_paths,
                chords: said.chords,
                trip_counts: said.trip_counts,
                early: said.early,
                ..common
            },
        };
        match &all {
            Some(others) if others.known != taken.known => bail!("units of the program know different paths: build all with the same ones"),
            Some(others) if *others != taken => {
                bail!("units of the program were built with different settings of reach or threads: build all with the same ones")
            }
            _ => all = Some(taken),
        }
    }
    Ok(all.unwrap_or_default())
}

/// A profile to base a partition on.
pub struct Weights {
    /// The profile.
    pub profile: Profile,
    /// Whether it is of the same command with the same input.
    pub same_input: bool,
}
