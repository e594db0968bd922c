//! Copies with a bounded number of probes each, as many copies as that takes.
//!
//! Source: M. Diep, M. Cohen and S. Elbaum, "Probe distribution techniques to profile events in deployed software" (ISSRE 2006), as
//! Afraz, Saha and Kanade (2015, section 5) describe it: variants of a program have a subset of the probes each, whose size meets a bound.
//! The events there are independent. Paths are not: the [ends](trodden_flow::part::Ends) of a copy bring the labels that distinguish
//! their paths. So what is distributed are ends, and a copy's probes are counted with its labels, as [`Part::probes`] does.
//!
//! Functions whose probes fit stay whole. Others are split: a piece takes on ends, in their order, as long as its probes fit. Pieces go
//! to copies by first fit, the largest first. No bound below the probes of one end with its labels can be met.

use super::{CopyPlan, PartitionPlan, Procedure};
use trodden_flow::DagEdgeId;
use trodden_flow::part::{Ends, Measure, Part};

/// No copy can have so few probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the paths of one end of procedure {procedure} take {probes} probes: give at least so many to each copy")]
pub struct TooFewProbes {
    /// The procedure, by number.
    pub procedure: usize,
    /// The probes of one of its ends.
    pub probes: usize,
}

/// A part of a procedure that one copy takes.
struct Piece {
    procedure: usize,
    part: Part,
    probes: usize,
}

/// Divides procedures among copies of at most so many probes.
///
/// # Errors
/// The paths of one end take more.
pub fn plan(procedures: &[Procedure], most: usize, measure: Measure) -> Result<PartitionPlan, TooFewProbes> {
    let mut pieces = Vec::new();
    let mut profitable = 0;
    for (number, procedure) in procedures.iter().enumerate() {
        let own = split(number, procedure, most, measure)?;
        profitable += usize::from(own.len() > 1);
        pieces.extend(own);
    }
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.probes));
    let mut copies: Vec<(usize, CopyPlan)> = Vec::new();
    for Piece { procedure, part, probes } in pieces {
        // Two pieces of a procedure would be one part with other labels: each has a copy of its own.
        let fits = |(used, copy): &(usize, CopyPlan)| used + probes <= most && copy.parts[procedure].is_none();
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

/// A procedure in pieces whose probes fit.
fn split(number: usize, procedure: &Procedure, most: usize, measure: Measure) -> Result<Vec<Piece>, TooFewProbes> {
    let Procedure { dag, frequencies, .. } = procedure;
    let piece = |part: Part| Piece { procedure: number, probes: part.probes(), part };
    if let Some(whole) = Part::whole(dag, frequencies, measure).map(piece).filter(|whole| whole.probes <= most) {
        return Ok(vec![whole]);
    }
    let of = |ends: &[DagEdgeId]| piece(Part::by_ends(dag, ends, frequencies, measure));
    let (all, mut pieces) = (Ends::from_dag(dag).edges().to_vec(), Vec::new());
    let mut rest = &all[..];
    while !rest.is_empty() {
        let one = of(&rest[..1]);
        if one.probes > most {
            return Err(TooFewProbes { procedure: number, probes: one.probes });
        }
        // Each end has a count, so no more ends than probes fit. Labels may be fewer for more ends: the most that fit are sought.
        let taken =
            (2..=rest.len().min(most)).rev().find_map(|number| Some((number, of(&rest[..number]))).filter(|(_, p)| p.probes <= most));
        let (taken, next) = taken.unwrap_or((1, one));
        pieces.push(next);
        rest = &rest[taken..];
    }
    Ok(pieces)
}
