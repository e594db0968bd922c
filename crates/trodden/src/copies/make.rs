//! The copies of a program: its counting divided by a plan, each part carried out in a program of its own, made from the stored bitcode.

use crate::cli::Copies;
use crate::instrument;
use crate::notes::note;
use crate::plan;
use crate::profiles;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_flow::partition::{self, CopyPlan, Measure, Options, Procedure, Strategy, hits};
use trodden_profile::copies::Divided;
use trodden_profile::{Profile, has_usual_numbers, procedures};
use trodden_unit::{Frame, Image, PARTS_WORD, Parts, UnitMap};

/// Words of schemes that copies take over from the program.
const TAKEN_OVER: [&str; 2] = ["reach=", "threads="];

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
    /// Hits of each copy in the run by which the counting was divided, if one was.
    expected: Option<Vec<u64>>,
}

impl Division {
    /// Divides a program's counting.
    ///
    /// # Errors
    /// It cannot be read, is not counted in full, or the profile to go by is not of this build.
    pub fn of(path: &Path, options: &Copies) -> Result<Division> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let image = Image::read(&bytes)
            .with_context(|| format!("{}: give the instrumented program itself, not a script that runs it", path.display()))?;
        let mut units = plan::units(path)?;
        let program = Divided {
            identity: image.identity,
            path: fs::canonicalize(path)?.display().to_string(),
            build_id: image.build_id,
            units: units.iter().map(|(frame, map)| (frame.unit, Arc::new(map.clone()))).collect(),
        };
        let mut known = HashSet::new();
        units.retain(|(frame, _)| known.insert(frame.unit));
        let words = words(&units)? + if options.count_hits { " hits=counted" } else { "" };
        let profile = options.weights.as_deref().map(profiles::load).transpose()?;
        if profile.is_none() {
            note(
                "the counting is divided by estimated frequencies: give an earlier profile of this build (--weights last) for a better division",
            );
        }
        let mut procedures = plan::procedures(&units, profile.as_ref())?;
        let strategy = Strategy::from(options.strategy);
        if strategy == Strategy::P3 && !options.all_procedures {
            plan::add_call_sites(&units, &mut procedures)?;
        }
        let count = options.copies.unwrap_or(1);
        let choices =
            Options { copies: count, all_procedures: options.all_procedures, fold_again: false, measure: Measure::from(options.hits) };
        let copies = partition::plan(&procedures, strategy, &choices).copies;
        let expected = profile.map(|_| copies.iter().map(|c| hits::of_copy(&procedures, c).all).collect());
        Ok(Division { program, units, copies, words, expected })
    }

    /// Whether a copy that counted nothing should have counted something, as the earlier run says.
    pub fn expects_counts(&self, copy: usize) -> bool {
        self.expected.as_ref().is_some_and(|hits| hits[copy] > 0)
    }

    /// Makes the programs of the copies in a folder, and one that counts nothing if that is wanted.
    ///
    /// # Errors
    /// Bitcode or link recipe are missing, or a tool fails.
    pub fn make(&self, folder: &Path, plain: bool) -> Result<Vec<PathBuf>> {
        let nothing = CopyPlan { parts: vec![None; self.copies.first().map_or(0, |c| c.parts.len())] };
        let wanted = self.copies.iter().chain(plain.then_some(&nothing));
        wanted.enumerate().map(|(at, copy)| self.make_one(copy, at, folder)).collect()
    }

    fn make_one(&self, copy: &CopyPlan, at: usize, folder: &Path) -> Result<PathBuf> {
        let mut parts = Parts::default();
        let functions = self.units.iter().flat_map(|(frame, map)| map.functions.iter().map(move |f| (frame.unit, f)));
        for ((unit, function), part) in functions.zip(&copy.parts) {
            part.iter().for_each(|part| parts.add(unit, function, part.clone()));
        }
        let file = folder.join(format!("parts-{at:04}"));
        fs::write(&file, parts.to_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
        let name = file.to_str().filter(|name| !name.contains(char::is_whitespace));
        let name = name.with_context(|| format!("{} has blanks in its name: give a folder without (--work FOLDER)", file.display()))?;
        let program = folder.join(format!("copy-{at:04}"));
        let words = format!("{} keep=map {PARTS_WORD}{name}", self.words);
        instrument::make(Path::new(&self.program.path), &program, &words).with_context(|| format!("copy {at} cannot be made"))?;
        Ok(program)
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
