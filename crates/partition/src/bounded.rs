//! Divides procedures among copies of a program such that no copy has more than a given number of probes. There may be any number of
//! copies.
//!
//! Source: M. Diep, M. Cohen and S. Elbaum, "Probe distribution techniques to profile events in deployed software" (ISSRE 2006), as
//! described by Afraz, Saha and Kanade (2015, section 5): each variant of a program has a bounded subset of the probes. Their events are
//! independent of each other. Paths are not, because the paths with one [end](trodden_flow::part::PathEnds) need labels that distinguish
//! them. So ends are distributed, and the probes of a copy include the labels that its ends need ([`Part::probes`]).
//!
//! A procedure whose probes fit into one copy is not split. All other procedures are split into pieces of consecutive ends. Pieces go to
//! copies by first fit, the largest first.

use super::{CopyPlan, PartitionPlan, Procedure};
use trodden_flow::DagEdgeId;
use trodden_flow::part::{Measure, Part, PathEnds};

/// The maximum number of probes per copy is lower than the number that the paths with a single end need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all paths of procedure {procedure} that end with the same edge must be counted by one copy of the program, which needs {probes} \
     probes. Allow at least {probes} probes per copy"
)]
pub struct TooFewProbes {
    /// Index of the procedure.
    pub procedure: usize,
    /// Number of probes that the paths with one of its ends need.
    pub probes: usize,
}

struct BoundedProcedurePiece {
    procedure: usize,
    part: Part,
    probes: usize,
}

/// Divides procedures among copies: as many as are necessary so that none has more than `max_probes` probes.
///
/// # Errors
/// Fails if the paths with a single end need more probes.
pub fn plan_with_max_probes(procedures: &[Procedure], max_probes: usize, measure: Measure) -> Result<PartitionPlan, TooFewProbes> {
    let mut pieces = Vec::new();
    let mut profitable = 0;
    for (number, procedure) in procedures.iter().enumerate() {
        let own = split_procedure(number, procedure, max_probes, measure)?;
        profitable += usize::from(own.len() > 1);
        pieces.extend(own);
    }
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.probes));
    let mut copies: Vec<(usize, CopyPlan)> = Vec::new();
    for BoundedProcedurePiece { procedure, part, probes } in pieces {
        // If two pieces of a procedure were in one copy, they would need common labels, which differ from their own. So each piece goes to
        // a different copy.
        let fits = |(used, copy): &(usize, CopyPlan)| used + probes <= max_probes && copy.parts[procedure].is_none();
        let at = copies.iter().position(fits).unwrap_or_else(|| {
            copies.push((0, CopyPlan { parts: vec![None; procedures.len()] }));
            copies.len() - 1
        });
        copies[at].0 += probes;
        copies[at].1.parts[procedure] = Some(part);
    }
    if copies.is_empty() {
        copies.push((0, CopyPlan { parts: vec![None; procedures.len()] }));
    }
    Ok(PartitionPlan { copies: copies.into_iter().map(|(_, copy)| copy).collect(), profitable })
}

fn split_procedure(
    number: usize,
    procedure: &Procedure,
    max_probes: usize,
    measure: Measure,
) -> Result<Vec<BoundedProcedurePiece>, TooFewProbes> {
    let Procedure { dag, frequencies, .. } = procedure;
    let piece = |part: Part| BoundedProcedurePiece { procedure: number, probes: part.probes(), part };
    if let Some(whole) = Part::whole(dag, frequencies, measure).map(piece).filter(|whole| whole.probes <= max_probes) {
        return Ok(vec![whole]);
    }
    let of = |ends: &[DagEdgeId]| piece(Part::counting_paths_with_ends(dag, ends, frequencies, measure));
    let (all, mut pieces) = (PathEnds::from_dag(dag).edges().to_vec(), Vec::new());
    let mut rest = &all[..];
    while !rest.is_empty() {
        let one = of(&rest[..1]);
        if one.probes > max_probes {
            return Err(TooFewProbes { procedure: number, probes: one.probes });
        }
        // Each end has a counter, so at most `max_probes` ends fit. A larger number of ends may need fewer labels, so the search starts
        // with the largest number.
        let taken = (2..=rest.len().min(max_probes))
            .rev()
            .find_map(|number| Some((number, of(&rest[..number]))).filter(|(_, p)| p.probes <= max_probes));
        let (taken, next) = taken.unwrap_or((1, one));
        pieces.push(next);
        rest = &rest[taken..];
    }
    Ok(pieces)
}
