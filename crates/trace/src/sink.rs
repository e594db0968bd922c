//! What collectors share: where what is seen goes, of which thread, and whether the collection goes on.

use serde::{Deserialize, Serialize};
use std::io;

/// A thread of the subject, by the order in which they were made; the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadNumber(pub u32);

/// Whether a collection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFlow {
    /// It goes on.
    GoOn,
    /// It ends here; the subject runs on without it.
    Enough,
}

/// Stands for the target of a jump or call that faulted: it leads nowhere.
pub const NOWHERE: u64 = u64::MAX;

/// Set in the address of a step whose instruction is a jump, a call or a return, by its bytes in memory at that moment.
pub const TRANSFER: u64 = 1 << 63;

/// Set in the address of a step at which a handler of a signal, or another system call, has brought the thread back.
pub const RESUMED: u64 = 1 << 62;

/// Where what is seen goes.
pub trait Sink {
    /// A thread has come to a site or an instruction: of breakpoints the site's number, of steps the address in the file, with
    /// [`TRANSFER`] and [`RESUMED`].
    ///
    /// # Errors
    /// It cannot be stored.
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow>;

    /// A thread has come to many sites, one after the other.
    ///
    /// # Errors
    /// They cannot be stored.
    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        for site in sites {
            if self.record(thread, u64::from(*site))? == SinkFlow::Enough {
                return Ok(SinkFlow::Enough);
            }
        }
        Ok(SinkFlow::GoOn)
    }
}

/// What a signal stop was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The watch's own.
    Recorded(SinkFlow),
    /// The program's own signal.
    Foreign,
}

/// A sink whose first error ends the collection at the next place where that is possible: what was begun for a stopped thread is completed.
pub struct FallibleSink<'a> {
    /// Where what is seen goes.
    pub sink: &'a mut dyn Sink,
    /// The first error.
    pub error: Option<io::Error>,
}

impl FallibleSink<'_> {
    fn or_enough(&mut self, record: impl FnOnce(&mut dyn Sink) -> io::Result<SinkFlow>) -> io::Result<SinkFlow> {
        if self.error.is_none() {
            match record(self.sink) {
                Ok(flow) => return Ok(flow),
                Err(error) => self.error = Some(error),
            }
        }
        Ok(SinkFlow::Enough)
    }
}

impl Sink for FallibleSink<'_> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.or_enough(|sink| sink.record(thread, what))
    }

    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        self.or_enough(|sink| sink.record_sites(thread, sites))
    }
}
