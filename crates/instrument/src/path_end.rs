//! The actions at the end of a path, one variant per way of counting, chosen by the kind of observation ([`crate::observe`]).
//! [`crate::probes`] emits the code; code that needs new blocks is emitted later by [`crate::counting`].

use crate::events::EventActivation;
use crate::interesting::Words;
use crate::iterations::IterationCode;
use crate::llvm::Value;
use crate::segments::SegmentCode;
use crate::stream::StreamCode;
use trodden_unit::CountTable;

#[derive(Clone, Copy)]
pub enum PathEndAction<'a> {
    /// Increment the path's word in an array.
    Word,
    /// Find the path's cell in a table and increment it.
    Table(CountTable),
    /// Increment the path's count in an array, and add the events since the path's start to its cells.
    Sums(EventActivation),
    /// Increment the word of an interesting path, or the word that all other paths share, and add the events if events are summed.
    Interesting(Words<'a>, Option<EventActivation>),
    Unknown(UnknownPathCode<'a>),
    Stream(StreamCode),
    /// Pass the context on to callees, and count the segment that ends here.
    Segment(SegmentCode<'a>),
    /// Count the path with the previous ones, and make it the most recent one.
    Iterations(IterationCode<'a>),
    /// Increment the path's word in an array. The number is the index of the first of the unit's two words that count executions of probes,
    /// if these are counted.
    Part(Option<u64>),
}

impl PathEndAction<'_> {
    /// Returns true if a path that is counted often may have its own code, because counting is a plain addition to a word.
    pub fn may_count_split(&self) -> bool {
        !matches!(self, PathEndAction::Table(_) | PathEndAction::Sums(_) | PathEndAction::Interesting(..))
    }

    pub fn has_events(&self) -> bool {
        matches!(self, PathEndAction::Sums(_) | PathEndAction::Interesting(_, Some(_)))
    }

    pub fn stream(&self) -> StreamCode {
        match self {
            PathEndAction::Stream(stream) => *stream,
            _ => unreachable!("a program that appends paths is of a stream build"),
        }
    }
}

#[derive(Clone, Copy)]
pub struct UnknownPathCode<'a> {
    /// The runtime's function that counts in the thread's current region.
    pub count: Value,
    /// The thread-local bias of these counts.
    pub bias: Value,
    /// Address of the counters with that bias, if the function computes it once for all of its counts.
    pub thread_base: Option<Value>,
    /// The test for known paths. `None` if no path is known, so all paths are counted.
    pub known: Option<KnownTest<'a>>,
}

#[derive(Clone, Copy)]
pub enum KnownTest<'a> {
    /// One byte for each of the function's paths, by path number: 1 if known.
    Bytes(Value),
    /// Each known path has its own word, and no other path has one. The mask selects the path number from the path register.
    Words(Words<'a>, u64),
}
