//! Supergraph paths, computed by summarising the effect of each rule on the frames around it.
//!
//! Each frame that is open before a rule is the root of a supergraph; for that root, a summary has the events before the first cut and
//! those after the last. For each frame that the rule leaves open, the summary has the events after the last cut. A range between two cuts
//! is a complete path, which is recorded where summaries are joined (an associative operation). A path of a frame that the rule opens
//! counts as often as the rule occurs. A path of an earlier frame counts only where the stack is deep enough, which a second pass from the
//! root determines. Time is proportional to items x (k + closed frames) x path length, and memory to rules instead of items.

use super::{MAX_DEPTH, StringCounts};
use crate::SequenceError;
use crate::events::{Classify, EventClass, SubpathEnd, classify_terminals};
use crate::grammar::{Grammar, GrammarItem, RuleId};
use std::collections::HashMap;

/// Supergraph paths of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupergraphPaths {
    /// Number of executions of each complete path.
    pub counts: StringCounts,
    /// The unfinished paths of the frames that are open when the sequence ends, outermost first.
    pub unfinished: Vec<Vec<u64>>,
    /// Number of paths of frames that the sequence leaves but does not enter. Such a path began before the sequence.
    pub unbegun: u64,
}

/// Consecutive events in the supergraph of a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SupergraphPiece {
    terminals: Vec<u32>,
    /// Whether an event belongs to the root's own frame: the event is in this frame, leaves it for a call, or returns to it.
    is_own: bool,
}

impl SupergraphPiece {
    fn extend(&mut self, next: &SupergraphPiece) {
        self.terminals.extend_from_slice(&next.terminals);
        self.is_own |= next.is_own;
    }
}

/// The events of a rule in the supergraph of a frame that is open before it.
#[derive(Clone, Default)]
struct RootTrace {
    first: SupergraphPiece,
    state: TraceState,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum TraceState {
    /// There is no cut yet.
    #[default]
    Uncut,
    /// The events after the last cut.
    Cut(SupergraphPiece),
    Closed,
}

/// The effect of a rule on the frames around the rule.
#[derive(Clone, Default)]
struct Summary {
    /// Number of earlier frames that the rule leaves.
    closes: usize,
    /// The earlier frames as roots, innermost first, up to the outermost frame with an event.
    outer: Vec<RootTrace>,
    /// The unfinished path of each frame left open, outermost first.
    opens: Vec<SupergraphPiece>,
}

/// Counts the supergraph paths of depth `k`: the acyclic paths of a function's graph with calls replaced by their callees' graphs, to depth
/// `k`. Each activation is the root of such a graph. Its execution is cut at back edges of frames at depths 0 to `k`, and at its own entry
/// and return. Each range between two cuts that has an event of the root's own frame (a path, a call from it, a return to it) is one path.
/// Paths may span siblings, or begin in a callee's loop and return into the root. Counts are sums over all activations, as counted in
/// inlined code; with `k` = 0, they are the intraprocedural profile. `k` must be at most [`MAX_DEPTH`].
pub fn supergraph_paths(grammar: &Grammar, classify: &impl Classify, k: usize) -> Result<SupergraphPaths, SequenceError> {
    if k > MAX_DEPTH {
        return Err(SequenceError::parameter("depth of supergraph paths", k, "0 to 100"));
    }
    let fold = SupergraphFold::new(grammar, classify, k);
    let mut counts = StringCounts::new();
    let symbols = |path: &Vec<u32>| path.iter().map(|t| grammar.terminals()[*t as usize]).collect::<Vec<_>>();
    for (path, count) in fold.paths.iter().zip(fold.path_counts()).filter(|(_, count)| *count > 0) {
        counts.insert(symbols(path), count);
    }
    let whole = fold.summaries.last().cloned().unwrap_or_default();
    let unbegun = whole.outer.iter().take(whole.closes).filter(|root| root.first.is_own).count() as u64;
    let unfinished = whole.opens.iter().filter(|piece| piece.is_own).map(|piece| symbols(&piece.terminals)).collect();
    Ok(SupergraphPaths { counts, unfinished, unbegun })
}

/// Marks a complete path of a frame that the rule itself opened.
const OPENED: u32 = u32::MAX;

/// Summaries of all rules, and the paths completed in each.
struct SupergraphFold<'a> {
    grammar: &'a Grammar,
    leaves: Vec<Summary>,
    summaries: Vec<Summary>,
    paths: Vec<Vec<u32>>,
    /// For each rule, pairs of a frame (its distance from the innermost frame before the rule, or [`OPENED`]) and a path.
    complete: Vec<Vec<(u32, u32)>>,
}

impl<'a> SupergraphFold<'a> {
    fn new(grammar: &'a Grammar, classify: &impl Classify, k: usize) -> SupergraphFold<'a> {
        let leaves =
            (0..).zip(classify_terminals(grammar, classify)).map(|(terminal, class)| Summary::from_event(terminal, class, k)).collect();
        let mut fold = SupergraphFold { grammar, leaves, summaries: Vec::new(), paths: Vec::new(), complete: Vec::new() };
        let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
        for rule in grammar.rules() {
            let mut summary = fold.first_summary(rule);
            let mut complete = Vec::new();
            let (leaves, summaries, paths) = (&fold.leaves, &fold.summaries, &mut fold.paths);
            for item in grammar.body(rule) {
                summary.join(summary_of(item, leaves, summaries), &mut |frame, path: SupergraphPiece| {
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

    /// Returns the summary before the first item of a rule. It has no frames, except that the root rule starts in the thread's own frame.
    fn first_summary(&self, rule: RuleId) -> Summary {
        let opens = if rule == self.grammar.root() { vec![SupergraphPiece::default()] } else { Vec::new() };
        Summary { opens, ..Summary::default() }
    }

    fn path_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.paths.len()];
        let occurrences = self.grammar.rule_occurrences();
        // For each rule, the number of its occurrences before which a frame exists at each distance.
        let mut frame_counts: Vec<Vec<u64>> = self.summaries.iter().map(|summary| vec![0; summary.outer.len()]).collect();
        for rule in self.grammar.rules().rev() {
            let here = std::mem::take(&mut frame_counts[rule.0 as usize]);
            let times = |frame: u32| if frame == OPENED { occurrences[rule.0 as usize] } else { here[frame as usize] };
            for (frame, path) in &self.complete[rule.0 as usize] {
                counts[*path as usize] += times(*frame);
            }
            let (mut closes, mut opens) = (0, self.first_summary(rule).opens.len());
            for item in self.grammar.body(rule) {
                let next = summary_of(item, &self.leaves, &self.summaries);
                if let GrammarItem::Rule(child) = item {
                    for (distance, frame_counts) in frame_counts[child.0 as usize].iter_mut().enumerate() {
                        *frame_counts += times(if distance < opens { OPENED } else { (closes + distance - opens) as u32 });
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
    /// Returns the summary of one event. For the frame that is n frames outside the innermost one, the event is at depth n.
    fn from_event(terminal: u32, class: EventClass, k: usize) -> Summary {
        let seen = |is_own| RootTrace { first: SupergraphPiece { terminals: vec![terminal], is_own }, state: TraceState::Uncut };
        let mut summary = Summary::default();
        match class {
            EventClass::Subpath { end, .. } => {
                let state = if end == SubpathEnd::BackEdge { TraceState::Cut(SupergraphPiece::default()) } else { TraceState::Uncut };
                summary.outer = (0..=k).map(|distance| RootTrace { state: state.clone(), ..seen(distance == 0) }).collect();
            }
            EventClass::Enter => {
                summary.outer = (0..k).map(|distance| seen(distance == 0)).collect();
                summary.opens.push(SupergraphPiece::default());
            }
            EventClass::Leave => {
                summary.closes = 1;
                summary.outer.push(RootTrace { first: SupergraphPiece::default(), state: TraceState::Closed });
                summary.outer.extend((1..=k).map(|distance| seen(distance == 1)));
            }
        }
        summary
    }

    /// Appends the summary of the next events. Calls `complete` with each path that ends there and the path's frame.
    fn join(&mut self, next: &Summary, complete: &mut impl FnMut(u32, SupergraphPiece)) {
        let known = self.opens.len();
        for (distance, trace) in next.outer.iter().enumerate() {
            if distance < known {
                extend_open_path(&mut self.opens[known - 1 - distance], trace, &mut |path| complete(OPENED, path));
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

fn extend_open_path(path: &mut SupergraphPiece, trace: &RootTrace, complete: &mut impl FnMut(SupergraphPiece)) {
    path.extend(&trace.first);
    match &trace.state {
        TraceState::Uncut => {}
        TraceState::Cut(piece) => complete(std::mem::replace(path, piece.clone())),
        TraceState::Closed => complete(std::mem::take(path)),
    }
}

impl RootTrace {
    fn extend(&mut self, next: &RootTrace, complete: &mut impl FnMut(SupergraphPiece)) {
        match &mut self.state {
            TraceState::Uncut => {
                self.first.extend(&next.first);
                self.state = next.state.clone();
            }
            TraceState::Cut(path) => {
                extend_open_path(path, next, complete);
                if next.state == TraceState::Closed {
                    self.state = TraceState::Closed;
                }
            }
            // No event is in a frame after it was left.
            TraceState::Closed => {}
        }
    }
}
