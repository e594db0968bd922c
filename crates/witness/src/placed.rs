//! A distribution from witnesses that were placed function by function: whole functions to profiles, the most expensive first.
//!
//! For the published placements, which have their witnesses once and for all. What the calls between functions need beyond is added by
//! [`repair`](super::repair); the paper's node algorithm is left as it is, so that the check shows what it lacks.

use super::automaton::AutomatonState;
use super::condition::check_structure;
use super::distribution::PlanError;
use super::placement::{Placement, place};
use super::planned::{DistributionOptions, PlannedJob, planned_from, witness_count};
use super::program::{Witness, WitnessKind, WitnessProgram};
use super::pushdown::Pushdown;
use super::structure::Structure;
use super::view::View;
use super::weights::Weights;
use std::collections::HashMap;

/// Places the witnesses of each function, and divides the functions among the profiles.
///
/// # Errors
/// The placement is for the other kind of witnesses, or a function has more witnesses than a profile may have.
pub fn plan_placed(
    program: &WitnessProgram,
    kind: WitnessKind,
    weights: &Weights,
    options: &DistributionOptions,
    placement: Placement,
) -> Result<PlannedJob, PlanError> {
    let structure = Structure::new(Pushdown::new(program, kind));
    let mut functions: Vec<(f64, View, Vec<Witness>)> = Vec::new();
    for function in program.function_ids() {
        let view = View::new(&structure, kind, weights, function);
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
        let least = (0..profiles.len()).filter(fits).min_by(|a, b| f64::total_cmp(&loads[*a], &loads[*b]));
        let at = least.unwrap_or_else(|| {
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
        let members = super::condition::marked(program, kind, &profiles);
        let check = check_structure(&structure, &members, options.lookahead);
        return Ok(planned_from(kind, profiles, check, weights, options));
    }
    let (limit, lookahead) = (options.limit, options.lookahead);
    let before = witness_count(&profiles);
    let check = super::repair::Repair { program, structure: &structure, weights, home, limit, lookahead }.run(&mut profiles);
    let repaired = witness_count(&profiles) - before;
    Ok(PlannedJob { repaired, ..planned_from(kind, profiles, check, weights, options) })
}
