//! `trodden-lab plan`: divides the counting of a program among copies, and shows the cost of each copy without running it.

use crate::cli;
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use trodden_command::laboratory::folders;
use trodden_console::arguments::choices::word_of_choice;
use trodden_console::arguments::partition::{COPY_STRATEGY_CHOICES, HIT_MEASURE_CHOICES};
use trodden_console::notes::note;
use trodden_console::output;
use trodden_flow::part::{Measure, Part, ProbeHits};
use trodden_partition::lower_bound::{LowerBound, bound};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, hits};
use trodden_profile::procedures::{self, add_call_sites, add_estimates};
use trodden_recording::copies::make::CopiedProgram;
use trodden_report::words::plural;
use trodden_stored::named;

const SCHEMA_VERSION: u32 = 1;
/// Name that is shown instead of a strategy if `--max-probes` limits the probes per copy.
const BOUNDED_PLAN_NAME: &str = "bounded";

pub fn run(job: &cli::PlanArguments) -> Result<ExitCode> {
    let program = CopiedProgram::read(&job.program, folders().units.as_ref())?;
    let units = program.units();
    let profile = job.profile.as_deref().map(named::load_profile).transpose()?;
    let by = |profile: &String| format!("{}, with the profile {profile}", job.program.display());
    let mut procedures = procedures::procedures(units, profile.as_ref())
        .with_context(|| job.profile.as_ref().map_or_else(|| job.program.display().to_string(), by))?;
    if job.strategy.contains(&PartitionStrategy::P3) {
        add_call_sites(units, &mut procedures);
    }
    let basis = if profile.is_some() { add_estimates(units, &procedures)? } else { procedures.clone() };
    if profile.is_none() {
        note("the numbers of hits are estimated from the code. For measured hits, pass a profile of the program, as in --profile last");
    }
    let (measure, measured) = (job.hits, profile.is_some());
    let mut answers = Vec::new();
    if let Some(max_probes) = job.max_probes {
        let plan = program.divide_by_max_probes(&basis, max_probes as usize, measure)?;
        let bound = bound(&procedures, plan.copies.len(), measure);
        answers.push(PlanDocument::new(BOUNDED_PLAN_NAME, measure, &procedures, &plan, &bound, measured));
    }
    for copies in job.copies.iter().filter(|_| job.max_probes.is_none()) {
        let bound = bound(&procedures, *copies, measure);
        for strategy in &job.strategy {
            let profitable = job.profitable.into();
            let options = PartitionOptions { copies: *copies, profitable, fold_again: job.fold_again, measure };
            let plan = program.divide(&basis, *strategy, &options)?;
            answers.push(PlanDocument::new(
                word_of_choice(&COPY_STRATEGY_CHOICES, strategy),
                measure,
                &procedures,
                &plan,
                &bound,
                measured,
            ));
        }
    }
    if job.json {
        let (program, procedures) = (&*job.program, procedures.len());
        output::print_json(&PlanReport { schema_version: SCHEMA_VERSION, program, measured, procedures, plans: answers })?;
    } else {
        let mut out = output::text_writer();
        answers.iter().try_for_each(|a| a.print(&mut out))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct PlanReport<'a> {
    schema_version: u32,
    program: &'a Path,
    /// True if frequencies were measured; false if they are estimated.
    measured: bool,
    procedures: usize,
    plans: Vec<PlanDocument>,
}

#[derive(Serialize)]
struct PlanDocument {
    strategy: &'static str,
    hits_counted: &'static str,
    copies: Vec<CopyCost>,
    /// For `p3`, the number of functions whose paths could be divided among copies. For other strategies, the number of functions whose
    /// paths are divided.
    profitable_procedures: usize,
    slowest: u64,
    bound: LowerBoundRow,
}

#[derive(Serialize)]
struct CopyCost {
    procedures: usize,
    probes: usize,
    labels: usize,
    /// Number of executions of labels and of path counts.
    hits: u64,
    /// Number of executions of labels only.
    label_hits: u64,
}

#[derive(Serialize)]
struct LowerBoundRow {
    sequential: u64,
    ideal: u64,
    /// `None` without a profile, because estimates have frequencies of edges only.
    most_frequent_path: Option<u64>,
    proven: u64,
    proven_for_whole_ends: u64,
}

impl PlanDocument {
    fn new(
        strategy: &'static str,
        measure: Measure,
        procedures: &[Procedure],
        plan: &trodden_partition::PartitionPlan,
        bound: &LowerBound,
        measured: bool,
    ) -> PlanDocument {
        let copy = |copy: &trodden_partition::CopyPlan| {
            let parts: Vec<&Part> = copy.parts.iter().flatten().collect();
            let ProbeHits { labels, all } = hits::copy_hits(procedures, copy);
            CopyCost {
                procedures: parts.len(),
                probes: parts.iter().map(|p| p.probes()).sum(),
                labels: parts.iter().map(|p| p.labels()).sum(),
                hits: all,
                label_hits: labels,
            }
        };
        PlanDocument {
            strategy,
            hits_counted: word_of_choice(&HIT_MEASURE_CHOICES, &measure),
            copies: plan.copies.iter().map(copy).collect(),
            profitable_procedures: plan.profitable,
            slowest: hits::slowest_copy_hits(procedures, plan, measure),
            bound: LowerBoundRow {
                sequential: bound.sequential,
                ideal: bound.ideal,
                most_frequent_path: measured.then_some(bound.path),
                proven: bound.proven(),
                proven_for_whole_ends: bound.proven_for_whole_ends(),
            },
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let share = |hits: u64| format!("{hits:>16} {:>6.1} %", 100.0 * hits as f64 / (self.bound.sequential.max(1)) as f64);
        let counted = if self.hits_counted == "all" { "labels and counts of paths" } else { "labels" };
        writeln!(out, "{} in {} (hits: {counted})", self.strategy, plural(self.copies.len() as u128, "copy", "copies"))?;
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
        let divided = if self.strategy == "p3" { "profitable procedures" } else { "divided functions" };
        writeln!(out, "  {divided:<24} {:>16}\n", self.profitable_procedures)
    }
}
