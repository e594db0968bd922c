//! Numberings as arithmetic coding: probability models of paths, and the coder that turns a path into its number.
//!
//! Source: Vaswani's thesis, chapter 4: finite-context models of order k (section 4.1), `computeBLModel` (figure 4.1), `pathEncoder`
//! (figure 4.3), the model of preferential numbering (section 4.2.1), gamma (section 4.3). A model gives each choice in a context a range
//! of [0, 1); the context is a node, or a prefix of interesting paths. Probabilities are exact rationals; entropies, which are irrational
//! in general, lie between two rationals ([`enclosure`]).
//!
//! The preferential model has to be defined where a join takes a maximum (the printed table 4.3 gives `sact` the number
//! of `sacdt`). Here the interesting paths behind a prefix have numbers in an interval, known from the numbering; the
//! range of an edge is the part of that interval that the paths behind the edge have. Ranges of a context do not
//! overlap; what the join leaves out is a hole of the model. So the encoder finds the number of every interesting path,
//! and each of them has the probability 1/N, with N the span of the numbers. In the entropy each number in a hole is a
//! symbol of its own: then 2^H = N, and gamma is delta.
//!
//! Numbers are uniquely decodable in every model. `pathEncoder` rounds the interval to whole numbers at each edge, which
//! gives two paths one number where probabilities are no multiples of 1/N. Here the interval is exact, N is so great that
//! no path's interval is shorter than 1, and the path's number is the least whole number in it.
#![forbid(unsafe_code)]

mod enclosure;

pub use enclosure::{Enclosure, exp2, log2};

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::collections::BTreeMap;
use trodden_flow::dag::{Dag, DagEdgeId};

/// An exact fraction.
pub type Rational = BigRational;

/// Part of [0, 1) that an edge has in a context: from, to.
pub type CodingRange = (Rational, Rational);

/// A place where a path has several successors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The node.
    pub node: u32,
    /// A path to there: in the preferential model the one that the context is about, else any.
    pub prefix: Vec<DagEdgeId>,
    /// The edges that can be taken, and the range of each.
    pub choices: Vec<(DagEdgeId, CodingRange)>,
}

/// Why there is no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// Weights for a measured model cannot be used.
    #[error("{}", CodingError::no_weight(.0))]
    NoWeight(u32),
    /// The interesting paths' numbers overlap at a prefix: the values are no preferential numbering.
    #[error("{}", CodingError::overlap(.0))]
    Overlap(u32),
    /// There are no paths to make a model of.
    #[error("a model needs at least one interesting path")]
    Nothing,
}

impl CodingError {
    /// The message of [`CodingError::NoWeight`], with what the node is called.
    pub fn no_weight(node: &dyn std::fmt::Display) -> String {
        format!(
            "the edges out of node {node} are executed, but their weights add up to nothing: measure them all, or leave the weights out"
        )
    }

    /// That of [`CodingError::Overlap`].
    pub fn overlap(node: &dyn std::fmt::Display) -> String {
        format!("the numbers behind two edges out of node {node} overlap: no model has these values; take those of ppp")
    }
}

/// A step of coding: what an edge leaves of the interval of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodingStep {
    /// The edge.
    pub edge: DagEdgeId,
    /// Its range in the context.
    pub range: CodingRange,
    /// The interval after this step: its ends.
    pub interval: CodingRange,
}

/// A choice that a context leaves open.
#[derive(Clone, Debug)]
struct Choice {
    range: CodingRange,
    next: usize,
}

/// A finite context model of the paths through a DAG.
#[derive(Clone, Debug)]
pub struct CodingModel {
    /// Contexts, each after those that lead to it; the first is where paths begin.
    contexts: Vec<BTreeMap<DagEdgeId, Choice>>,
    /// The node that each context belongs to.
    nodes: Vec<u32>,
    /// How many numbers fill what the ranges of a context leave out.
    holes: Vec<BigInt>,
    /// Size of the interval that encoding begins with.
    size: BigInt,
}

impl CodingModel {
    /// `computeBLModel`: each edge has its share of the paths.
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

    /// The model of measured weights, one for each edge of the DAG: each edge has its share of its node's. Paths over an edge
    /// of no weight have the probability 0, and no number.
    ///
    /// # Errors
    /// All weights at a node are zero.
    pub fn measured(dag: &Dag, weights: &[f64]) -> Result<CodingModel, CodingError> {
        let weight = |e: DagEdgeId| BigRational::from_float(weights[e.index()]).unwrap_or_else(BigRational::zero);
        let mut sums = vec![BigRational::zero(); dag.node_count()];
        for edge in dag.edge_ids() {
            sums[dag.edge(edge).from.index()] += weight(edge);
        }
        if let Some(bad) = dag.order().iter().find(|n| **n != dag.exit() && sums[n.index()].is_zero()) {
            return Err(CodingError::NoWeight(bad.0));
        }
        let mut model = CodingModel::from_nodes(dag, BigInt::zero(), |e| weight(e) / &sums[dag.edge(e).from.index()]);
        model.size = model.least_probability().recip().ceil().to_integer();
        Ok(model)
    }

    /// The finite-context model of order k of executed paths, each with its executions: the context of an edge is its source and the
    /// `order` edges before it, and its probability is the share of the context's executions. A path with a step that no executed path has
    /// in its context has the probability 0, and no number. With order 0 the context is the node alone; with an order of the longest path's
    /// length the executed paths are the only ones that have a number.
    ///
    /// # Errors
    /// No path was executed.
    pub fn executed(dag: &Dag, order: usize, paths: &[(Vec<DagEdgeId>, u64)]) -> Result<CodingModel, CodingError> {
        let place = dag.positions();
        // By the node's place: each context comes after those that lead to it. What lies before the exit distinguishes nothing.
        let context = |node: trodden_flow::graph::Node, before: &[DagEdgeId]| {
            let kept = if node == dag.exit() { 0 } else { order.min(before.len()) };
            (place[node.index()], node.0, before[before.len() - kept..].to_vec())
        };
        type Key = (usize, u32, Vec<DagEdgeId>);
        let mut found: BTreeMap<Key, BTreeMap<DagEdgeId, (u64, Key)>> = BTreeMap::new();
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
        let numbers: BTreeMap<Key, usize> = found.keys().cloned().zip(0..).collect();
        let mut model = CodingModel { contexts: Vec::new(), nodes: Vec::new(), holes: Vec::new(), size: BigInt::zero() };
        for ((_, node, _), choices) in &found {
            let sum: BigInt = choices.values().map(|(executions, _)| BigInt::from(*executions)).sum();
            let mut low = BigRational::zero();
            let ranges = choices.iter().map(|(edge, (executions, next))| {
                let high = &low + BigRational::new(BigInt::from(*executions), sum.clone());
                (*edge, Choice { range: (std::mem::replace(&mut low, high.clone()), high), next: numbers[next] })
            });
            model.contexts.push(ranges.collect());
            model.nodes.push(*node);
            model.holes.push(BigInt::zero());
        }
        if model.contexts.first().is_none_or(BTreeMap::is_empty) {
            return Err(CodingError::Nothing);
        }
        model.size = model.least_probability().recip().ceil().to_integer();
        Ok(model)
    }

    /// The model of a preferential numbering: `values` of the edges, and the interesting paths.
    ///
    /// # Errors
    /// There are no paths, or the numbers behind the edges of a prefix overlap.
    pub fn preferential(dag: &Dag, values: &[i64], paths: &[Vec<DagEdgeId>]) -> Result<CodingModel, CodingError> {
        let mut model =
            CodingModel { contexts: vec![BTreeMap::new()], nodes: vec![dag.entry().0], holes: Vec::new(), size: BigInt::zero() };
        let nothing = || (BigRational::zero(), BigRational::zero());
        for path in paths {
            let mut at = 0;
            for &edge in path {
                let next = model.contexts.len();
                at = model.contexts[at].entry(edge).or_insert_with(|| Choice { range: nothing(), next }).next;
                if at == next {
                    model.contexts.push(BTreeMap::new());
                    model.nodes.push(dag.edge(edge).to.0);
                }
            }
        }
        model.fill(values)?;
        Ok(model)
    }

    /// Ranges from the intervals of numbers behind each prefix.
    fn fill(&mut self, values: &[i64]) -> Result<(), CodingError> {
        let zero = || BigInt::zero();
        let mut intervals = vec![(zero(), BigInt::one()); self.contexts.len()];
        self.holes = vec![zero(); self.contexts.len()];
        for at in (0..self.contexts.len()).rev().filter(|c| !self.contexts[*c].is_empty()).collect::<Vec<_>>() {
            let through = |(edge, choice): (&DagEdgeId, &Choice)| {
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
                self.contexts[at].get_mut(&edge).expect("it came from there").range = (part(from), part(to));
            }
            intervals[at] = (low, high);
        }
        self.size = &intervals[0].1 - &intervals[0].0;
        if self.contexts[0].is_empty() { Err(CodingError::Nothing) } else { Ok(()) }
    }

    /// A model whose contexts are the nodes.
    fn from_nodes(dag: &Dag, size: BigInt, share: impl Fn(DagEdgeId) -> BigRational) -> CodingModel {
        let place = dag.positions();
        let context = |node: &trodden_flow::graph::Node| {
            let mut low = BigRational::zero();
            let choice = |edge: &DagEdgeId| {
                let high = &low + share(*edge);
                let range = (std::mem::replace(&mut low, high.clone()), high);
                (*edge, Choice { range, next: place[dag.edge(*edge).to.index()] })
            };
            dag.out(*node).iter().map(choice).collect()
        };
        let contexts: Vec<BTreeMap<DagEdgeId, Choice>> = dag.order().iter().map(context).collect();
        let holes = vec![BigInt::zero(); contexts.len()];
        CodingModel { nodes: dag.order().iter().map(|n| n.0).collect(), contexts, holes, size }
    }

    /// N: numbers are below it.
    pub fn size(&self) -> &BigInt {
        &self.size
    }

    /// The probability of the least probable path that has one.
    fn least_probability(&self) -> BigRational {
        let mut least = vec![BigRational::one(); self.contexts.len()];
        for at in (0..self.contexts.len()).rev().filter(|c| !self.contexts[*c].is_empty()) {
            let by = |choice: &Choice| (&choice.range.1 - &choice.range.0) * &least[choice.next];
            let smallest = self.contexts[at].values().map(by).filter(|p| !p.is_zero()).min();
            least[at] = smallest.expect("the shares of a context add up to something");
        }
        least.swap_remove(0)
    }

    /// The number of a path, from 0 to below [`CodingModel::size`], which no other path has; `None` if its probability is 0.
    pub fn encode(&self, path: &[DagEdgeId]) -> Option<BigInt> {
        let last = self.steps(path)?.pop();
        Some(last.map_or_else(BigInt::zero, |step| step.interval.0.ceil().to_integer()))
    }

    /// How a path is encoded, edge by edge: the number is the least whole one in the last interval. `None` if the path has no number.
    pub fn steps(&self, path: &[DagEdgeId]) -> Option<Vec<CodingStep>> {
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

    /// The path with a number, if one has it.
    pub fn decode(&self, number: &BigInt) -> Option<Vec<DagEdgeId>> {
        if number.is_negative() || *number >= self.size {
            return None;
        }
        let mut place = BigRational::new(number.clone(), self.size.clone());
        let (mut path, mut at) = (Vec::new(), 0);
        while !self.contexts[at].is_empty() {
            let holds = |(_, choice): &(&DagEdgeId, &Choice)| (&choice.range.0..&choice.range.1).contains(&&place);
            let (edge, choice) = self.contexts[at].iter().find(holds)?;
            place = (&place - &choice.range.0) / (&choice.range.1 - &choice.range.0);
            path.push(*edge);
            at = choice.next;
        }
        // Of the whole numbers in a path's interval the least is its number.
        (self.encode(&path).as_ref() == Some(number)).then_some(path)
    }

    /// The probability of a path: the product of its edges'.
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

    /// Entropy in bits, by the chain rule: for each context the probability to get there times the entropy of its
    /// choices. `bits` of precision after the point in each term.
    pub fn entropy(&self, bits: u32) -> Enclosure {
        let mut reached = vec![BigRational::zero(); self.contexts.len()];
        reached[0] = BigRational::one();
        let mut sum = Enclosure::exactly(BigRational::zero());
        for (at, context) in self.contexts.iter().enumerate() {
            let mut own = Enclosure::exactly(BigRational::zero());
            let mut region = BigRational::zero();
            for choice in context.values() {
                let share = &choice.range.1 - &choice.range.0;
                reached[choice.next] = &reached[choice.next] + &reached[at] * &share;
                own = own.plus(&surprise(&share, bits));
                region += share;
            }
            if !self.holes[at].is_zero() {
                let numbers = BigRational::from_integer(self.holes[at].clone());
                let each = (BigRational::one() - region) / &numbers;
                own = own.plus(&surprise(&each, bits).times(&numbers));
            }
            sum = sum.plus(&own.times(&reached[at]));
        }
        sum
    }

    /// Gamma: 2^H over the number of interesting paths.
    pub fn gamma(&self, interesting: u128, bits: u32) -> Enclosure {
        let power = exp2(&self.entropy(bits), bits);
        power.times(&BigRational::new(BigInt::one(), BigInt::from(interesting)))
    }

    /// The contexts in which there is something to choose.
    pub fn contexts(&self) -> impl Iterator<Item = Context> + '_ {
        // Each context comes after those that lead to it.
        let mut prefixes: Vec<Option<Vec<DagEdgeId>>> = vec![None; self.contexts.len()];
        prefixes[0] = Some(Vec::new());
        (0..self.contexts.len()).filter(|at| !self.contexts[*at].is_empty()).map(move |at| {
            let prefix = prefixes[at].clone().unwrap_or_default();
            for (edge, choice) in &self.contexts[at] {
                prefixes[choice.next].get_or_insert_with(|| [prefix.as_slice(), &[*edge]].concat());
            }
            let choices = self.contexts[at].iter().map(|(e, choice)| (*e, choice.range.clone())).collect();
            Context { node: self.nodes[at], prefix, choices }
        })
    }
}

/// About what a rational is.
pub fn approximate(value: &Rational) -> f64 {
    value.to_f64().unwrap_or(f64::NAN)
}

/// p log2(1/p).
fn surprise(probability: &BigRational, bits: u32) -> Enclosure {
    if probability.is_zero() {
        return Enclosure::exactly(BigRational::zero());
    }
    log2(&probability.recip(), bits).times(probability)
}
