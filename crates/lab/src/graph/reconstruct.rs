//! `trodden-lab graph reconstruct`: reconstructs an execution from its partial traces.

use super::functions::WitnessFile;
use super::witnesses::{branch_json, target_json, violations_json};
use crate::cli::ReconstructArguments;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use trodden_witness::{
    Distribution, ExecutionEvent, ReconstructError, Reconstruction, ReconstructionOutcome, TraceEnding, Witness, WitnessKind,
    check_pairwise,
};

const SCHEMA_VERSION: u32 = 2;

/// Returns the execution as JSON, and whether the witnesses of the profiles always determine the execution ("realizable").
pub fn reconstruct_executions(file: &WitnessFile, job: &ReconstructArguments) -> Result<(Value, bool)> {
    let kind = if job.edges { WitnessKind::Edges } else { WitnessKind::Nodes };
    let profiles = file.profiles.as_ref().context("the file has no \"profiles\". Add the witnesses of each run")?;
    let traces = file.traces.as_ref().context("the file has no \"traces\". Add the partial trace of each run")?;
    let distribution = Distribution::new(&file.program, kind, profiles.clone())?;
    check_traces(file, &distribution, traces)?;
    let reconstruction = Reconstruction::new(&file.program, &distribution);
    let ending = if job.truncated { TraceEnding::Truncated } else { TraceEnding::Complete };
    let mut walk = reconstruction.start(traces.iter().map(|t| t.iter().copied()).collect(), ending)?;
    let (mut execution, mut ambiguous) = (Vec::new(), None);
    loop {
        match walk.next_event() {
            Ok(Some(ExecutionEvent::Block(function, node))) => execution.push(file.node(function, node)),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(ReconstructError::Ambiguous { branch, targets, .. }) => {
                let targets: Vec<Value> = targets.iter().map(|t| target_json(file, branch, *t)).collect();
                ambiguous = Some(json!({ "branch": branch_json(file, branch), "targets": targets }));
                break;
            }
            Err(error) => bail!(describe_error(file, &error)),
        }
    }
    let mut answer = json!({ "schema_version": SCHEMA_VERSION, "execution": execution });
    if let Some(ReconstructionOutcome::Truncated(_)) = walk.outcome() {
        answer["truncated"] = json!(true);
    }
    let check = check_pairwise(&file.program, &distribution);
    if !check.is_realizable() {
        answer["realizable"] = json!(false);
        answer["violations"] = json!(violations_json(file, &distribution, &check));
    }
    if let Some(at) = ambiguous {
        answer["ambiguous"] = at;
    }
    Ok((answer, check.is_realizable()))
}

fn check_traces(file: &WitnessFile, distribution: &Distribution, traces: &[Vec<Witness>]) -> Result<()> {
    if traces.len() != distribution.profiles.len() {
        bail!("`traces` needs one list per profile: expected {}, found {}", distribution.profiles.len(), traces.len());
    }
    for (at, (trace, profile)) in traces.iter().zip(&distribution.profiles).enumerate() {
        if let Some(place) = trace.iter().position(|w| profile.binary_search(w).is_err()) {
            bail!("trace {at} has {} at symbol {place}, but profile {at} does not contain this witness", file.witness(trace[place]));
        }
    }
    Ok(())
}

fn describe_error(file: &WitnessFile, error: &ReconstructError) -> String {
    let symbol = |w: &Option<Witness>| w.map_or("the end".to_owned(), |w| file.witness(w).to_string());
    match error {
        ReconstructError::NoSuccessor { branch, blocks, next } => {
            let next: Vec<String> = next.iter().map(symbol).collect();
            let branch = branch_json(file, *branch);
            format!(
                "after {blocks} nodes, no successor of {branch} agrees with the next symbols of the traces ({}); \
                 the traces do not belong to one execution",
                next.join(", ")
            )
        }
        ReconstructError::UnexpectedSymbol { profile, position, found, expected, blocks } => {
            let (found, expected) = (symbol(found), file.witness(*expected));
            format!(
                "after {blocks} nodes, trace {profile} has {found} at symbol {position} instead of {expected}; \
                  the traces do not belong to one execution"
            )
        }
        ReconstructError::TraceContinues { profile, position, found, .. } => {
            format!(
                "trace {profile} continues with {} at symbol {position}, where the execution ends; \
                 the traces do not belong to one execution",
                file.witness(*found)
            )
        }
        ReconstructError::Stuck { function, node, blocks } => {
            let node = file.node(*function, *node);
            format!("after {blocks} nodes, nothing follows {node}, but the traces continue; they do not belong to one execution")
        }
        other => other.to_string(),
    }
}
