//! Divides procedures among copies with a bounded number of probes each. The number of copies is not bounded.
//!
//! Source: M. Diep, M. Cohen and S. Elbaum, "Probe distribution techniques to profile events in deployed software" (ISSRE 2006), as
//! described by Afraz, Saha and Kanade (2015, section 5): each variant of a program has a bounded subset of the probes. Their events are
//! independent of each other, but paths are not, because each [end](trodden_flow::part::Ends) needs labels that distinguish its paths. So
//! ends are distributed, and the probes of a copy include the labels that its ends need ([`Part::probes`]).
//!
//! Procedures that fit are not split. Others are split into pieces of consecutive ends. Pieces go to copies by first fit, the largest
//! first.

use super::{CopyPlan, PartitionPlan, Procedure};
use trodden_flow::DagEdgeId;
use trodden_flow::part::{Ends, Measure, Part};

/// The bound is below the number of probes that a single end needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the paths that end with the same edge of procedure {procedure} need {probes} probes in one copy. Allow at least {probes} probes \
     per copy"
)]
pub struct TooFewProbes {
    /// Number of the procedure.
    pub procedure: usize,
    /// Number of probes of one of its ends.
    pub probes: usize,
}

struct BoundedPiece {
    procedure: usize,
    part: Part,
    probes: usize,
}

/// Divides procedures among as many copies as are needed for each to have at most `max_probes` probes.
///
/// # Errors
/// The paths of a single end need more probes.
pub fn plan(procedures: &[Procedure], max_probes: usize, measure: Measure) -> Result<PartitionPlan, TooFewProbes> {
    let mut pieces = Vec::new();
    let mut profitable = 0;
    for (number, procedure) in procedures.iter().enumerate() {
        let own = split(number, procedure, max_probes, measure)?;
        profitable += usize::from(own.len() > 1);
        pieces.extend(own);
    }
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.probes));
    let mut copies: Vec<(usize, CopyPlan)> = Vec::new();
    for BoundedPiece { procedure, part, probes } in pieces {
        // Two pieces of a procedure in one copy would be one part with different labels, so each piece goes to a different copy.
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

fn split(number: usize, procedure: &Procedure, max_probes: usize, measure: Measure) -> Result<Vec<BoundedPiece>, TooFewProbes> {
    let Procedure { dag, frequencies, .. } = procedure;
    let piece = |part: Part| BoundedPiece { procedure: number, probes: part.probes(), part };
    if let Some(whole) = Part::whole(dag, frequencies, measure).map(piece).filter(|whole| whole.probes <= max_probes) {
        return Ok(vec![whole]);
    }
    let of = |ends: &[DagEdgeId]| piece(Part::by_ends(dag, ends, frequencies, measure));
    let (all, mut pieces) = (Ends::from_dag(dag).edges().to_vec(), Vec::new());
    let mut rest = &all[..];
    while !rest.is_empty() {
        let one = of(&rest[..1]);
        if one.probes > max_probes {
            return Err(TooFewProbes { procedure: number, probes: one.probes });
        }
        // Each end has a counter, so at most `max_probes` ends fit. More ends may need fewer labels, so the search starts with the most
        // ends.
        let taken = (2..=rest.len().min(max_probes))
            .rev()
            .find_map(|number| Some((number, of(&rest[..number]))).filter(|(_, p)| p.probes <= max_probes));
        let (taken, next) = taken.unwrap_or((1, one));
        pieces.push(next);
        rest = &rest[taken..];
    }
    Ok(pieces)
}
