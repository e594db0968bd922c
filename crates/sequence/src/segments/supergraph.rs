//! Supergraph paths, that is, paths through a function's graph in which calls are replaced by the callees' graphs. They are computed by
//! summarising the effect of each grammar rule on the frames around it.
//!
//! Each frame that is open before a rule is the root of a supergraph; for that root, a summary has the events before the first cut and
//! those after the last. For each frame that the rule leaves open, the summary has the events after the last cut. A range between two cuts
//! is a complete path, which is recorded where summaries are joined (an associative operation). A path of a frame that the rule opens
//! counts as often as the rule occurs. A path of an earlier frame counts only where the stack is deep enough, which a second pass from the
//! root determines. Time is proportional to items x (k + closed frames) x path length, and memory to rules instead of items.

use super::{MAX_SEGMENT_DEPTH, SymbolStringCounts};
use crate::SequenceError;
use crate::events::{Classify, EventClass, SubpathEnd, classify_terminals};
use crate::grammar::{Grammar, GrammarItem, RuleId};
use std::collections::HashMap;

/// The supergraph paths in a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SupergraphPaths {
    /// Number of executions of each complete path.
    pub counts: SymbolStringCounts,
    /// The incomplete paths of the frames that are still open when the sequence ends, outermost first.
    pub unfinished: Vec<Vec<u64>>,
    /// Number of paths that began before the sequence: those of frames that the sequence leaves but does not enter.
    pub unbegun: u64,
}

/// A range of events in the supergraph of a root frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SupergraphEventRange {
    terminals: Vec<u32>,
    /// True if at least one of the events belongs to the root's own frame: the event is in this frame, leaves it for a call, or returns to
    /// it.
    is_own: bool,
}

impl SupergraphEventRange {
    fn extend(&mut self, next: &SupergraphEventRange) {
        self.terminals.extend_from_slice(&next.terminals);
        self.is_own |= next.is_own;
    }
}

/// The events of a rule, as seen in the supergraph of a frame that is open before the rule.
#[derive(Clone, Default)]
struct RuleEventsInRootFrame {
    first: SupergraphEventRange,
    state: TraceState,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum TraceState {
    /// There is no cut yet.
    #[default]
    Uncut,
    /// There was a cut. The value has the events after the last cut.
    Cut(SupergraphEventRange),
    Closed,
}

/// The effect of a grammar rule on the call frames around it.
#[derive(Clone, Default)]
struct FrameSummary {
    /// Number of earlier frames that the rule leaves.
    closes: usize,
    /// The traces of earlier frames as roots of supergraphs, innermost first, up to the outermost frame that has an event.
    outer: Vec<RuleEventsInRootFrame>,
    /// For each frame that the rule opens and leaves open, its incomplete path. The outermost frame comes first.
    opens: Vec<SupergraphEventRange>,
}

/// Counts the supergraph paths of depth `k`. These are the acyclic paths of a function's graph in which calls, down to depth `k`, are
/// replaced by the callees' graphs. Each activation is the root of such a graph. Its execution is cut at its own entry and return, and at
/// back edges in frames at depths 0 to `k`. Each range between two cuts that has an event of the root's own frame (a path, a call from it,
/// a return to it) is one path. Paths may span siblings, or begin in a callee's loop and return into the root. Counts are sums over all
/// activations; with `k` = 0, they are the intraprocedural profile. `k` must be at most [`MAX_SEGMENT_DEPTH`].
pub fn supergraph_paths(grammar: &Grammar, classify: &impl Classify, k: usize) -> Result<SupergraphPaths, SequenceError> {
    if k > MAX_SEGMENT_DEPTH {
        return Err(SequenceError::invalid_parameter("depth of supergraph paths", k, "0 to 100"));
    }
    let fold = SupergraphPathSummaries::new(grammar, classify, k);
    let mut counts = SymbolStringCounts::new();
    let symbols = |path: &Vec<u32>| path.iter().map(|t| grammar.terminals()[*t as usize]).collect::<Vec<_>>();
    for (path, count) in fold.paths.iter().zip(fold.path_counts()).filter(|(_, count)| *count > 0) {
        counts.insert(symbols(path), count);
    }
    let whole = fold.summaries.last().cloned().unwrap_or_default();
    let unbegun = whole.outer.iter().take(whole.closes).filter(|root| root.first.is_own).count() as u64;
    let unfinished = whole.opens.iter().filter(|piece| piece.is_own).map(|piece| symbols(&piece.terminals)).collect();
    Ok(SupergraphPaths { counts, unfinished, unbegun })
}

/// Stands for a frame that the rule itself opened.
const FRAME_OPENED_BY_RULE: u32 = u32::MAX;

/// The summaries of all rules, and the paths that are completed within each rule.
struct SupergraphPathSummaries<'a> {
    grammar: &'a Grammar,
    leaves: Vec<FrameSummary>,
    summaries: Vec<FrameSummary>,
    paths: Vec<Vec<u32>>,
    /// For each rule, the paths that are completed in it, as pairs (frame, path). The frame is given by its distance from the innermost
    /// frame before the rule, or is [`FRAME_OPENED_BY_RULE`].
    complete: Vec<Vec<(u32, u32)>>,
}

impl<'a> SupergraphPathSummaries<'a> {
    fn new(grammar: &'a Grammar, classify: &impl Classify, k: usize) -> SupergraphPathSummaries<'a> {
        let leaves = (0..)
            .zip(classify_terminals(grammar, classify))
            .map(|(terminal, class)| FrameSummary::from_event(terminal, class, k))
            .collect();
        let mut fold = SupergraphPathSummaries { grammar, leaves, summaries: Vec::new(), paths: Vec::new(), complete: Vec::new() };
        let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
        for rule in grammar.rules() {
            let mut summary = fold.empty_summary(rule);
            let mut complete = Vec::new();
            let (leaves, summaries, paths) = (&fold.leaves, &fold.summaries, &mut fold.paths);
            for item in grammar.body(rule) {
                summary.join(summary_of(item, leaves, summaries), &mut |frame, path: SupergraphEventRange| {
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

    /// Returns the summary of an empty part of a rule. It has no frames; only the root rule starts in a frame, which is the thread's own.
    fn empty_summary(&self, rule: RuleId) -> FrameSummary {
        let opens = if rule == self.grammar.root() { vec![SupergraphEventRange::default()] } else { Vec::new() };
        FrameSummary { opens, ..FrameSummary::default() }
    }

    fn path_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.paths.len()];
        let occurrences = self.grammar.rule_occurrences();
        // `frame_counts[rule][frame]`: how many occurrences of the rule begin while this frame is on the call stack.
        let mut frame_counts: Vec<Vec<u64>> = self.summaries.iter().map(|summary| vec![0; summary.outer.len()]).collect();
        for rule in self.grammar.rules().rev() {
            let here = std::mem::take(&mut frame_counts[rule.0 as usize]);
            let times = |frame: u32| if frame == FRAME_OPENED_BY_RULE { occurrences[rule.0 as usize] } else { here[frame as usize] };
            for (frame, path) in &self.complete[rule.0 as usize] {
                counts[*path as usize] += times(*frame);
            }
            let (mut closes, mut opens) = (0, self.empty_summary(rule).opens.len());
            for item in self.grammar.body(rule) {
                let next = summary_of(item, &self.leaves, &self.summaries);
                if let GrammarItem::Rule(child) = item {
                    for (distance, frame_counts) in frame_counts[child.0 as usize].iter_mut().enumerate() {
                        *frame_counts += times(if distance < opens { FRAME_OPENED_BY_RULE } else { (closes + distance - opens) as u32 });
                    }
                }
                closes += next.closes.saturating_sub(opens);
                opens = opens.saturating_sub(next.closes) + next.opens.len();
            }
        }
        counts
    }
}

fn summary_of<'s>(item: GrammarItem, leaves: &'s [FrameSummary], summaries: &'s [FrameSummary]) -> &'s FrameSummary {
    match item {
        GrammarItem::Terminal(terminal) => &leaves[terminal.0 as usize],
        GrammarItem::Rule(child) => &summaries[child.0 as usize],
    }
}

impl FrameSummary {
    /// Returns the summary of a single event. The event is at depth n in the supergraph of the frame that is n frames outside the innermost
    /// one.
    fn from_event(terminal: u32, class: EventClass, k: usize) -> FrameSummary {
        let seen =
            |is_own| RuleEventsInRootFrame { first: SupergraphEventRange { terminals: vec![terminal], is_own }, state: TraceState::Uncut };
        let mut summary = FrameSummary::default();
        match class {
            EventClass::Subpath { end, .. } => {
                let state = if end == SubpathEnd::BackEdge { TraceState::Cut(SupergraphEventRange::default()) } else { TraceState::Uncut };
                summary.outer = (0..=k).map(|distance| RuleEventsInRootFrame { state: state.clone(), ..seen(distance == 0) }).collect();
            }
            EventClass::Enter => {
                summary.outer = (0..k).map(|distance| seen(distance == 0)).collect();
                summary.opens.push(SupergraphEventRange::default());
            }
            EventClass::Leave => {
                summary.closes = 1;
                summary.outer.push(RuleEventsInRootFrame { first: SupergraphEventRange::default(), state: TraceState::Closed });
                summary.outer.extend((1..=k).map(|distance| seen(distance == 1)));
            }
        }
        summary
    }

    /// Appends the summary of the events that follow. Calls `complete` with the frame and events of each path that is completed there.
    fn join(&mut self, next: &FrameSummary, complete: &mut impl FnMut(u32, SupergraphEventRange)) {
        let known = self.opens.len();
        for (distance, trace) in next.outer.iter().enumerate() {
            if distance < known {
                extend_open_path(&mut self.opens[known - 1 - distance], trace, &mut |path| complete(FRAME_OPENED_BY_RULE, path));
                continue;
            }
            let root = self.closes + distance - known;
            if self.outer.len() <= root {
                self.outer.resize_with(root + 1, RuleEventsInRootFrame::default);
            }
            self.outer[root].extend(trace, &mut |path| complete(root as u32, path));
        }
        self.opens.truncate(known.saturating_sub(next.closes));
        self.closes += next.closes.saturating_sub(known);
        self.opens.extend(next.opens.iter().cloned());
    }
}

fn extend_open_path(path: &mut SupergraphEventRange, trace: &RuleEventsInRootFrame, complete: &mut impl FnMut(SupergraphEventRange)) {
    path.extend(&trace.first);
    match &trace.state {
        TraceState::Uncut => {}
        TraceState::Cut(piece) => complete(std::mem::replace(path, piece.clone())),
        TraceState::Closed => complete(std::mem::take(path)),
    }
}

impl RuleEventsInRootFrame {
    fn extend(&mut self, next: &RuleEventsInRootFrame, complete: &mut impl FnMut(SupergraphEventRange)) {
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
            // After a frame was left, it has no events.
            TraceState::Closed => {}
        }
    }
}
