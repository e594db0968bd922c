//! The result of a numbering scheme: one or two registers with values and increments for each edge, and the rule by which the final
//! register values identify a path.
//!
//! Two registers have increments on the same edges, so that one probe increments both. Arithmetic wraps around, because increments on
//! chords may be large even if sums along paths are not. [`crate::plan`] makes a plan from a labelling.

use super::NumberingError;
use super::optimal::SpanProof;
use super::set::InterestingSet;
use std::collections::HashSet;
use trodden_flow::Numbering;
use trodden_flow::NumberingScheme;
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::graph::Node;
use trodden_flow::numbering::PerfectHash;
use trodden_flow::placement::Probes;

/// Maximum range of path numbers for a scheme that stores an expected value for each number in the range.
const MAX_CHECKED_SPAN: u128 = 1 << 24;

/// The edges on which increments are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterPlacement {
    /// Each edge whose value is not zero.
    Direct,
    /// The chords of a maximum spanning tree.
    Chords,
    /// The placement with less total weight or, if the weights are equal, with fewer probes. `Direct` if both are equal.
    Cheaper,
}

/// A path register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRegister {
    /// Each edge's contribution to a path's number.
    pub values: Vec<i64>,
    /// The increments, which have the same sum as the values along every path.
    pub probes: Probes,
}

/// Registers whose increments have been placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRegisters {
    registers: Vec<PathRegister>,
    placement: RegisterPlacement,
}

/// The increment or value of each register. The second is zero if there is only one register.
pub type RegisterIncrements = [i64; 2];

/// The range of interesting paths' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberSpan {
    /// The least number.
    pub low: i64,
    /// The greatest number.
    pub high: i64,
}

impl NumberSpan {
    /// Returns the length of a counter array with one counter for each number in the span.
    pub fn width(self) -> u128 {
        (i128::from(self.high) - i128::from(self.low)) as u128 + 1
    }

    /// Returns the index of a number's counter in an array of [`NumberSpan::width`] counters, or `None` if the number is outside the span.
    pub fn slot(self, number: i64) -> Option<u64> {
        (self.low..=self.high).contains(&number).then(|| number.wrapping_sub(self.low) as u64)
    }
}

/// The verdict at the end of a path: which interesting path it is, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathClass {
    /// An interesting path, identified by its counter.
    Known(u64),
    /// A path that is not interesting.
    Unknown,
}

/// The rule by which register values identify a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classification {
    /// Every path is interesting, and its counter is the register.
    Every {
        /// Number of paths.
        paths: u64,
    },
    /// A path is interesting if its sum equals that of a path of interesting edges. The counter's index is the register minus the least
    /// number of an interesting path.
    Closure {
        /// The interesting edges and their possible sums.
        member: ClosureMembership,
    },
    /// A path is interesting if its number is in this sorted list. The counter's index is the register minus the least number of an
    /// interesting path.
    Listed {
        /// The numbers of the interesting paths in ascending order, each with the path's Ball-Larus number.
        ids: Vec<(i64, u64)>,
    },
    /// A path is interesting if its number is in the span and the second register has the expected value for this number. The counter's
    /// index is the number minus the least number of an interesting path.
    Checked {
        /// For each number of the span, the Ball-Larus number of the interesting path that has it, if any.
        expected: Vec<Option<u64>>,
    },
    /// A path is interesting if the register is in the hash table. The counter's index is the slot in the table.
    Hashed(PerfectHash),
}

/// Decides whether any path that consists of interesting edges has a given sum, without enumerating those paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosureMembership {
    interesting: DagEdgeSet,
    values: Vec<i64>,
    /// The least and greatest sum of values along interesting edges from each node to the exit, or `None` if there is no such path.
    sums_to_exit: Vec<Option<(i128, i128)>>,
}

/// A numbering of paths with its increments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelling {
    /// The scheme that made the numbering.
    pub scheme: NumberingScheme,
    placed: PlacedRegisters,
    classification: Classification,
    span: NumberSpan,
    interesting: u128,
    proof: Option<SpanProof>,
}

impl Labelling {
    /// Returns the registers, of which there are one or two.
    pub fn registers(&self) -> &[PathRegister] {
        &self.placed.registers
    }

    /// Returns the increments on an edge of the DAG.
    pub fn increments(&self, edge: DagEdgeId) -> RegisterIncrements {
        let of = |i: usize| self.registers().get(i).map_or(0, |r| r.probes.increment(edge));
        [of(0), of(1)]
    }

    /// Returns the final register values of a path.
    pub fn register_values(&self, path: &[DagEdgeId]) -> RegisterIncrements {
        path.iter().fold([0, 0], |sum, e| {
            let step = self.increments(*e);
            [sum[0].wrapping_add(step[0]), sum[1].wrapping_add(step[1])]
        })
    }

    /// Returns how a program classifies a path by its final register values.
    pub fn classify(&self, dag: &Dag, registers: RegisterIncrements) -> PathClass {
        let slot = || self.span.slot(registers[0]);
        let known = match &self.classification {
            Classification::Every { paths } => u64::try_from(registers[0]).ok().filter(|r| r < paths),
            Classification::Closure { member } => slot().filter(|_| member.path(dag, registers[0]).is_some()),
            Classification::Listed { ids } => slot().filter(|_| ids.binary_search_by_key(&registers[0], |i| i.0).is_ok()),
            Classification::Checked { expected } => slot().filter(|s| expected[*s as usize] == Some(registers[1] as u64)),
            Classification::Hashed(table) => table.find(registers[0] as u64),
        };
        known.map_or(PathClass::Unknown, PathClass::Known)
    }

    /// Returns the rule by which register values identify a path.
    pub fn classification(&self) -> &Classification {
        &self.classification
    }

    /// Returns the interesting path that a counter counts, or `None` if there is no such path. `all` is the Ball-Larus numbering of the
    /// same DAG.
    ///
    /// If the scheme is not exact, the counter may also count other paths.
    pub fn path(&self, dag: &Dag, all: &Numbering, slot: u64) -> Option<Vec<DagEdgeId>> {
        let number = || i64::try_from(slot).ok().and_then(|s| self.span.low.checked_add(s));
        match &self.classification {
            Classification::Every { .. } => all.path(dag, slot),
            Classification::Closure { member } => member.path(dag, number()?),
            Classification::Listed { ids } => {
                let number = number()?;
                ids.binary_search_by_key(&number, |i| i.0).ok().and_then(|at| all.path(dag, ids[at].1))
            }
            Classification::Checked { expected } => all.path(dag, (*expected.get(usize::try_from(slot).ok()?)?)?),
            Classification::Hashed(table) => all.path(dag, table.key(slot)?),
        }
    }

    /// Returns the number of counters for the interesting paths.
    pub fn slots(&self) -> u128 {
        match &self.classification {
            Classification::Hashed(table) => table.slots().into(),
            _ => self.span.width(),
        }
    }

    /// Returns the number of register values that are recognised as interesting, or `None` if all paths of interesting edges are, whose
    /// numbers are not listed.
    pub fn accepted(&self) -> Option<u128> {
        match &self.classification {
            Classification::Every { paths } => Some((*paths).into()),
            Classification::Closure { .. } => None,
            Classification::Listed { ids } => Some(ids.len() as u128),
            Classification::Checked { expected } => Some(expected.iter().flatten().count() as u128),
            Classification::Hashed(table) => Some((0..table.slots()).filter(|s| table.key(*s).is_some()).count() as u128),
        }
    }

    /// Returns the range of interesting paths' numbers.
    pub fn span(&self) -> NumberSpan {
        self.span
    }

    /// Returns the number of interesting paths: of the listed paths, or of all paths of interesting edges.
    pub fn interesting(&self) -> u128 {
        self.interesting
    }

    /// Returns the ratio of the span to the number of interesting paths, which is at least 1 and measures how compact the numbers are.
    pub fn delta(&self) -> f64 {
        self.span.width() as f64 / self.interesting as f64
    }

    /// Returns what is proven about the least span, or `None` if the scheme does not search for it.
    pub fn proof(&self) -> Option<&SpanProof> {
        self.proof.as_ref()
    }

    /// Returns where increments were placed: [`RegisterPlacement::Direct`] or [`RegisterPlacement::Chords`].
    pub fn placement(&self) -> RegisterPlacement {
        self.placed.placement
    }

    /// Returns true if an edge of the DAG needs a probe.
    pub fn has_probe(&self, edge: DagEdgeId) -> bool {
        self.increments(edge) != [0, 0]
    }

    /// Returns the number of edges with a probe.
    pub fn probes(&self, dag: &Dag) -> usize {
        dag.edge_ids().filter(|e| self.has_probe(*e)).count()
    }

    /// Returns the number of edges with a nonzero value in a register, which is the P3 paper's measure of overhead.
    pub fn labels(&self, dag: &Dag) -> usize {
        dag.edge_ids().filter(|e| self.registers().iter().any(|r| r.values[e.index()] != 0)).count()
    }

    fn new(
        scheme: NumberingScheme,
        placed: PlacedRegisters,
        classification: Classification,
        span: NumberSpan,
        interesting: u128,
    ) -> Labelling {
        Labelling { scheme, placed, classification, span, interesting, proof: None }
    }

    pub(super) fn from_ball_larus(placed: PlacedRegisters, all: &Numbering) -> Labelling {
        let span = NumberSpan { low: 0, high: all.paths() as i64 - 1 };
        Labelling::new(NumberingScheme::BallLarus, placed, Classification::Every { paths: all.paths() }, span, all.paths().into())
    }

    pub(super) fn from_closure(
        scheme: NumberingScheme,
        dag: &Dag,
        placed: PlacedRegisters,
        values: Vec<i64>,
        set: &InterestingSet,
    ) -> Labelling {
        let member = ClosureMembership::new(dag, set.edges(), values);
        let (low, high) = member.sums_to_exit[dag.entry().index()].expect("a set has a path");
        let span = NumberSpan { low: low as i64, high: high as i64 };
        Labelling::new(scheme, placed, Classification::Closure { member }, span, set.count())
    }

    pub(super) fn from_hash_table(placed: PlacedRegisters, table: PerfectHash, ids: &[u64]) -> Labelling {
        let span = NumberSpan { low: ids[0] as i64, high: ids[ids.len() - 1] as i64 };
        Labelling::new(NumberingScheme::KnownTable, placed, Classification::Hashed(table), span, ids.len() as u128)
    }

    pub(super) fn from_checked_numbers(
        scheme: NumberingScheme,
        placed: PlacedRegisters,
        values: &[i64],
        all: &Numbering,
        paths: &[Vec<DagEdgeId>],
        proof: Option<SpanProof>,
    ) -> Result<Labelling, NumberingError> {
        let span = find_span(paths, values);
        if span.width() > MAX_CHECKED_SPAN {
            return Err(NumberingError::TooWide { span: span.width(), limit: MAX_CHECKED_SPAN });
        }
        let mut expected = vec![None; span.width() as usize];
        for path in paths {
            let slot = span.slot(sum_values(path, values)).expect("the span contains the numbers of all interesting paths");
            expected[slot as usize] = Some(all.id(path));
        }
        let classification = Classification::Checked { expected };
        Ok(Labelling { proof, ..Labelling::new(scheme, placed, classification, span, paths.len() as u128) })
    }

    pub(super) fn from_unchecked_numbers(placed: PlacedRegisters, values: &[i64], all: &Numbering, paths: &[Vec<DagEdgeId>]) -> Labelling {
        let mut ids: Vec<(i64, u64)> = paths.iter().map(|p| (sum_values(p, values), all.id(p))).collect();
        ids.sort_unstable();
        let (span, count) = (find_span(paths, values), paths.len() as u128);
        Labelling::new(NumberingScheme::Approximate, placed, Classification::Listed { ids }, span, count)
    }
}

fn sum_values(path: &[DagEdgeId], values: &[i64]) -> i64 {
    path.iter().fold(0i64, |s, e| s.wrapping_add(values[e.index()]))
}

fn find_span(paths: &[Vec<DagEdgeId>], values: &[i64]) -> NumberSpan {
    let sums = || paths.iter().map(|p| sum_values(p, values));
    NumberSpan { low: sums().min().expect("a set has a path"), high: sums().max().expect("a set has a path") }
}

impl ClosureMembership {
    fn new(dag: &Dag, interesting: &DagEdgeSet, values: Vec<i64>) -> ClosureMembership {
        let sums_to_exit = dag.min_and_max_sums_to_exit(|e| interesting.contains(e).then_some(values[e.index()]));
        ClosureMembership { interesting: interesting.clone(), values, sums_to_exit }
    }

    /// Returns a path of interesting edges with this sum. A depth-first search finds it, and skips edges after which the sum is impossible.
    pub fn path(&self, dag: &Dag, number: i64) -> Option<Vec<DagEdgeId>> {
        let mut path: Vec<DagEdgeId> = Vec::new();
        let mut stack: Vec<(Node, i128, usize)> = vec![(dag.entry(), number.into(), 0)];
        let mut tried = HashSet::new();
        while let Some((node, left, next)) = stack.last_mut() {
            if *node == dag.exit() && *left == 0 {
                return Some(path);
            }
            let can = |e: &DagEdgeId| {
                let rest = *left - i128::from(self.values[e.index()]);
                let fits = |(low, high): (i128, i128)| (low..=high).contains(&rest);
                self.interesting.contains(*e)
                    && self.sums_to_exit[dag.edge(*e).to.index()].is_some_and(fits)
                    && !tried.contains(&(dag.edge(*e).to, rest))
            };
            match dag.out(*node).iter().enumerate().skip(*next).find(|(_, e)| can(e)) {
                Some((at, edge)) => {
                    *next = at + 1;
                    let step = (dag.edge(*edge).to, *left - i128::from(self.values[edge.index()]), 0);
                    path.push(*edge);
                    stack.push(step);
                }
                None => {
                    tried.insert((*node, *left));
                    stack.pop();
                    path.pop();
                }
            }
        }
        None
    }
}

pub(super) fn place_increments(dag: &Dag, values: &[&[i64]], weights: &[f64], placement: RegisterPlacement) -> PlacedRegisters {
    let placed_by = |placement: RegisterPlacement| {
        let probes = |v: &[i64]| match placement {
            RegisterPlacement::Direct => Probes::direct(v),
            _ => Probes::on_chords(dag, v, weights),
        };
        PlacedRegisters { registers: values.iter().map(|v| PathRegister { values: v.to_vec(), probes: probes(v) }).collect(), placement }
    };
    if placement != RegisterPlacement::Cheaper {
        return placed_by(placement);
    }
    let (direct, chords) = (placed_by(RegisterPlacement::Direct), placed_by(RegisterPlacement::Chords));
    let cost = |placed: &PlacedRegisters| {
        let needed = dag.edge_ids().filter(|e| placed.registers.iter().any(|r| r.probes.increment(*e) != 0));
        needed.fold((0.0, 0), |(weight, count), e| (weight + weights[e.index()], count + 1))
    };
    let (a, b) = (cost(&direct), cost(&chords));
    if b.0 < a.0 || (b.0 == a.0 && b.1 < a.1) { chords } else { direct }
}
