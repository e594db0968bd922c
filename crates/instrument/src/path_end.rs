//! What the emitted code does at the end of a path: one variant for each way of counting or recording, chosen by the kind of observation
//! ([`crate::observe`]). [`crate::probes`] emits the code; counts that need new blocks are emitted later by [`crate::counting`].

use crate::events::EventActivation;
use crate::interesting::InterestingPathCode;
use crate::iterations::IterationCode;
use crate::llvm::Value;
use crate::segments::SegmentCode;
use crate::stream::StreamCode;
use trodden_unit::CountTable;

#[derive(Clone, Copy)]
pub enum PathEndAction<'a> {
    /// Increment the path's word in an array of counters.
    Word,
    /// Find the path's cell in a hash table and increment it.
    Table(CountTable),
    /// Increment the path's count in an array, and add the hardware events since the path's start to its sums.
    Sums(EventActivation),
    /// Increment the word of an interesting path, or the word that all other paths share. If events are summed, add them too.
    Interesting(InterestingPathCode<'a>, Option<EventActivation>),
    Unknown(UnknownPathCode<'a>),
    Stream(StreamCode),
    /// Compute the context for the next callees, and count the segment that ends here.
    Segment(SegmentCode<'a>),
    /// Count the path together with the preceding ones, and remember it as the most recent one.
    Iterations(IterationCode<'a>),
    /// Increment the path's word in an array of counters. If executions of probes are counted, the number is the index of the first of the
    /// two words in which that happens.
    Part(Option<u64>),
}

impl PathEndAction<'_> {
    /// Returns true if the count of a frequent path may be emitted separately, because it is a plain addition to a word.
    pub fn may_count_separately(&self) -> bool {
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
    /// The runtime function that counts a path's first execution.
    pub count: Value,
    /// The thread-local variable with the distance from the image's counters to the thread's copy.
    pub bias: Value,
    /// Address of the thread's copy of the counters, if the function computes it once for all its counts.
    pub thread_base: Option<Value>,
    /// How to recognise known paths; `None` if there are none, so that all paths are counted.
    pub known: Option<KnownTest<'a>>,
}

#[derive(Clone, Copy)]
pub enum KnownTest<'a> {
    /// A table with one byte per path number: 1 if the path is known.
    Bytes(Value),
    /// The counter words for the known paths: a path is known if it has a word of its own. The mask extracts the path number from the path
    /// register.
    Words(InterestingPathCode<'a>, u64),
}
