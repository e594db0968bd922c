//! The copies of a program: its counting divided by a plan, each part carried out in a program of its own, made from the stored bitcode.

use super::objects::Objects;
use super::weights::Weights;
use crate::cli::Copies;
use crate::instrument::Inputs;
use crate::plan;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_flow::partition::{self, CopyPlan, Measure, Options, Plan, Procedure, Strategy, hits};
use trodden_profile::copies::Divided;
use trodden_profile::{Profile, has_usual_numbers, procedures};
use trodden_unit::{Frame, Identity, Image, PARTS_WORD, Parts, UnitMap};

/// How names of folders of copies begin; their numbers follow.
pub const COPY: &str = "copy-";
/// Words of schemes that copies take over from the program.
const TAKEN_OVER: [&str; 2] = ["reach=", "threads="];
/// The word by which functions are cut.
const PATHS_WORD: &str = "max-paths=";

/// A program whose counting can be divided.
pub struct Program {
    /// The program.
    pub divided: Divided,
    /// Its distinct units.
    units: Vec<(Frame, UnitMap)>,
    /// Words of the plugin for all copies.
    words: String,
}

impl Program {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read, or is not counted in full.
    pub fn read(path: &Path) -> Result<Program> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let image = Image::read(&bytes)
            .with_context(|| format!("{}: give the instrumented program itself, not a script that runs it", path.display()))?;
        let mut units = plan::units(path)?;
        let divided = Divided {
            identity: image.identity,
            path: fs::canonicalize(path)?.display().to_string(),
            build_id: image.build_id,
            units: units.iter().map(|(frame, map)| (frame.unit, Arc::new(map.clone()))).collect(),
        };
        let mut known = HashSet::new();
        units.retain(|(frame, _)| known.insert(frame.unit));
        let words = words(&units)?;
        Ok(Program { divided, units, words })
    }

    /// Its distinct units.
    pub fn units(&self) -> &[(Frame, UnitMap)] {
        &self.units
    }

    /// Words by which a variant of another tier has the same paths under the same numbers.
    pub fn words_with_paths(&self) -> String {
        let cut = self.units.first().and_then(|(_, map)| map.scheme.split(' ').find(|w| w.starts_with(PATHS_WORD)));
        let one_version = if self.words.contains("threads=") { "versions=one" } else { "" };
        format!("{} {} {one_version}", self.words, cut.unwrap_or_default())
    }
}

/// A program and how its counting is divided.
pub struct Division {
    /// The program.
    pub program: Divided,
    /// Its distinct units.
    units: Vec<(Frame, UnitMap)>,
    /// What each copy does in each function of those units, in order.
    pub copies: Vec<CopyPlan>,
    /// Words of the plugin for all copies.
    words: String,
    /// Hits of each copy in the run by which the counting was divided, if there was one on the same input.
    expected: Option<Vec<u64>>,
}

impl Division {
    /// Divides a program's counting.
    ///
    /// # Errors
    /// The profile to go by is not of this program, or a map is damaged.
    pub fn of(program: Program, options: &Copies, weights: Option<&Weights>) -> Result<Division> {
        let Program { divided: program, units, words } = program;
        let words = words + if options.count_hits { " hits=counted" } else { "" };
        let mut procedures = plan::procedures(&units, weights.map(|w| &w.profile))?;
        let strategy = Strategy::from(options.strategy);
        if strategy == Strategy::P3 && !options.all_procedures {
            plan::add_call_sites(&units, &mut procedures)?;
        }
        let count = options.copies.unwrap_or(1);
        let choices =
            Options { copies: count, all_procedures: options.all_procedures, fold_again: false, measure: Measure::from(options.hits) };
        let copies = partition::plan(&procedures, strategy, &choices).copies;
        let expected = weights.filter(|w| w.same_input).map(|_| copies.iter().map(|c| hits::of_copy(&procedures, c).all).collect());
        Ok(Division { program, units, copies, words, expected })
    }

    /// What a plan for the program's units says.
    pub fn planned(program: Program, plan: Plan) -> Division {
        let Program { divided: program, units, words } = program;
        Division { program, units, copies: plan.copies, words, expected: None }
    }

    /// Whether a copy that counted nothing should have counted something, as the earlier run says.
    pub fn expects_counts(&self, copy: usize) -> bool {
        self.expected.as_ref().is_some_and(|hits| hits[copy] > 0)
    }

    /// Makes the programs of the copies in a folder, and one that counts nothing if that is wanted. They write where the environment says, or else to files of the pattern `writes`.
    ///
    /// # Errors
    /// Bitcode or link recipe are missing, or a tool fails.
    pub fn make(&self, folder: &Path, plain: bool, writes: Option<&str>) -> Result<Vec<PathBuf>> {
        let nothing = CopyPlan { parts: vec![None; self.copies.first().map_or(0, |c| c.parts.len())] };
        let inputs = Inputs::of(Path::new(&self.program.path))?;
        let words = format!("{} keep=map", self.words);
        let mut objects = Objects::with(&words)?;
        let copies: Vec<HashMap<Identity, PathBuf>> = self
            .copies
            .iter()
            .chain(plain.then_some(&nothing))
            .map(|copy| {
                let parts = self.parts(copy);
                let nothing = Parts::default();
                inputs.frames.iter().map(|f| (f.unit, objects.want(f, Some(parts.get(&f.unit).unwrap_or(&nothing))))).collect()
            })
            .collect();
        objects.make()?;
        let link = |(at, objects): (usize, HashMap<Identity, PathBuf>)| {
            // A folder of its own, and the same name: the system tells programs the name of their file.
            let own = folder.join(format!("{COPY}{at:04}"));
            fs::create_dir(&own).with_context(|| format!("cannot make {}", own.display()))?;
            let program = own.join(Path::new(&self.program.path).file_name().unwrap_or_else(|| "program".as_ref()));
            inputs.link_with(objects, &program, &words, writes).with_context(|| format!("copy {at} cannot be linked"))?;
            Ok(program)
        };
        copies.into_iter().enumerate().map(link).collect()
    }

    /// A copy's parts of each unit in which it counts.
    fn parts(&self, copy: &CopyPlan) -> HashMap<Identity, Parts> {
        let mut units = HashMap::<Identity, Parts>::new();
        let functions = self.units.iter().flat_map(|(frame, map)| map.functions.iter().map(move |f| (frame.unit, f)));
        for ((unit, function), part) in functions.zip(&copy.parts) {
            part.iter().for_each(|part| units.entry(unit).or_default().add(unit, function, part.clone()));
        }
        units
    }

    /// The functions with their executions in a profile of the program, in the order of the plans.
    ///
    /// # Errors
    /// A map is damaged.
    pub fn measured(&self, profile: &Profile) -> Result<Vec<Procedure>> {
        let counted: Vec<_> = profile.images.iter().flat_map(|i| &i.units).collect();
        let mut out = Vec::new();
        for (frame, map) in &self.units {
            for function in &map.functions {
                // A unit may be in a program twice.
                let mut counts = std::collections::BTreeMap::<u64, u64>::new();
                for unit in counted.iter().filter(|u| u.unit == frame.unit) {
                    unit.counts_of(function).for_each(|(path, count)| *counts.entry(path).or_default() += count);
                }
                out.push(procedures::measured(function, &counts.into_iter().collect::<Vec<_>>())?);
            }
        }
        Ok(out)
    }
}

/// Words for all copies, after a check that the program counts all its paths under their usual numbers.
fn words(units: &[(Frame, UnitMap)]) -> Result<String> {
    let mut all: Option<String> = None;
    for (_, map) in units {
        let special = ["tier=", "events=", "markers=", PARTS_WORD].iter().find(|word| map.scheme.split(' ').any(|w| w.starts_with(*word)));
        if let Some(word) = special {
            bail!("the unit of {} is built with {word}..., which copies cannot share: build it with default parameters", map.source);
        }
        for function in &map.functions {
            ensure!(
                has_usual_numbers(function)?,
                "the paths of function `{}` have numbers of their own: build without --order weights, --table-slots, and --scheme targeted or practical",
                function.name
            );
        }
        let taken: Vec<&str> = map.scheme.split(' ').filter(|w| TAKEN_OVER.iter().any(|t| w.starts_with(t))).collect();
        let taken = taken.join(" ");
        match &all {
            Some(known) if *known != taken => bail!("units of the program are built with different --reach or --threads: build all alike"),
            _ => all = Some(taken),
        }
    }
    Ok(all.unwrap_or_default())
}
