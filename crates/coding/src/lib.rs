//! Path numberings as arithmetic coding (Vaswani's thesis, chapter 4): finite-context models of paths (section 4.1), `computeBLModel`
//! (figure 4.1), `pathEncoder` (figure 4.3), the model of a preferential numbering (section 4.2.1), and gamma (section 4.3).
//!
//! A *context* is a node, or a prefix of interesting paths. In each context, a model divides [0, 1) among the edges that can follow.
//! Probabilities are exact rationals, and entropies are enclosed by rationals ([`enclosure`]). Unlike `pathEncoder`, which rounds the
//! interval at each edge and so can give two paths the same number, the encoder computes it exactly. N is large enough for every path's
//! interval to have at least length 1, and a path's number is the least integer in its interval. Every number is therefore uniquely
//! decodable.
#![forbid(unsafe_code)]

mod enclosure;

pub use enclosure::{Enclosure, exp2, log2};

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::collections::BTreeMap;
use trodden_flow::dag::{Dag, DagEdgeId};

/// An exact rational number.
pub type Rational = BigRational;

/// A half-open interval, as (start, end).
pub type CodingRange = (Rational, Rational);

/// A context of a [`CodingModel`], and the edges that can follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodingModelContext {
    /// The node from which the context's edges start.
    pub node: u32,
    /// A path to the node. In a preferential model, the path identifies the context; in other models, it is one of several possible paths.
    pub prefix: Vec<DagEdgeId>,
    /// The edges that can follow, each with its share of [0, 1).
    pub choices: Vec<(DagEdgeId, CodingRange)>,
}

/// The reason why a model could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// The weights of all edges out of this node are zero.
    #[error("{}", CodingError::no_weight_message(.0))]
    NoWeight(u32),
    /// Interesting paths through two out-edges of this node have overlapping numbers, so the values are not a preferential numbering.
    #[error("{}", CodingError::overlap_message(.0))]
    Overlap(u32),
    /// The set of interesting paths is empty.
    #[error("cannot build a model of path numbers without interesting paths. Name at least one interesting path")]
    NoPaths,
}

impl CodingError {
    /// Returns the message of [`CodingError::NoWeight`], for callers that have a name for the node.
    pub fn no_weight_message(node: &dyn std::fmt::Display) -> String {
        format!("the weights of all edges out of node {node} are zero. Give at least one of them a positive weight, or omit the weights")
    }

    /// Returns the message of [`CodingError::Overlap`], for callers that have a name for the node.
    pub fn overlap_message(node: &dyn std::fmt::Display) -> String {
        format!("the path numbers after two edges out of node {node} overlap, so there is no model for these values. Use the values of ppp")
    }
}

/// One step of the encoder, which narrows the interval of numbers by one edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodingStep {
    /// The edge that this step encodes.
    pub edge: DagEdgeId,
    /// The edge's share of [0, 1) in its context.
    pub range: CodingRange,
    /// The interval after this step.
    pub interval: CodingRange,
}

/// An edge's share of [0, 1), and the index of the context after the edge.
#[derive(Clone, Debug)]
struct EdgeRange {
    range: CodingRange,
    next: usize,
}

/// A finite context model of the paths through a DAG.
#[derive(Clone, Debug)]
pub struct CodingModel {
    /// Contexts in topological order. Paths start in the first.
    contexts: Vec<BTreeMap<DagEdgeId, EdgeRange>>,
    /// For each context, the node from which its edges start.
    nodes: Vec<u32>,
    /// For each context, the size of its holes: how many numbers in its interval belong to no edge.
    holes: Vec<BigInt>,
    /// N, the length of the encoder's initial interval.
    size: BigInt,
}

impl CodingModel {
    /// Returns the model of Ball-Larus numbering (`computeBLModel`). An edge's probability is its share of the paths from its source.
    pub fn ball_larus(dag: &Dag) -> CodingModel {
        let mut paths = vec![BigInt::zero(); dag.node_count()];
        paths[dag.exit().index()] = BigInt::one();
        for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
            paths[node.index()] = dag.out(node).iter().map(|e| paths[dag.edge(*e).to.index()].clone()).sum();
        }
        let size = paths[dag.entry().index()].clone();
        let share = |e: DagEdgeId| BigRational::new(paths[dag.edge(e).to.index()].clone(), paths[dag.edge(e).from.index()].clone());
        CodingModel::from_nodes(dag, size, share)
    }

    /// Returns the model for measured `weights`, which are indexed by edge. An edge's probability is its weight divided by the total weight
    /// of all edges that leave its source. A path over an edge of weight zero has probability 0 and no number. Fails if all edges out of a
    /// node have weight zero.
    pub fn from_weights(dag: &Dag, weights: &[f64]) -> Result<CodingModel, CodingError> {
        let weight = |e: DagEdgeId| BigRational::from_float(weights[e.index()]).unwrap_or_else(BigRational::zero);
        let mut sums = vec![BigRational::zero(); dag.node_count()];
        for edge in dag.edge_ids() {
            sums[dag.edge(edge).from.index()] += weight(edge);
        }
        if let Some(bad) = dag.order().iter().find(|n| **n != dag.exit() && sums[n.index()].is_zero()) {
            return Err(CodingError::NoWeight(bad.0));
        }
        let mut model = CodingModel::from_nodes(dag, BigInt::zero(), |e| weight(e) / &sums[dag.edge(e).from.index()]);
        model.size = model.min_nonzero_probability().recip().ceil().to_integer();
        Ok(model)
    }

    /// Returns the finite-context model of order `order` for executed paths and their execution counts. The context of an edge is its
    /// source and the `order` edges before it. The edge's probability is its share of the executions in that context. With order 0, the
    /// context is only the node. A path has probability 0 and no number if one of its edges was never executed in its context. If `order`
    /// is at least the length of the longest path, only executed paths therefore have numbers. Fails if no path was executed.
    pub fn from_executed_paths(dag: &Dag, order: usize, paths: &[(Vec<DagEdgeId>, u64)]) -> Result<CodingModel, CodingError> {
        let place = dag.topological_positions();
        // Keys start with the node's topological position, so contexts are in topological order. The exit has one context only.
        let context = |node: trodden_flow::graph::Node, before: &[DagEdgeId]| {
            let kept = if node == dag.exit() { 0 } else { order.min(before.len()) };
            (place[node.index()], node.0, before[before.len() - kept..].to_vec())
        };
        type ContextEdgeKey = (usize, u32, Vec<DagEdgeId>);
        let mut found: BTreeMap<ContextEdgeKey, BTreeMap<DagEdgeId, (u64, ContextEdgeKey)>> = BTreeMap::new();
        for (path, executions) in paths.iter().filter(|(_, executions)| *executions > 0) {
            let mut at = context(dag.entry(), &[]);
            for (taken, edge) in path.iter().enumerate() {
                let next = context(dag.edge(*edge).to, &path[..=taken]);
                let counted = found.entry(at).or_default().entry(*edge).or_insert_with(|| (0, next.clone()));
                counted.0 = counted.0.saturating_add(*executions);
                at = next;
            }
            found.entry(at).or_default();
        }
        let numbers: BTreeMap<ContextEdgeKey, usize> = found.keys().cloned().zip(0..).collect();
        let mut model = CodingModel { contexts: Vec::new(), nodes: Vec::new(), holes: Vec::new(), size: BigInt::zero() };
        for ((_, node, _), choices) in &found {
            let sum: BigInt = choices.values().map(|(executions, _)| BigInt::from(*executions)).sum();
            let mut low = BigRational::zero();
            let ranges = choices.iter().map(|(edge, (executions, next))| {
                let high = &low + BigRational::new(BigInt::from(*executions), sum.clone());
                (*edge, EdgeRange { range: (std::mem::replace(&mut low, high.clone()), high), next: numbers[next] })
            });
            model.contexts.push(ranges.collect());
            model.nodes.push(*node);
            model.holes.push(BigInt::zero());
        }
        if model.contexts.first().is_none_or(BTreeMap::is_empty) {
            return Err(CodingError::NoPaths);
        }
        model.size = model.min_nonzero_probability().recip().ceil().to_integer();
        Ok(model)
    }

    /// Returns the model of a preferential numbering, given its edge values and the interesting paths.
    ///
    /// A context is a prefix of interesting paths, and its interval is the span of the numbers of the paths that continue it. The range of
    /// each edge is the span of the paths through it. The ranges of a context do not overlap, and numbers between them are holes. Every
    /// interesting path then encodes to its number and has probability 1/N, where N is the span of all numbers. (With the probabilities
    /// printed in table 4.3, `sact` would get the number of `sacdt`.) The entropy counts every number in a hole as a separate symbol, so
    /// 2^H = N, and gamma equals delta. Fails if there are no paths, or if the ranges of a context overlap.
    pub fn preferential(dag: &Dag, values: &[i64], paths: &[Vec<DagEdgeId>]) -> Result<CodingModel, CodingError> {
        let mut model =
            CodingModel { contexts: vec![BTreeMap::new()], nodes: vec![dag.entry().0], holes: Vec::new(), size: BigInt::zero() };
        let nothing = || (BigRational::zero(), BigRational::zero());
        for path in paths {
            let mut at = 0;
            for &edge in path {
                let next = model.contexts.len();
                at = model.contexts[at].entry(edge).or_insert_with(|| EdgeRange { range: nothing(), next }).next;
                if at == next {
                    model.contexts.push(BTreeMap::new());
                    model.nodes.push(dag.edge(edge).to.0);
                }
            }
        }
        model.compute_ranges(values)?;
        Ok(model)
    }

    /// Computes the ranges of all contexts, last context first, from the spans of the numbers that continue each prefix.
    fn compute_ranges(&mut self, values: &[i64]) -> Result<(), CodingError> {
        let zero = || BigInt::zero();
        let mut intervals = vec![(zero(), BigInt::one()); self.contexts.len()];
        self.holes = vec![zero(); self.contexts.len()];
        for at in (0..self.contexts.len()).rev().filter(|c| !self.contexts[*c].is_empty()).collect::<Vec<_>>() {
            let through = |(edge, choice): (&DagEdgeId, &EdgeRange)| {
                let (low, high) = &intervals[choice.next];
                (low + values[edge.index()], high + values[edge.index()], *edge)
            };
            let mut parts: Vec<(BigInt, BigInt, DagEdgeId)> = self.contexts[at].iter().map(through).collect();
            parts.sort();
            if parts.windows(2).any(|pair| pair[0].1 > pair[1].0) {
                return Err(CodingError::Overlap(self.nodes[at]));
            }
            let (low, high) = (parts[0].0.clone(), parts[parts.len() - 1].1.clone());
            let size = &high - &low;
            self.holes[at] = &size - parts.iter().map(|(a, b, _)| b - a).sum::<BigInt>();
            for (from, to, edge) in parts {
                let part = |end: BigInt| BigRational::new(end - &low, size.clone());
                self.contexts[at].get_mut(&edge).expect("the context has the edge").range = (part(from), part(to));
            }
            intervals[at] = (low, high);
        }
        self.size = &intervals[0].1 - &intervals[0].0;
        if self.contexts[0].is_empty() { Err(CodingError::NoPaths) } else { Ok(()) }
    }

    /// Returns a model whose contexts are the nodes. `share` returns the probability of each edge.
    fn from_nodes(dag: &Dag, size: BigInt, share: impl Fn(DagEdgeId) -> BigRational) -> CodingModel {
        let place = dag.topological_positions();
        let context = |node: &trodden_flow::graph::Node| {
            let mut low = BigRational::zero();
            let choice = |edge: &DagEdgeId| {
                let high = &low + share(*edge);
                let range = (std::mem::replace(&mut low, high.clone()), high);
                (*edge, EdgeRange { range, next: place[dag.edge(*edge).to.index()] })
            };
            dag.out(*node).iter().map(choice).collect()
        };
        let contexts: Vec<BTreeMap<DagEdgeId, EdgeRange>> = dag.order().iter().map(context).collect();
        let holes = vec![BigInt::zero(); contexts.len()];
        CodingModel { nodes: dag.order().iter().map(|n| n.0).collect(), contexts, holes, size }
    }

    /// Returns N, the exclusive upper bound of all path numbers.
    pub fn size(&self) -> &BigInt {
        &self.size
    }

    fn min_nonzero_probability(&self) -> BigRational {
        let mut least = vec![BigRational::one(); self.contexts.len()];
        for at in (0..self.contexts.len()).rev().filter(|c| !self.contexts[*c].is_empty()) {
            let by = |choice: &EdgeRange| (&choice.range.1 - &choice.range.0) * &least[choice.next];
            let smallest = self.contexts[at].values().map(by).filter(|p| !p.is_zero()).min();
            least[at] = smallest.expect("a context has an edge of non-zero probability");
        }
        least.swap_remove(0)
    }

    /// Returns the unique number of a path, below [`CodingModel::size`], or `None` if the probability of the path is 0.
    pub fn encode(&self, path: &[DagEdgeId]) -> Option<BigInt> {
        let last = self.encoding_steps(path)?.pop();
        Some(last.map_or_else(BigInt::zero, |step| step.interval.0.ceil().to_integer()))
    }

    /// Returns the steps that encode a path, or `None` if the path has no number. The number is the least integer in the last interval.
    pub fn encoding_steps(&self, path: &[DagEdgeId]) -> Option<Vec<CodingStep>> {
        let mut from = BigRational::zero();
        let mut width = BigRational::from_integer(self.size.clone());
        let (mut steps, mut at) = (Vec::new(), 0);
        for edge in path {
            let choice = self.contexts[at].get(edge).filter(|c| c.range.0 < c.range.1)?;
            from += &width * &choice.range.0;
            width *= &choice.range.1 - &choice.range.0;
            steps.push(CodingStep { edge: *edge, range: choice.range.clone(), interval: (from.clone(), &from + &width) });
            at = choice.next;
        }
        Some(steps)
    }

    /// Returns the path with this number, or `None` if there is no such path.
    pub fn decode(&self, number: &BigInt) -> Option<Vec<DagEdgeId>> {
        if number.is_negative() || *number >= self.size {
            return None;
        }
        let mut place = BigRational::new(number.clone(), self.size.clone());
        let (mut path, mut at) = (Vec::new(), 0);
        while !self.contexts[at].is_empty() {
            let holds = |(_, choice): &(&DagEdgeId, &EdgeRange)| (&choice.range.0..&choice.range.1).contains(&&place);
            let (edge, choice) = self.contexts[at].iter().find(holds)?;
            place = (&place - &choice.range.0) / (&choice.range.1 - &choice.range.0);
            path.push(*edge);
            at = choice.next;
        }
        // A path's interval can contain several integers, of which only the least is its number.
        (self.encode(&path).as_ref() == Some(number)).then_some(path)
    }

    /// Returns the probability of a path: the product of the probabilities of its edges.
    pub fn probability(&self, path: &[DagEdgeId]) -> BigRational {
        let mut product = BigRational::one();
        let mut at = 0;
        for edge in path {
            let Some(choice) = self.contexts[at].get(edge) else { return BigRational::zero() };
            product *= &choice.range.1 - &choice.range.0;
            at = choice.next;
        }
        product
    }

    /// Computes the entropy in bits, by the chain rule: the sum over all contexts of the probability of reaching the context times the
    /// entropy of its edges. Each term is computed to about `bits` fractional bits.
    pub fn entropy(&self, bits: u32) -> Enclosure {
        let mut reached = vec![BigRational::zero(); self.contexts.len()];
        reached[0] = BigRational::one();
        let mut sum = Enclosure::exact(BigRational::zero());
        for (at, context) in self.contexts.iter().enumerate() {
            let mut own = Enclosure::exact(BigRational::zero());
            let mut region = BigRational::zero();
            for choice in context.values() {
                let share = &choice.range.1 - &choice.range.0;
                reached[choice.next] = &reached[choice.next] + &reached[at] * &share;
                own = own.plus(&entropy_term(&share, bits));
                region += share;
            }
            if !self.holes[at].is_zero() {
                let numbers = BigRational::from_integer(self.holes[at].clone());
                let each = (BigRational::one() - region) / &numbers;
                own = own.plus(&entropy_term(&each, bits).times(&numbers));
            }
            sum = sum.plus(&own.times(&reached[at]));
        }
        sum
    }

    /// Computes gamma (section 4.3): 2^H divided by the number of interesting paths.
    pub fn gamma(&self, interesting: u128, bits: u32) -> Enclosure {
        let power = exp2(&self.entropy(bits), bits);
        power.times(&BigRational::new(BigInt::one(), BigInt::from(interesting)))
    }

    /// Iterates over the contexts that have outgoing edges, in topological order.
    pub fn contexts(&self) -> impl Iterator<Item = CodingModelContext> + '_ {
        let mut prefixes: Vec<Option<Vec<DagEdgeId>>> = vec![None; self.contexts.len()];
        prefixes[0] = Some(Vec::new());
        (0..self.contexts.len()).filter(|at| !self.contexts[*at].is_empty()).map(move |at| {
            let prefix = prefixes[at].clone().unwrap_or_default();
            for (edge, choice) in &self.contexts[at] {
                prefixes[choice.next].get_or_insert_with(|| [prefix.as_slice(), &[*edge]].concat());
            }
            let choices = self.contexts[at].iter().map(|(e, choice)| (*e, choice.range.clone())).collect();
            CodingModelContext { node: self.nodes[at], prefix, choices }
        })
    }
}

/// Returns the nearest floating-point number, or NaN if the value does not fit.
pub fn nearest_f64(value: &Rational) -> f64 {
    value.to_f64().unwrap_or(f64::NAN)
}

fn entropy_term(probability: &BigRational, bits: u32) -> Enclosure {
    if probability.is_zero() {
        return Enclosure::exact(BigRational::zero());
    }
    log2(&probability.recip(), bits).times(probability)
}
