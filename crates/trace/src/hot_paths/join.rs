//! Joining fragments to paths by the counts of what follows.
//!
//! A path under way at the end of a fragment goes on with each fragment that begins where it leads, in proportion to
//! their counts. Paths whose share falls below half an execution are dropped. Work: the number of joined paths, which
//! that bound keeps below twice the number of executions, and in practice near the number of fragments.

use super::fragment::{Action, Exit, Fragment, FunctionKey, Graphs, Start, take};
use crate::branch_import::ImportError;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use trodden_binary::{Connection, FunctionId, ProbedImage};
use trodden_profile::Losses;

/// Fragments of one path, at most.
const LONGEST: usize = 64;
/// Paths of a smaller count are dropped.
const LEAST: f64 = 0.5;

/// Counts of paths.
#[derive(Debug, Default)]
pub struct Joined {
    /// By image, function, and number in the function.
    pub paths: BTreeMap<(usize, FunctionId, i64), f64>,
    /// Executions of paths that lie in one fragment.
    pub whole: u64,
    /// Executions of joined paths.
    pub joined: u64,
    /// Executions of fragments.
    pub fragments: u64,
}

/// Joins.
///
/// # Errors
/// A map is damaged.
pub fn join(images: &[ProbedImage], graphs: &mut Graphs, fragments: &[Fragment], losses: &mut Losses) -> Result<Joined, ImportError> {
    let mut by_start: HashMap<(FunctionKey, u64), Vec<usize>> = HashMap::new();
    let mut by_function: HashMap<FunctionKey, Vec<usize>> = HashMap::new();
    for (number, fragment) in fragments.iter().enumerate() {
        if let Start::At(address, _) = fragment.start {
            by_start.entry((fragment.function, address)).or_default().push(number);
            by_function.entry(fragment.function).or_default().push(number);
        }
    }
    let mut joins: Vec<Vec<Join>> = Vec::new();
    for fragment in fragments {
        let candidates = match fragment.exit {
            Exit::Over => &[][..],
            Exit::At(_, address) => by_start.get(&(fragment.function, address)).map_or(&[][..], Vec::as_slice),
            Exit::Indirect(_) => by_function.get(&fragment.function).map_or(&[][..], Vec::as_slice),
        };
        joins.push(joins_of(images, graphs, fragments, fragment, candidates)?);
    }
    balance(fragments, &mut joins);
    let mut joiner = Joiner { fragments, joins, joined: Joined::default(), lost: 0.0, counted_joined: 0.0, counted_whole: 0.0 };
    (0..fragments.len()).for_each(|number| joiner.begin(number));
    let Joiner { mut joined, lost, counted_joined, counted_whole, .. } = joiner;
    joined.whole = counted_whole.round() as u64;
    joined.joined = counted_joined.round() as u64;
    joined.fragments = fragments.iter().map(|f| f.count).sum();
    losses.cut_off = losses.cut_off.saturating_add(lost.round() as u64);
    Ok(joined)
}

/// What may follow a fragment.
#[derive(Clone, Debug)]
struct Join {
    /// The fragment.
    next: usize,
    /// With which probability.
    probability: f64,
    /// How often, as the next fragment's count has it.
    flow: f64,
    /// What happens between.
    actions: Rc<[Action]>,
}

fn joins_of(
    images: &[ProbedImage],
    graphs: &mut Graphs,
    fragments: &[Fragment],
    from: &Fragment,
    candidates: &[usize],
) -> Result<Vec<Join>, ImportError> {
    let (Exit::At(block, _) | Exit::Indirect(block)) = from.exit else { return Ok(Vec::new()) };
    let graph = graphs.of(images, from.function)?;
    let mut found: Vec<(usize, Vec<Action>)> = Vec::new();
    for next in candidates {
        let Start::At(_, first) = fragments[*next].start else { continue };
        let connection = graph.connect(block, Some(first));
        let edges = match (&connection, from.exit) {
            (Connection::Unique(edges), _) | (Connection::Inferred(edges), Exit::At(..)) => edges.clone(),
            // The same block goes on: two branches end it.
            (_, Exit::At(..)) if first == block => Rc::from([]),
            _ => continue,
        };
        let mut actions = Vec::new();
        edges.iter().for_each(|edge| _ = take(graph, *edge, &mut actions));
        found.push((*next, actions));
    }
    let total: u64 = found.iter().map(|(next, _)| fragments[*next].count).sum();
    let join = |(next, actions): (usize, Vec<Action>)| {
        let probability = fragments[next].count as f64 / total.max(1) as f64;
        Join { next, probability, flow: 0.0, actions: actions.into() }
    };
    Ok(found.into_iter().map(join).collect())
}

/// How often each join was executed: what comes to a fragment adds up to its count. A table that dropped paths has more
/// of what follows than of what comes before, or less.
fn balance(fragments: &[Fragment], joins: &mut [Vec<Join>]) {
    let mut incoming = vec![0.0; fragments.len()];
    for (fragment, joins) in fragments.iter().zip(joins.iter()) {
        joins.iter().for_each(|join| incoming[join.next] += fragment.count as f64 * join.probability);
    }
    for (fragment, joins) in fragments.iter().zip(joins) {
        for join in joins {
            join.flow = fragment.count as f64 * join.probability / incoming[join.next] * fragments[join.next].count as f64;
        }
    }
}

/// A path under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    sum: i64,
    weight: f64,
    /// Whether it began in another fragment.
    is_joined: bool,
}

struct Joiner<'a> {
    fragments: &'a [Fragment],
    joins: Vec<Vec<Join>>,
    joined: Joined,
    lost: f64,
    counted_joined: f64,
    counted_whole: f64,
}

impl Joiner<'_> {
    /// Follows all paths that begin in a fragment, or between it and the next one.
    fn begin(&mut self, number: usize) {
        let fragment = &self.fragments[number];
        let path = self.play(fragment.function, &fragment.actions, None, fragment.count as f64);
        for join in self.joins[number].clone() {
            if let Some(path) = self.play(fragment.function, &join.actions, None, join.flow) {
                self.enter(join.next, path, 1);
            }
        }
        if let Some(path) = path {
            self.go_on(number, path, 0);
        }
    }

    /// A path is under way at the end of a fragment.
    fn go_on(&mut self, number: usize, path: UnderWay, depth: usize) {
        let (function, joins) = (self.fragments[number].function, self.joins[number].clone());
        if joins.is_empty() || depth == LONGEST {
            self.lost += path.weight;
        }
        for join in joins.into_iter().filter(|_| depth < LONGEST) {
            let path = UnderWay { weight: path.weight * join.probability, is_joined: true, ..path };
            if path.weight < LEAST {
                self.lost += path.weight;
            } else if let Some(path) = self.carry(function, &join.actions, path) {
                self.enter(join.next, path, depth + 1);
            }
        }
    }

    /// A path comes to the beginning of a fragment.
    fn enter(&mut self, number: usize, path: UnderWay, depth: usize) {
        let fragment = &self.fragments[number];
        if let Some(path) = self.carry(fragment.function, &fragment.actions, path) {
            self.go_on(number, path, depth);
        }
    }

    /// What becomes of a path that is under way; what begins behind its end is another's business.
    fn carry(&mut self, function: FunctionKey, actions: &[Action], mut path: UnderWay) -> Option<UnderWay> {
        for action in actions {
            if matches!(action, Action::Begin(_)) {
                return None;
            }
            path = self.step(function, *action, path)?;
        }
        Some(path)
    }

    /// What begins along actions; the last of it, if it is still under way behind them.
    fn play(&mut self, function: FunctionKey, actions: &[Action], mut path: Option<UnderWay>, weight: f64) -> Option<UnderWay> {
        for action in actions {
            path = match (action, path) {
                (Action::Begin(sum), _) => Some(UnderWay { sum: *sum, weight, is_joined: false }),
                (action, Some(path)) => self.step(function, *action, path),
                (_, None) => None,
            };
        }
        path
    }

    fn step(&mut self, function: FunctionKey, action: Action, mut path: UnderWay) -> Option<UnderWay> {
        match action {
            Action::Begin(_) => {}
            Action::Add(value) => path.sum = path.sum.wrapping_add(value),
            Action::Reach(value) => self.count(function, path.sum.wrapping_add(value), &path),
            Action::Finish(value) => {
                self.count(function, path.sum.wrapping_add(value), &path);
                let sum = if path.is_joined { &mut self.counted_joined } else { &mut self.counted_whole };
                *sum += path.weight;
                return None;
            }
            Action::Lose => {
                self.lost += path.weight;
                return None;
            }
        }
        Some(path)
    }

    fn count(&mut self, function: FunctionKey, id: i64, path: &UnderWay) {
        *self.joined.paths.entry((function.0, function.1, id)).or_default() += path.weight;
    }
}
