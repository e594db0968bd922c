//! Supergraph paths: a fold of the grammar into summaries of what each rule does to the frames around it.
//!
//! A rule's expansion closes some frames that were open before it, and opens some that are open behind it. For each frame that is open
//! before it, as the root of a supergraph, a summary has what was executed up to the first cut and behind the last one; for each frame that
//! it leaves open, what was executed behind the last cut. What lies between two cuts inside the rule is a complete path, and is noted
//! where the summaries of two items are joined: once for the rule. Joining is associative: summaries are a monoid.
//!
//! A path noted for a frame that the rule opens counts as often as the rule occurs. One noted for a frame that was open before counts
//! only where there is a frame so far out: near the bottom of a stack there is none. A second pass, from the root down, finds how often.
//!
//! Complexity: O(items x (k + frames closed) x length of a path) time; memory the same for rules instead of items. Paths are acyclic, so
//! their length is bounded by the program, not by the execution.

use super::{DEEPEST, SegmentCounts};
use crate::SequenceError;
use crate::events::{Classify, EventClass, SubpathEnd, classes};
use crate::grammar::{Grammar, GrammarItem, RuleId};
use std::collections::HashMap;

/// Supergraph paths of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupergraphPaths {
    /// How often each complete path was executed.
    pub counts: SegmentCounts,
    /// Paths that have no end: of frames that are open when the sequence ends, outermost first.
    pub unfinished: Vec<Vec<u64>>,
    /// Paths whose beginning was before the sequence: of frames that it leaves and does not enter.
    pub unbegun: u64,
}

/// Events that a root sees, one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Piece {
    /// Terminals' numbers.
    terminals: Vec<u32>,
    /// Whether one of them is in the root's own frame, or leaves it or comes back to it.
    is_own: bool,
}

impl Piece {
    fn extend(&mut self, next: &Piece) {
        self.terminals.extend_from_slice(&next.terminals);
        self.is_own |= next.is_own;
    }
}

/// What a rule executes in the supergraph of a frame that is open before it.
#[derive(Clone, Default)]
struct RootTrace {
    first: Piece,
    rest: Rest,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum Rest {
    /// No cut yet.
    #[default]
    Uncut,
    /// What was executed behind the last cut.
    Cut(Piece),
    /// The root was left.
    Closed,
}

/// What a rule does to the frames around it.
#[derive(Clone, Default)]
struct Summary {
    /// Frames open before that are left.
    closes: usize,
    /// Frames open before as roots, innermost first, as far out as something is seen.
    outer: Vec<RootTrace>,
    /// Frames left open, outermost first: the unfinished path of each.
    opens: Vec<Piece>,
}

/// Counts the supergraph paths of depth `k`.
///
/// # Errors
/// `k` is above [`DEEPEST`].
pub fn supergraph_paths(grammar: &Grammar, classify: &impl Classify, k: usize) -> Result<SupergraphPaths, SequenceError> {
    if k > DEEPEST {
        return Err(SequenceError::parameter("depth of supergraph paths", k, "0 to 100"));
    }
    let fold = Fold::new(grammar, classify, k);
    let mut counts = SegmentCounts::new();
    let symbols = |path: &Vec<u32>| path.iter().map(|t| grammar.terminals()[*t as usize]).collect::<Vec<_>>();
    for (path, count) in fold.paths.iter().zip(fold.counts()).filter(|(_, count)| *count > 0) {
        counts.insert(symbols(path), count);
    }
    let whole = fold.summaries.last().cloned().unwrap_or_default();
    let unbegun = whole.outer.iter().take(whole.closes).filter(|root| root.first.is_own).count() as u64;
    let unfinished = whole.opens.iter().filter(|piece| piece.is_own).map(|piece| symbols(&piece.terminals)).collect();
    Ok(SupergraphPaths { counts, unfinished, unbegun })
}

/// The frame of a complete path: one that the rule opened.
const OPENED: u32 = u32::MAX;

/// Summaries of all rules, and the paths that are complete in each.
struct Fold<'a> {
    grammar: &'a Grammar,
    leaves: Vec<Summary>,
    summaries: Vec<Summary>,
    /// Distinct paths.
    paths: Vec<Vec<u32>>,
    /// For each rule, frames (by distance from the innermost at the rule's beginning, or [`OPENED`]) and paths.
    complete: Vec<Vec<(u32, u32)>>,
}

impl<'a> Fold<'a> {
    fn new(grammar: &'a Grammar, classify: &impl Classify, k: usize) -> Fold<'a> {
        let leaves = (0..).zip(classes(grammar, classify)).map(|(terminal, class)| Summary::from_event(terminal, class, k)).collect();
        let mut fold = Fold { grammar, leaves, summaries: Vec::new(), paths: Vec::new(), complete: Vec::new() };
        let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
        for rule in grammar.rules() {
            let mut summary = fold.first_summary(rule);
            let mut complete = Vec::new();
            let (leaves, summaries, paths) = (&fold.leaves, &fold.summaries, &mut fold.paths);
            for item in grammar.body(rule) {
                summary.join(summary_of(item, leaves, summaries), &mut |frame, path: Piece| {
                    if !path.is_own {
                        return;
                    }
                    let number = *numbers.entry(path.terminals).or_insert_with_key(|path| {
                        paths.push(path.clone());
                        paths.len() as u32 - 1
                    });
                    complete.push((frame, number));
                });
            }
            fold.summaries.push(summary);
            fold.complete.push(complete);
        }
        fold
    }

    /// What there is before a rule: nothing; before the root the thread's own frame.
    fn first_summary(&self, rule: RuleId) -> Summary {
        let opens = if rule == self.grammar.root() { vec![Piece::default()] } else { Vec::new() };
        Summary { opens, ..Summary::default() }
    }

    /// How often each path is executed.
    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.paths.len()];
        let occurrences = self.grammar.rule_occurrences();
        // How often each rule begins with a frame at each distance.
        let mut framed: Vec<Vec<u64>> = self.summaries.iter().map(|summary| vec![0; summary.outer.len()]).collect();
        for rule in self.grammar.rules().rev() {
            let here = std::mem::take(&mut framed[rule.0 as usize]);
            let times = |frame: u32| if frame == OPENED { occurrences[rule.0 as usize] } else { here[frame as usize] };
            for (frame, path) in &self.complete[rule.0 as usize] {
                counts[*path as usize] += times(*frame);
            }
            let (mut closes, mut opens) = (0, self.first_summary(rule).opens.len());
            for item in self.grammar.body(rule) {
                let next = summary_of(item, &self.leaves, &self.summaries);
                if let GrammarItem::Rule(child) = item {
                    for (distance, framed) in framed[child.0 as usize].iter_mut().enumerate() {
                        *framed += times(if distance < opens { OPENED } else { (closes + distance - opens) as u32 });
                    }
                }
                closes += next.closes.saturating_sub(opens);
                opens = opens.saturating_sub(next.closes) + next.opens.len();
            }
        }
        counts
    }
}

fn summary_of<'s>(item: GrammarItem, leaves: &'s [Summary], summaries: &'s [Summary]) -> &'s Summary {
    match item {
        GrammarItem::Terminal(terminal) => &leaves[terminal.0 as usize],
        GrammarItem::Rule(child) => &summaries[child.0 as usize],
    }
}

impl Summary {
    /// A single event. A frame that is n further out than the innermost one sees events of depth n.
    fn from_event(terminal: u32, class: EventClass, k: usize) -> Summary {
        let seen = |is_own| RootTrace { first: Piece { terminals: vec![terminal], is_own }, rest: Rest::Uncut };
        let mut summary = Summary::default();
        match class {
            EventClass::Subpath { end, .. } => {
                let rest = if end == SubpathEnd::BackEdge { Rest::Cut(Piece::default()) } else { Rest::Uncut };
                summary.outer = (0..=k).map(|distance| RootTrace { rest: rest.clone(), ..seen(distance == 0) }).collect();
            }
            EventClass::Enter => {
                summary.outer = (0..k).map(|distance| seen(distance == 0)).collect();
                summary.opens.push(Piece::default());
            }
            EventClass::Leave => {
                summary.closes = 1;
                summary.outer.push(RootTrace { first: Piece::default(), rest: Rest::Closed });
                summary.outer.extend((1..=k).map(|distance| seen(distance == 1)));
            }
        }
        summary
    }

    /// Goes on with what is executed next; gives each path that ends there, and its frame.
    fn join(&mut self, next: &Summary, complete: &mut impl FnMut(u32, Piece)) {
        let known = self.opens.len();
        for (distance, trace) in next.outer.iter().enumerate() {
            if distance < known {
                extend_known(&mut self.opens[known - 1 - distance], trace, &mut |path| complete(OPENED, path));
                continue;
            }
            let root = self.closes + distance - known;
            if self.outer.len() <= root {
                self.outer.resize_with(root + 1, RootTrace::default);
            }
            self.outer[root].extend(trace, &mut |path| complete(root as u32, path));
        }
        self.opens.truncate(known.saturating_sub(next.closes));
        self.closes += next.closes.saturating_sub(known);
        self.opens.extend(next.opens.iter().cloned());
    }
}

/// Goes on with the unfinished path of a frame.
fn extend_known(path: &mut Piece, trace: &RootTrace, complete: &mut impl FnMut(Piece)) {
    path.extend(&trace.first);
    match &trace.rest {
        Rest::Uncut => {}
        Rest::Cut(piece) => complete(std::mem::replace(path, piece.clone())),
        Rest::Closed => complete(std::mem::take(path)),
    }
}

impl RootTrace {
    fn extend(&mut self, next: &RootTrace, complete: &mut impl FnMut(Piece)) {
        match &mut self.rest {
            Rest::Uncut => {
                self.first.extend(&next.first);
                self.rest = next.rest.clone();
            }
            Rest::Cut(path) => {
                extend_known(path, next, complete);
                if next.rest == Rest::Closed {
                    self.rest = Rest::Closed;
                }
            }
            // Nothing is executed in a frame that was left.
            Rest::Closed => {}
        }
    }
}
