//! Sinks, the consumers of the hits (executions of watched addresses) that collectors record.

use serde::{Deserialize, Serialize};
use std::io;

/// A thread of the traced program. Threads are numbered from 0 in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadNumber(pub u32);

/// Whether a collection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFlow {
    /// The collection continues.
    Continue,
    /// The collection ends, and the program continues untraced.
    Stop,
}

/// Value that is recorded instead of the target of a jump or call that faulted.
pub const NO_ADDRESS: u64 = u64::MAX;

/// Bit that is set in a single-stepped address if the instruction found there at that moment is a jump, a call or a return.
pub const TRANSFER_FLAG: u64 = 1 << 63;

/// Bit that is set in a single-stepped address if the thread reached it through a system call, such as the return from a signal handler.
pub const RESUMED_FLAG: u64 = 1 << 62;

/// A reading of the time-stamp counter, in the sequence of a thread's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStamp {
    /// The time-stamp counter. All processors of a machine count together.
    pub ticks: u64,
    /// Where the stamp is, relative to the last block before it.
    pub position: StampPosition,
}

/// The place of a stamp, relative to the last block before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampPosition {
    /// At the start of the block.
    BlockStart,
    /// After the start of the block.
    InBlock,
}

/// A consumer of recorded hits.
pub trait Sink {
    /// Takes one hit of a thread. `what` is a site's number, or, when single-stepping, a file address with the bits [`TRANSFER_FLAG`] and
    /// [`RESUMED_FLAG`].
    ///
    /// # Errors
    /// The hit cannot be stored.
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow>;

    /// Takes the hits of one thread at several sites, in order.
    ///
    /// # Errors
    /// The hits cannot be stored.
    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        for site in sites {
            if self.record(thread, u64::from(*site))? == SinkFlow::Stop {
                return Ok(SinkFlow::Stop);
            }
        }
        Ok(SinkFlow::Continue)
    }

    /// Takes an order stamp, which lies between the hits before and after this call. By default, stamps are dropped.
    fn record_stamp(&mut self, _thread: ThreadNumber, _stamp: OrderStamp) {}
}

/// The meaning of a signal stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapOutcome {
    /// A watched site or a step caused the stop.
    Recorded(SinkFlow),
    /// The program's own signal caused the stop.
    Foreign,
}

/// A sink that keeps its first error and from then on asks for the collection to end, so that the tracer can finish what it has begun
/// with a stopped thread.
pub struct FallibleSink<'a> {
    /// The wrapped sink.
    pub sink: &'a mut dyn Sink,
    /// The first error.
    pub error: Option<io::Error>,
}

impl FallibleSink<'_> {
    fn record_unless_failed(&mut self, record: impl FnOnce(&mut dyn Sink) -> io::Result<SinkFlow>) -> io::Result<SinkFlow> {
        if self.error.is_none() {
            match record(self.sink) {
                Ok(flow) => return Ok(flow),
                Err(error) => self.error = Some(error),
            }
        }
        Ok(SinkFlow::Stop)
    }
}

impl Sink for FallibleSink<'_> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.record_unless_failed(|sink| sink.record(thread, what))
    }

    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        self.record_unless_failed(|sink| sink.record_sites(thread, sites))
    }

    fn record_stamp(&mut self, thread: ThreadNumber, stamp: OrderStamp) {
        self.sink.record_stamp(thread, stamp);
    }
}
