//! `trodden-lab graph witnesses`: divides witnesses among profiles, and checks whether their traces determine the execution.

use super::functions::WitnessFile;
use crate::cli::{VerifiedCondition, WitnessesArguments};
use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use trodden_witness::bound::min_cost_of_slowest_machine;
use trodden_witness::condition::{BranchNode, BranchTarget, Violation, members};
use trodden_witness::distribution::{assign_to_machines, plan};
use trodden_witness::placed::plan_placed;
use trodden_witness::placement::WrongWitnessKind;
use trodden_witness::pushdown::Pushdown;
use trodden_witness::structure::PushdownStructure;
use trodden_witness::{
    ConditionCheck, Distribution, DistributionOptions, Placement, PlanError, Witness, WitnessKind, ambiguous, check_pairwise,
    check_published_theorems,
};

const SCHEMA_VERSION: u32 = 2;
/// Maximum number of pairs of executions to try, in total, when searching for two with the same traces.
const MAX_SEARCHED_PAIRS: usize = 300_000;
const MAX_VIOLATIONS: usize = 1000;

/// Returns the distribution of witnesses with its check as JSON, and whether it is realizable, that is, whether its traces always determine
/// the execution.
pub fn plan_or_check_witnesses(file: &WitnessFile, job: &WitnessesArguments) -> Result<(Value, bool)> {
    let kind = if job.edges { WitnessKind::Edges } else { WitnessKind::Nodes };
    let (distribution, check, costs) = match &file.profiles {
        Some(profiles) => check_given_witnesses(file, kind, profiles, job)?,
        None => make_plan(file, kind, job)?,
    };
    let (check, theorems) = match job.check {
        VerifiedCondition::Pairwise => (check, None),
        VerifiedCondition::Paper => check_by_published_condition(file, &distribution)?,
    };
    let violations = violations_json(file, &distribution, &check);
    let profiles: Vec<Vec<Value>> = distribution.profiles.iter().map(|p| p.iter().map(|w| file.witness(*w)).collect()).collect();
    let realizable = check.is_realizable();
    let mut answer = json!({
        "schema_version": SCHEMA_VERSION,
        "profiles": profiles,
        "realizable": realizable,
        "violations": violations,
        "cost": costs,
        "bound": min_cost_of_slowest_machine(&file.program, kind, &file.weights, costs.len()),
    });
    if !file.unbalanced.is_empty() {
        answer["unbalanced"] = json!(file.unbalanced.iter().map(|(f, n)| file.node(*f, *n)).collect::<Vec<_>>());
    }
    if let Some(theorems) = theorems {
        answer["theorems"] = theorems;
    }
    if check.violations.len() > MAX_VIOLATIONS {
        answer["violation_count"] = json!(check.violations.len());
    }
    Ok((answer, realizable))
}

/// Checks the distribution by the paper's theorems. Returns the violations, and which theorems hold.
fn check_by_published_condition(file: &WitnessFile, distribution: &Distribution) -> Result<(ConditionCheck, Option<Value>)> {
    let paper = check_published_theorems(&file.program, distribution)?;
    let theorems = json!({ "graph": paper.graph.is_empty(), "path": paper.path.is_empty() });
    let mut violations = paper.path;
    let more: Vec<Violation> = paper.graph.into_iter().filter(|v| !violations.contains(v)).collect();
    violations.extend(more);
    violations.sort_by_key(|v| (v.state, v.successors));
    Ok((ConditionCheck { violations, unbounded_lookahead: Vec::new() }, Some(theorems)))
}

fn check_given_witnesses(
    file: &WitnessFile,
    kind: WitnessKind,
    profiles: &[Vec<Witness>],
    job: &WitnessesArguments,
) -> Result<(Distribution, ConditionCheck, Vec<f64>)> {
    if profiles.is_empty() {
        bail!("`profiles` is empty. Add at least one profile, or omit `profiles`");
    }
    let distribution = Distribution::new(&file.program, kind, profiles.to_vec())?;
    if let Some((at, limit)) =
        job.limit.and_then(|limit| distribution.profiles.iter().position(|p| p.len() > limit as usize).map(|at| (at, limit)))
    {
        bail!(
            "entry {at} of `profiles` has {} witnesses (watched nodes or edges), which exceeds the limit of {limit}. Remove some, or raise \
             --limit",
            distribution.profiles[at].len()
        );
    }
    let loads: Vec<f64> = distribution.profiles.iter().map(|p| file.weights.sum(kind, p)).collect();
    let machines = job.machines.unwrap_or(loads.len());
    let mut costs = vec![0.0; machines];
    loads.iter().zip(assign_to_machines(&loads, machines)).for_each(|(load, machine)| costs[machine] += load);
    let check = check_pairwise(&file.program, &distribution);
    Ok((distribution, check, costs))
}

fn make_plan(file: &WitnessFile, kind: WitnessKind, job: &WitnessesArguments) -> Result<(Distribution, ConditionCheck, Vec<f64>)> {
    let options = DistributionOptions {
        profiles: job.profiles,
        strategy: job.strategy,
        order: job.order,
        limit: job.limit.map(|l| l as usize),
        machines: job.machines,
        lookahead: job.lookahead,
    };
    let planned = match job.placement {
        // With this placement, the strategy itself chooses the witnesses.
        Placement::Fewest => plan(&file.program, kind, &file.weights, &options),
        placement => plan_placed(&file.program, kind, &file.weights, &options, placement),
    };
    let planned = planned.map_err(|error| match error {
        PlanError::LimitTooSmall { function, needs, limit } => {
            let function = file.function(function);
            anyhow!(
                "function `{function}` needs {needs} witnesses (watched nodes or edges) in one profile. Raise --limit from {limit} to \
                 {needs}"
            )
        }
        PlanError::LimitNotMet { function, limit, enough } => {
            let function = file.function(function);
            anyhow!(
                "found no set of {limit} witnesses (watched nodes or edges) that distinguishes two successors of a branch in function \
                 `{function}`. Raise --limit to {enough}"
            )
        }
        PlanError::WrongWitnessKind(WrongWitnessKind { needs: WitnessKind::Edges, .. }) => {
            anyhow!("this placement chooses edges as witnesses. Add --edges")
        }
        PlanError::WrongWitnessKind(_) => anyhow!("this placement chooses nodes as witnesses. Omit --edges"),
    })?;
    Ok((planned.distribution, planned.check, planned.costs))
}

/// Lists violations, each with two executions that have the same traces, if a search finds such a pair.
pub fn violations_json(file: &WitnessFile, distribution: &Distribution, check: &ConditionCheck) -> Vec<Value> {
    if check.violations.is_empty() {
        return Vec::new();
    }
    let structure = PushdownStructure::new(Pushdown::new(&file.program, distribution.kind));
    let listed = &check.violations[..check.violations.len().min(MAX_VIOLATIONS)];
    let found = ambiguous::find_ambiguous_executions(&structure, &members(&file.program, distribution), listed, MAX_SEARCHED_PAIRS);
    let row = |(violation, found): (&Violation, &Option<[ambiguous::BlockSequence; 2]>)| {
        let blocks = |blocks: &ambiguous::BlockSequence| blocks.iter().map(|(f, n)| file.node(*f, *n)).collect::<Vec<Value>>();
        let executions: Vec<Vec<Value>> = found.iter().flatten().map(blocks).collect();
        let mut row = json!({
            "branch": branch_json(file, violation.branch),
            "targets": violation.targets.map(|t| target_json(file, violation.branch, t)),
            "executions": executions,
        });
        let edges = violation.targets.map(|t| if let BranchTarget::Node(_, Some(edge)) = t { Some(edge.0) } else { None });
        if let [Some(a), Some(b)] = edges {
            row["edges"] = json!([a, b]);
        }
        row
    };
    listed.iter().zip(&found).map(row).collect()
}

/// Formats a branch: its node, or `"outside"`.
pub fn branch_json(file: &WitnessFile, branch: BranchNode) -> Value {
    match branch {
        BranchNode::Node(f, n) | BranchNode::Call(f, n) | BranchNode::Opaque(f, n) | BranchNode::Unwinding(f, n) => file.node(f, n),
        BranchNode::Outside => json!("outside"),
    }
}

/// Formats a successor: its node, a callee's entry, or a different continuation.
pub fn target_json(file: &WitnessFile, branch: BranchNode, target: BranchTarget) -> Value {
    match (target, branch) {
        (
            BranchTarget::Node(node, _),
            BranchNode::Node(f, _) | BranchNode::Call(f, _) | BranchNode::Opaque(f, _) | BranchNode::Unwinding(f, _),
        ) => file.node(f, node),
        (BranchTarget::Function(callee), _) if callee.index() < file.program.functions().len() => file.entry(callee),
        (BranchTarget::Function(_), _) => json!("outside"),
        (BranchTarget::Returns | BranchTarget::Ends, _) => json!("END"),
        (BranchTarget::Unwinds, _) => json!("unwinds"),
        (BranchTarget::Continues | BranchTarget::Node(..), _) => json!("continues"),
    }
}
