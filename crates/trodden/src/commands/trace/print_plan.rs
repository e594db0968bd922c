//! A plan as text and as JSON.

use crate::cli::TraceRecord;
use crate::output;
use anyhow::Result;
use std::io::Write;
use trodden_distributed::plan::{KIND, Plan, Planner};
use trodden_flow::witness::bound::bound;

const SCHEMA_VERSION: u32 = 1;

/// Prints a plan, or that of one run which watches some addresses.
///
/// # Errors
/// Standard output is gone.
pub fn print(job: &TraceRecord, planner: &Planner, plan: &Plan) -> Result<()> {
    let machines = plan.machine_of.iter().max().map_or(1, |m| m + 1);
    let mut of_machines = vec![0.0; machines];
    plan.predicted.iter().zip(&plan.machine_of).for_each(|(cost, machine)| of_machines[*machine] += cost);
    let bound = bound(&planner.model.program, KIND, planner.weights, machines);
    if job.json {
        let profiles: Vec<Vec<String>> = plan.sites.iter().map(|s| s.iter().map(|a| format!("{a:#x}")).collect()).collect();
        let document = serde_json::json!({ "schema_version": SCHEMA_VERSION, "hash": format!("{:#x}", planner.hash), "profiles": profiles,
            "opaque": planner.model.opaque, "predicted": plan.predicted, "machine": plan.machine_of, "bound": bound,
            "repaired": plan.repaired });
        return output::print_json(&document);
    }
    let mut out = output::text();
    for (name, why) in &planner.model.opaque {
        writeln!(out, "opaque: {name}: {why}")?;
    }
    for (number, ((sites, predicted), machine)) in (1..).zip(plan.sites.iter().zip(&plan.predicted).zip(&plan.machine_of)) {
        let on = if job.machines.is_some() { format!(" on machine {}", machine + 1) } else { String::new() };
        writeln!(out, "run {number}: {} witnesses, {predicted:.0} executions predicted{on}", sites.len())?;
    }
    if plan.repaired > 0 {
        writeln!(out, "{} of the witnesses were added by repair, for branches that placement alone does not distinguish", plan.repaired)?;
    }
    let most = of_machines.into_iter().fold(0.0, f64::max);
    Ok(writeln!(out, "most on a machine: {most:.0}; no distribution is below {bound:.0}")?)
}
