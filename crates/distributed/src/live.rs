//! Hits on their way to the trace while they are recorded, so that little is left to do when the recording ends.
//!
//! Invariant: a recording waits where it is more than a bounded number of hits ahead. What is left at its end is as little after an hour
//! as after a second.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use trodden_trace::{Sink, SinkFlow, ThreadNumber};

/// Hits that are handed over at a time, but for a thread's last ones.
const PIECE: usize = 1 << 16;
/// Pieces that wait.
const MAX_WAITING: usize = 16;

/// Hits of a thread, piece by piece; those of a thread are in order.
pub type LiveHits = Receiver<(ThreadNumber, Vec<u64>)>;

/// Stores hits, and hands them over.
pub struct LiveSink<S> {
    /// Where they are stored.
    pub sink: S,
    sender: SyncSender<(ThreadNumber, Vec<u64>)>,
    pieces: Vec<Vec<u64>>,
}

/// A sink for what is stored in another one, and where its hits come out.
pub fn live<S: Sink>(sink: S) -> (LiveSink<S>, LiveHits) {
    let (sender, receiver) = sync_channel(MAX_WAITING);
    (LiveSink { sink, sender, pieces: Vec::new() }, receiver)
}

impl<S: Sink> LiveSink<S> {
    /// Hands over what is left.
    ///
    /// # Errors
    /// The receiver is gone.
    pub fn finish(mut self) -> io::Result<S> {
        (0..self.pieces.len()).try_for_each(|thread| self.hand_over(thread))?;
        Ok(self.sink)
    }

    fn piece(&mut self, thread: ThreadNumber) -> &mut Vec<u64> {
        let number = thread.0 as usize;
        if self.pieces.len() <= number {
            self.pieces.resize_with(number + 1, Vec::new);
        }
        &mut self.pieces[number]
    }

    fn hand_over(&mut self, thread: usize) -> io::Result<()> {
        let piece = std::mem::take(&mut self.pieces[thread]);
        // Who takes them has an error then, which says more.
        self.sender.send((ThreadNumber(thread as u32), piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    fn hand_over_if_full(&mut self, thread: ThreadNumber) -> io::Result<()> {
        if self.piece(thread).len() < PIECE { Ok(()) } else { self.hand_over(thread.0 as usize) }
    }
}

impl<S: Sink> Sink for LiveSink<S> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.piece(thread).push(what);
        self.hand_over_if_full(thread)?;
        self.sink.record(thread, what)
    }

    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        for sites in sites.chunks(PIECE) {
            self.piece(thread).extend(sites.iter().map(|site| u64::from(*site)));
            self.hand_over_if_full(thread)?;
            if self.sink.record_sites(thread, sites)? == SinkFlow::Enough {
                return Ok(SinkFlow::Enough);
            }
        }
        Ok(SinkFlow::GoOn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Nothing;

    impl Sink for Nothing {
        fn record(&mut self, _: ThreadNumber, _: u64) -> io::Result<SinkFlow> {
            Ok(SinkFlow::GoOn)
        }
    }

    #[test]
    fn little_is_left_when_a_recording_ends() {
        const ALL: usize = 80 * PIECE;
        let (mut sink, hits) = live(Nothing);
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let mut all = Vec::new();
                for (_, piece) in hits {
                    taken.fetch_add(piece.len(), Ordering::SeqCst);
                    all.extend(piece);
                }
                all
            });
            let sites: Vec<u32> = (0..PIECE as u32).collect();
            for recorded in (1..).map(|n| n * PIECE).take_while(|recorded| *recorded <= ALL) {
                sink.record_sites(ThreadNumber(0), &sites).unwrap();
                // One more is in the taker's hands.
                assert!(recorded - taken.load(Ordering::SeqCst) <= (MAX_WAITING + 1) * PIECE);
            }
            sink.record(ThreadNumber(0), 7).unwrap();
            sink.finish().unwrap_or_else(|_| panic!("it is taken"));
            let all = taker.join().unwrap();
            assert_eq!((all.len(), all.last()), (ALL + 1, Some(&7)));
            assert!(all[..ALL].iter().zip((0..PIECE as u64).cycle()).all(|(a, b)| *a == b));
        });
    }

    #[test]
    fn a_recording_ends_when_the_receiver_of_its_hits_is_gone() {
        let (mut sink, hits) = live(Nothing);
        drop(hits);
        assert!(sink.record_sites(ThreadNumber(0), &vec![1; PIECE]).is_err());
    }
}
