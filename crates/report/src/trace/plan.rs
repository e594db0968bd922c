//! The plan of a distributed recording, as text and JSON.

use crate::words::plural;
use serde_json::Value;
use std::io::{self, Write};
use trodden_distributed::plan::{DistributionPlan, PLAN_WITNESS_KIND, Planner};
use trodden_witness::bound::min_cost_of_slowest_machine;

const SCHEMA_VERSION: u32 = 1;

/// Returns the plan as JSON, in the format that `--distribution` accepts.
pub fn json(planner: &Planner, plan: &DistributionPlan) -> Value {
    let profiles: Vec<Vec<String>> = plan.sites.iter().map(|s| s.iter().map(|a| format!("{a:#x}")).collect()).collect();
    let bound = min_cost_of_slowest_machine(&planner.model.program, PLAN_WITNESS_KIND, planner.weights, count_machines(plan));
    serde_json::json!({ "schema_version": SCHEMA_VERSION, "hash": format!("{:#x}", planner.hash), "profiles": profiles,
        "opaque": planner.model.opaque, "predicted": plan.predicted, "machine": plan.machine_of,
        "bound": bound, "repaired": plan.repaired })
}

/// Writes the plan as text.
pub fn write(out: &mut impl Write, planner: &Planner, plan: &DistributionPlan) -> io::Result<()> {
    let mut of_machines = vec![0.0; count_machines(plan)];
    plan.predicted.iter().zip(&plan.machine_of).for_each(|(cost, machine)| of_machines[*machine] += cost);
    for (name, why) in &planner.model.opaque {
        writeln!(out, "opaque: {name}: {why}")?;
    }
    for (number, ((sites, predicted), machine)) in (1..).zip(plan.sites.iter().zip(&plan.predicted).zip(&plan.machine_of)) {
        let on = if planner.options.machines.is_some() { format!(" on machine {}", machine + 1) } else { String::new() };
        let witnesses = plural(sites.len() as u128, "witness", "witnesses");
        writeln!(out, "run {number}: {witnesses}, {predicted:.0} executions predicted{on}")?;
    }
    if plan.repaired > 0 {
        let added = plural(plan.repaired as u128, "witness was", "witnesses were");
        writeln!(out, "{added} added by repair, for branches that the placement does not distinguish")?;
    }
    let highest = of_machines.into_iter().fold(0.0, f64::max);
    let bound = min_cost_of_slowest_machine(&planner.model.program, PLAN_WITNESS_KIND, planner.weights, count_machines(plan));
    writeln!(out, "highest load of a machine: {highest:.0}; lower bound for any distribution: {bound:.0}")
}

fn count_machines(plan: &DistributionPlan) -> usize {
    plan.machine_of.iter().max().map_or(1, |m| m + 1)
}
