//! `trodden plan`: how the counting of a program would be divided among copies of it, and what each copy would cost, without running any.

mod calls;

use crate::cli::{self, CopyStrategy};
use crate::commands::copies::hand_out;
use crate::commands::copies::make::Program;
use crate::driver::assets;
use crate::notes::note;
use crate::profiles;
use anyhow::{Context, Result, bail};
use calls::Calls;
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use trodden_flow::partition::lower_bound::{LowerBound, bound};
use trodden_flow::partition::{self, Hits, Measure, Options, Part, Procedure, Strategy, hits};
use trodden_profile::procedures;
use trodden_profile::{FunctionPaths, Profile, UnitProfile};
use trodden_unit::{Frame, FunctionMap, Identity, Image, UnitMap};

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Makes plans and prints what they cost.
///
/// # Errors
/// The program or the profile cannot be read, or do not fit each other.
pub fn run(job: &cli::Plan) -> Result<ExitCode> {
    let handed = job.make.as_deref().map(|folder| hand_out::Order::of(job, folder)).transpose()?;
    let own;
    let program = match &handed {
        Some(order) => order.program(),
        None => {
            own = Program::read(&job.program)?;
            &own
        }
    };
    let units = program.units();
    let profile = job.profile.as_deref().map(profiles::load).transpose()?;
    let by = |profile: &String| format!("{}, divided by the profile {profile}", job.program.display());
    let mut procedures =
        procedures(units, profile.as_ref()).with_context(|| job.profile.as_ref().map_or_else(|| job.program.display().to_string(), by))?;
    if job.strategy.contains(&CopyStrategy::P3) && !job.all_procedures {
        add_call_sites(units, &mut procedures);
    }
    let basis = if profile.is_some() { with_estimates(units, &procedures)? } else { procedures.clone() };
    if profile.is_none() {
        note("hits are estimates, of one call of each function: give a profile of the program (--profile last) for measured ones");
    }
    let measure = Measure::from(job.hits);
    let (mut answers, mut last) = (Vec::new(), None);
    for copies in &job.copies {
        let bound = bound(&procedures, *copies, measure);
        for strategy in &job.strategy {
            let options = Options { copies: *copies, all_procedures: job.all_procedures, fold_again: job.fold_again, measure };
            let plan = program.divide(&basis, Strategy::from(*strategy), &options)?;
            answers.push(Answer::of(*strategy, measure, &procedures, &plan, &bound).known(profile.is_some()));
            last = Some(plan);
        }
    }
    let mut out = crate::output::text_or_json(job.json);
    match job.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&Answers::of(job, profile.is_some(), &procedures, answers))?)?,
        false => answers.iter().try_for_each(|a| a.print(&mut out))?,
    }
    if let (Some(order), Some(plan)) = (handed, last) {
        order.make(plan)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The units of a program with their maps, in link order.
///
/// # Errors
/// It cannot be read, is not instrumented, or a map is missing or damaged.
pub fn units(program: &Path) -> Result<Vec<(Frame, UnitMap)>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let image = Image::read(&bytes).with_context(|| program.display().to_string())?;
    let store = assets::store().ok();
    let mut units = Vec::new();
    for placed in &image.units {
        let Some(frame) = image.frame(placed.unit, store.as_ref()).with_context(|| program.display().to_string())? else {
            bail!(
                "{}: the map of a unit is neither in it nor in the unit store: rebuild the program, or set TRODDEN_STORE",
                program.display()
            )
        };
        let map = frame.map().with_context(|| program.display().to_string())?;
        units.push((frame, map));
    }
    Ok(units)
}

/// The functions, with what the profile knows of them; without one, with estimated frequencies.
///
/// # Errors
/// The profile is of another program, or a map is damaged.
pub fn procedures(units: &[(Frame, UnitMap)], profile: Option<&Profile>) -> Result<Vec<Procedure>> {
    let counted = profile.map(Counted::of);
    let functions = || units.iter().enumerate().flat_map(|(at, (frame, map))| map.functions.iter().map(move |f| (at, frame, map, f)));
    if counted.as_ref().is_some_and(|known| functions().all(|(_, frame, map, f)| known.function(frame, map, f).is_none())) {
        bail!("the profile has none of its functions: it is of another program, or of another build; record this one");
    }
    let procedure = |(unit, frame, map, function): (usize, &Frame, &UnitMap, &FunctionMap)| {
        let found = match &counted {
            None => procedures::estimated(function)?,
            Some(known) => procedures::measured(function, &known.counts(frame, map, function))?,
        };
        Ok(Procedure { unit, ..found })
    };
    functions().map(procedure).collect()
}

/// The same for units in which each path is an edge; `units` are those of which they were made, which the profile knows.
///
/// # Errors
/// The profile is of another program, or a map is damaged.
pub fn procedures_of_edges(units: &[(Frame, UnitMap)], edges: &[(Frame, UnitMap)], profile: Option<&Profile>) -> Result<Vec<Procedure>> {
    let counted = profile.map(Counted::of);
    let pairs =
        units.iter().zip(edges).flat_map(|((frame, map), (_, own))| map.functions.iter().zip(&own.functions).map(move |f| (frame, map, f)));
    let procedure = |(frame, map, (function, own)): (&Frame, &UnitMap, (&FunctionMap, &FunctionMap))| match &counted {
        None => procedures::estimated(own),
        Some(known) => procedures::of_edges(own, &FunctionPaths::decode(function, known.counts(frame, map, function))?),
    };
    Ok(pairs.map(procedure).collect::<Result<_, _>>()?)
}

/// Functions of a profile: of the units themselves, or of other variants of them that have the same paths under the same numbers.
struct Counted<'a> {
    units: HashMap<Identity, &'a UnitProfile>,
    functions: HashMap<(&'a str, &'a str), (&'a UnitProfile, &'a FunctionMap)>,
}

impl<'a> Counted<'a> {
    fn of(profile: &'a Profile) -> Counted<'a> {
        let units = profile.images.iter().flat_map(|i| &i.units).map(|unit| (unit.unit, unit)).collect();
        let functions = profile.functions().map(|(_, unit, f)| ((unit.map.source.as_str(), f.name.as_str()), (unit, f))).collect();
        Counted { units, functions }
    }

    fn counts(&self, frame: &Frame, map: &UnitMap, function: &'a FunctionMap) -> Vec<(u64, u64)> {
        self.function(frame, map, function).map(|(u, f)| u.counts_of(f).collect()).unwrap_or_default()
    }

    fn function(&self, frame: &Frame, map: &UnitMap, function: &'a FunctionMap) -> Option<(&'a UnitProfile, &'a FunctionMap)> {
        if let Some(unit) = self.units.get(&frame.unit) {
            return Some((unit, function));
        }
        let (unit, other) = *self.functions.get(&(map.source.as_str(), function.name.as_str()))?;
        let same = other.shape == function.shape && other.counters == function.counters && other.cuts == function.cuts;
        (same && other.values == function.values).then_some((unit, other))
    }
}

/// The functions as they are to be divided: where nothing was measured, estimates decide. All of a function's together
/// weigh less than one execution that was measured.
///
/// # Errors
/// A map is damaged.
pub fn with_estimates(units: &[(Frame, UnitMap)], measured: &[Procedure]) -> Result<Vec<Procedure>> {
    /// How many parts an execution has, if their sum fits a word.
    const PARTS: u32 = 16;
    let sum = measured.iter().flat_map(|p| &p.frequencies).fold(1u64, |sum, n| sum.saturating_add(*n));
    let parts = 1u64 << PARTS.min(sum.leading_zeros().saturating_sub(2));
    let functions = units.iter().flat_map(|(_, map)| &map.functions);
    let procedure = |(known, function): (&Procedure, &FunctionMap)| {
        let estimated = procedures::estimated(function)?.frequencies;
        let all = estimated.iter().fold(1u128, |sum, n| sum + u128::from(*n));
        let share = |n: u64| (u128::from(n) * u128::from(parts - 1) / all) as u64;
        let frequencies = known.frequencies.iter().zip(estimated).map(|(n, e)| n.saturating_mul(parts).saturating_add(share(e))).collect();
        Ok(Procedure { frequencies, ..known.clone() })
    };
    measured.iter().zip(functions).map(procedure).collect()
}

/// Says of each function from how many places it is called.
pub fn add_call_sites(units: &[(Frame, UnitMap)], procedures: &mut [Procedure]) {
    let calls = Calls::of(units);
    let functions = units.iter().enumerate().flat_map(|(at, (_, map))| map.functions.iter().map(move |f| (at, f)));
    procedures.iter_mut().zip(functions).for_each(|(procedure, (unit, f))| procedure.call_sites = Some(calls.sites(unit, f)));
}

#[derive(Serialize)]
struct Answers<'a> {
    schema_version: u32,
    program: &'a Path,
    /// Whether frequencies were measured.
    measured: bool,
    procedures: usize,
    plans: Vec<Answer>,
}

impl Answers<'_> {
    fn of<'a>(job: &'a cli::Plan, measured: bool, procedures: &[Procedure], plans: Vec<Answer>) -> Answers<'a> {
        Answers { schema_version: SCHEMA_VERSION, program: &job.program, measured, procedures: procedures.len(), plans }
    }
}

/// A plan and its costs.
#[derive(Serialize)]
struct Answer {
    strategy: &'static str,
    hits_counted: &'static str,
    copies: Vec<Copy>,
    /// Procedures whose paths may be, or for `weighted` are, in several copies.
    profitable_procedures: usize,
    slowest: u64,
    bound: BoundRow,
}

#[derive(Serialize)]
struct Copy {
    procedures: usize,
    probes: usize,
    labels: usize,
    /// Executions of labels and counts.
    hits: u64,
    /// Executions of labels alone.
    label_hits: u64,
}

#[derive(Serialize)]
struct BoundRow {
    sequential: u64,
    ideal: u64,
    /// Not known without a profile: estimates are of edges.
    most_frequent_path: Option<u64>,
    proven: u64,
    proven_for_whole_ends: u64,
}

impl Answer {
    fn of(strategy: CopyStrategy, measure: Measure, procedures: &[Procedure], plan: &partition::Plan, bound: &LowerBound) -> Answer {
        let copy = |copy: &partition::CopyPlan| {
            let parts: Vec<&Part> = copy.parts.iter().flatten().collect();
            let Hits { labels, all } = hits::of_copy(procedures, copy);
            Copy {
                procedures: parts.len(),
                probes: parts.iter().map(|p| p.probes()).sum(),
                labels: parts.iter().map(|p| p.labels()).sum(),
                hits: all,
                label_hits: labels,
            }
        };
        Answer {
            strategy: strategy.name(),
            hits_counted: match measure {
                Measure::All => "all",
                Measure::Labels => "labels",
            },
            copies: plan.copies.iter().map(copy).collect(),
            profitable_procedures: plan.profitable,
            slowest: hits::slowest(procedures, plan, measure),
            bound: BoundRow {
                sequential: bound.sequential,
                ideal: bound.ideal,
                most_frequent_path: Some(bound.path),
                proven: bound.proven(),
                proven_for_whole_ends: bound.proven_for_whole_ends(),
            },
        }
    }

    /// Without measured frequencies, no path's is known.
    fn known(mut self, measured: bool) -> Answer {
        self.bound.most_frequent_path = self.bound.most_frequent_path.filter(|_| measured);
        self
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let share = |hits: u64| format!("{hits:>16} {:>6.1} %", 100.0 * hits as f64 / (self.bound.sequential.max(1)) as f64);
        let counted = if self.hits_counted == "all" { "labels and counts of paths" } else { "labels" };
        writeln!(out, "{} in {} copies (hits: {counted})", self.strategy, self.copies.len())?;
        writeln!(out, "  copy  functions    probes             hits  of sequential")?;
        for (at, copy) in self.copies.iter().enumerate() {
            let hits = if self.hits_counted == "all" { copy.hits } else { copy.label_hits };
            writeln!(out, "  {at:>4} {:>10} {:>9} {}", copy.procedures, copy.probes, share(hits))?;
        }
        writeln!(out, "  slowest copy             {}", share(self.slowest))?;
        writeln!(out, "  sequential               {}", share(self.bound.sequential))?;
        writeln!(out, "  ideal: divided by copies {}", share(self.bound.ideal))?;
        match self.bound.most_frequent_path {
            Some(path) => writeln!(out, "  most frequent path       {}", share(path))?,
            None => writeln!(out, "  most frequent path       {:>16}", "not known")?,
        }
        writeln!(out, "  no plan is below         {}", share(self.bound.proven))?;
        writeln!(out, "   with ends whole         {}", share(self.bound.proven_for_whole_ends))?;
        writeln!(out, "  divided functions        {:>16}\n", self.profitable_procedures)
    }
}
