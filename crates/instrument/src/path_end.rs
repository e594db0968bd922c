//! What is done where a path ends: one variant for each way of counting. Kinds of observation choose it ([`crate::observe`]), and the code
//! is made by [`crate::probes`], or later by [`crate::counting`] where it needs blocks of its own.

use crate::events::BegunEvents;
use crate::interesting::Words;
use crate::llvm::Value;
use crate::segments::SegmentCode;
use crate::stream::StreamCode;
use trodden_unit::CountTable;

/// What is done where a path ends.
#[derive(Clone, Copy)]
pub enum PathEnd<'a> {
    /// Its word in an array is incremented.
    Word,
    /// Its cell in a table is incremented, which is looked for.
    Table(CountTable),
    /// Events are charged to its cells in an array, and its count is incremented.
    Sums(BegunEvents),
    /// The word of an interesting path, or that of all others, is incremented; events are charged to it, if any are summed up.
    Interesting(Words<'a>, Option<BegunEvents>),
    /// It is counted if it is unknown.
    Unknown(Unknown<'a>),
    /// It is appended to a stream.
    Stream(StreamCode),
    /// The context that it is for callees is passed on, and the segment that ends with it is counted.
    Segment(SegmentCode<'a>),
    /// Its word in an array is incremented; the unit's first of two words in which hits of probes are counted, if they are.
    Part(Option<u64>),
}

impl PathEnd<'_> {
    /// Whether a path that is counted often may have code of its own: where that is an addition to a word.
    pub fn may_count_split(&self) -> bool {
        !matches!(self, PathEnd::Table(_) | PathEnd::Sums(_) | PathEnd::Interesting(..))
    }

    /// Whether events are charged to paths.
    pub fn has_events(&self) -> bool {
        matches!(self, PathEnd::Sums(_) | PathEnd::Interesting(_, Some(_)))
    }

    /// The stream to which it is appended.
    pub fn stream(&self) -> StreamCode {
        match self {
            PathEnd::Stream(stream) => *stream,
            _ => unreachable!("a program that appends paths is of a stream build"),
        }
    }
}

/// What it takes to count unknown paths only.
#[derive(Clone, Copy)]
pub struct Unknown<'a> {
    /// The runtime's function that counts, in whatever region is the thread's.
    pub count: Value,
    /// The thread-local bias by which is counted here.
    pub bias: Value,
    /// Address of the counters by that bias, where it is computed once for all of the function's counts.
    pub copies: Option<Value>,
    /// How a path is looked up. None where no path is known: all are counted then.
    pub known: Option<KnownTest<'a>>,
}

/// How it is found whether a path is known.
#[derive(Clone, Copy)]
pub enum KnownTest<'a> {
    /// A byte for each of the function's paths, by its number: 1 for those that are known.
    Bytes(Value),
    /// Known paths have words of their own. The bits of the sum that are the path's number.
    Words(Words<'a>, u64),
}
