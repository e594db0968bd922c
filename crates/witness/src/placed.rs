//! Plans a distribution from witnesses placed function by function: assigns whole functions to profiles, the most expensive first.
//!
//! This is for the published placements, which fix the witnesses of each function. [`repair`](super::repair) adds the witnesses that calls
//! between functions need. The paper's node algorithm is not repaired, so the check shows its violations.

use super::automaton::AutomatonState;
use super::condition::check_structure;
use super::distribution::PlanError;
use super::placement::{Placement, place};
use super::planned::{DistributionOptions, PlannedDistribution, plan_from_profiles, witness_count};
use super::program::{Witness, WitnessKind, WitnessProgram};
use super::pushdown::Pushdown;
use super::structure::PushdownStructure;
use super::view::StateGraph;
use super::weights::Weights;
use std::collections::HashMap;

/// Chooses the witnesses of each function by a placement, and divides the functions among the profiles.
///
/// # Errors
/// The placement needs the other kind of witnesses, or a function has more witnesses than the limit allows.
pub fn plan_placed(
    program: &WitnessProgram,
    kind: WitnessKind,
    weights: &Weights,
    options: &DistributionOptions,
    placement: Placement,
) -> Result<PlannedDistribution, PlanError> {
    let structure = PushdownStructure::new(Pushdown::new(program, kind));
    let mut functions: Vec<(f64, StateGraph, Vec<Witness>)> = Vec::new();
    for function in program.function_ids() {
        let view = StateGraph::new(&structure, kind, weights, function);
        let placed = place(program, &structure, &view, weights, placement)?;
        let witnesses = view.witnesses(&placed.member);
        if let Some(limit) = options.limit.filter(|limit| witnesses.len() > *limit) {
            return Err(PlanError::LimitTooSmall { function, needs: witnesses.len(), limit });
        }
        functions.push((weights.sum(kind, &witnesses), view, witnesses));
    }
    functions.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut profiles: Vec<Vec<Witness>> = vec![Vec::new(); options.profiles.max(1)];
    let (mut loads, mut home) = (vec![0.0; profiles.len()], HashMap::new());
    for (cost, view, witnesses) in functions {
        let fits = |at: &usize| options.limit.is_none_or(|limit| profiles[*at].len() + witnesses.len() <= limit);
        let least_loaded = (0..profiles.len()).filter(fits).min_by(|a, b| f64::total_cmp(&loads[*a], &loads[*b]));
        let at = least_loaded.unwrap_or_else(|| {
            loads.push(0.0);
            profiles.push(Vec::new());
            loads.len() - 1
        });
        loads[at] += cost;
        profiles[at].extend(witnesses);
        home.extend(view.branches.iter().map(|b| (AutomatonState(view.first.0 + b.state), at)));
    }
    profiles.iter_mut().for_each(|p| p.sort_unstable());
    if placement == Placement::Paper {
        let members = super::condition::mark_witnesses(program, kind, &profiles);
        let check = check_structure(&structure, &members, options.lookahead);
        return Ok(plan_from_profiles(kind, profiles, check, weights, options));
    }
    let (limit, lookahead) = (options.limit, options.lookahead);
    let before = witness_count(&profiles);
    let check = super::repair::DistributionRepair { program, structure: &structure, weights, home, limit, lookahead }
        .repair_profiles(&mut profiles);
    let repaired = witness_count(&profiles) - before;
    Ok(PlannedDistribution { repaired, ..plan_from_profiles(kind, profiles, check, weights, options) })
}
