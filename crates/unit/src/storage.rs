//! Where a function's counts are kept while the program runs: storage classes, part of a [`crate::UnitMap`].

use crate::segment_words::SegmentWords;
use serde::{Deserialize, Serialize};
use trodden_flow::{DagEdge, Edge, Node};

/// Where a function's counts are kept in the memory of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// A word for each path: counter `i` is word `first_counter + i`.
    Array,
    /// An open-addressing table, since there are more paths than words: see [`CountTable`].
    Table(CountTable),
    /// One word for each interesting path, and one for all others together: see [`InterestingWords`].
    Interesting(InterestingWords),
    /// A word for each sum of labels, of a function of which only some paths are counted: see [`LabelWords`].
    Labels(LabelWords),
    /// Words for pairs of a context and the function's first path in it: see [`SegmentWords`].
    Segments(SegmentWords),
    /// In a stream, where the function has more events than paths: see [`EventWords`].
    Events(EventWords),
}

/// Words of the interesting paths. Every other word of the range counts paths that are not, the last one among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterestingWords {
    /// The first of the unit's words that are the function's.
    pub first_word: u64,
    /// How many there are: one at least.
    pub words: u64,
    /// Words, counted from the first, with the numbers of their paths; ascending.
    pub paths: Vec<(u64, u64)>,
    /// Other paths that these words count, too.
    pub aliases: StorageAliases,
    /// Whether it was proven that these words count these paths, not only tried on some.
    pub proven: bool,
}

/// Paths that are counted as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageAliases {
    /// So many of the function's paths.
    Exactly(u64),
    /// So many of those that were tried.
    Drawn {
        /// Paths counted as others.
        aliases: u64,
        /// Paths tried.
        of: u64,
    },
}

impl StorageAliases {
    /// Whether none was found.
    pub fn is_none(self) -> bool {
        matches!(self, StorageAliases::Exactly(0) | StorageAliases::Drawn { aliases: 0, .. })
    }
}

impl InterestingWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// The word that counts other paths.
    pub fn others(&self) -> u64 {
        self.range().end.saturating_sub(1)
    }
}

/// Words of counts by sums of labels. The function's `dag` has the edges of the paths that are counted here and no
/// others; each of its paths is counted in the word whose number is the sum of the labels on its edges. Words of other
/// sums hold executions of paths that are counted elsewhere, or nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelWords {
    /// The unit's word of the sum 0.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// Behind them lie two more, for executions of labels and of all probes ([`LabelWords::hits`]).
    pub with_hits: bool,
    /// A label for each edge of the function's `dag`.
    pub labels: Vec<i64>,
}

impl LabelWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        let hits = if self.with_hits { HIT_WORDS } else { 0 };
        self.first_word..self.first_word.saturating_add(self.words).saturating_add(hits)
    }

    /// The word of executions of labels; behind it that of executions of all probes.
    pub fn hits(&self) -> Option<u64> {
        self.with_hits.then(|| self.first_word.saturating_add(self.words))
    }
}

/// Words for hits of probes.
const HIT_WORDS: u64 = 2;

/// A table of counts: the word for executions that found it full, then `slots` cells of two words, key (a path's number and 1; 0: free) and
/// count. A key is never changed; which cell it is in depends on what was counted before, so tables cannot be added cell by cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountTable {
    /// The unit's word that counts lost executions; the cells lie behind it.
    pub first_word: u64,
    /// Number of cells.
    pub slots: u64,
}

impl CountTable {
    /// Words of a table with so many slots.
    pub const fn words(slots: u64) -> u64 {
        1 + 2 * slots
    }

    /// The words of its cells, as a range.
    pub fn cells(&self) -> std::ops::Range<u64> {
        self.first_word.saturating_add(1)..self.first_word.saturating_add(self.slots.saturating_mul(2).saturating_add(1))
    }
}

/// The words of a function of a stream build: one for each path of the graph of its events. No memory is behind them; their addresses are
/// what the program writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventWords {
    /// The unit's word of the first path.
    pub first_word: u64,
    /// Number of words.
    pub words: u64,
    /// The edges that the graph of the events has besides, by their numbers there, each with the block whose call it stands for; ascending.
    pub calls: Vec<(Edge, Node)>,
    /// Blocks with such a call behind which the block's code may not be executed: what is [`up_to_calls`](crate::UnitBlock::up_to_calls) of
    /// them there.
    pub up_to_calls: Vec<(Node, u32)>,
    /// The acyclic graph of the events' paths.
    pub dag: Vec<DagEdge>,
    /// For each edge of it its value.
    pub values: Vec<i64>,
}

impl EventWords {
    /// All its words, as a range.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.first_word..self.first_word.saturating_add(self.words)
    }

    /// Whether an edge of the graph of the events is none of the function's.
    pub fn is_call(&self, edge: Edge) -> bool {
        self.calls.binary_search_by_key(&edge, |call| call.0).is_ok()
    }

    /// The function's edge that is this one of the graph of the events; `None` if the function has no such edge.
    pub fn own_edge(&self, edge: Edge) -> Option<Edge> {
        let before = self.calls.partition_point(|call| call.0 < edge);
        (!self.is_call(edge)).then(|| Edge(edge.0 - before as u32))
    }

    /// The edge of the graph of the events that is this one of the function's.
    pub fn edge_of_events(&self, own: Edge) -> Edge {
        self.calls.iter().fold(own, |edge, call| if call.0 <= edge { Edge(edge.0 + 1) } else { edge })
    }
}
