//! Forwards recorded block executions (*hits*) to a receiver while a program is still running, so that the trace is almost complete when
//! the program ends.
//!
//! Invariant: the recording blocks when it is a fixed number of hits ahead of the receiver. The work that remains at the end therefore does
//! not grow with the length of the recording.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use trodden_trace::{OrderStamp, Sink, SinkFlow, Symbols, ThreadNumber};

/// Number of hits in a chunk. Only the last chunk of a thread may be shorter.
const HITS_PER_CHUNK: usize = 1 << 16;
const MAX_QUEUED_CHUNKS: usize = 8;

/// Consecutive hits of one thread, with the order stamps between them.
#[derive(Debug, Default)]
pub struct HitChunk {
    /// The hits.
    pub symbols: Symbols,
    /// The stamps in order, each with the number of hits of the chunk before it.
    pub stamps: Vec<(usize, OrderStamp)>,
}

/// The receiving end: chunks of hits, which are in order within each thread.
pub struct LiveHits {
    chunks: Receiver<(ThreadNumber, HitChunk)>,
    /// Sends used chunks back to be filled again, because newly allocated memory costs page faults.
    used: Sender<HitChunk>,
}

impl LiveHits {
    /// Passes each chunk to `process` until the recording ends or `process` returns an error.
    pub fn try_for_each<E>(self, mut process: impl FnMut(ThreadNumber, &HitChunk) -> Result<(), E>) -> Result<(), E> {
        for (thread, mut chunk) in self.chunks {
            process(thread, &chunk)?;
            chunk.symbols.clear();
            chunk.stamps.clear();
            // Sending fails only if the recording has ended, and then the chunk is no longer needed.
            let _ = self.used.send(chunk);
        }
        Ok(())
    }
}

/// A sink that stores hits in another sink and also sends them to a receiver.
pub struct LiveSink<S> {
    /// The sink that stores the hits.
    pub sink: S,
    sender: SyncSender<(ThreadNumber, HitChunk)>,
    chunks_by_thread: Vec<HitChunk>,
    used: Receiver<HitChunk>,
}

/// Creates a [`LiveSink`] around `sink`, and the receiver of its hits.
pub fn create_live_sink<S: Sink>(sink: S) -> (LiveSink<S>, LiveHits) {
    let ((sender, chunks), (used, unused)) = (sync_channel(MAX_QUEUED_CHUNKS), channel());
    (LiveSink { sink, sender, chunks_by_thread: Vec::new(), used: unused }, LiveHits { chunks, used })
}

impl<S: Sink> LiveSink<S> {
    /// Sends the remaining hits and returns the inner sink.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub fn finish(mut self) -> io::Result<S> {
        (0..self.chunks_by_thread.len()).try_for_each(|thread| self.send_chunk(thread))?;
        Ok(self.sink)
    }

    fn chunk_of_thread(&mut self, thread: ThreadNumber) -> &mut HitChunk {
        let number = thread.0 as usize;
        if self.chunks_by_thread.len() <= number {
            self.chunks_by_thread.resize_with(number + 1, HitChunk::default);
        }
        &mut self.chunks_by_thread[number]
    }

    fn send_chunk(&mut self, thread: usize) -> io::Result<()> {
        let next = self.used.try_recv().unwrap_or_default();
        let chunk = std::mem::replace(&mut self.chunks_by_thread[thread], next);
        // The receiver reports its own error, which is more specific than this one.
        self.sender.send((ThreadNumber(thread as u32), chunk)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    fn send_if_full(&mut self, thread: ThreadNumber) -> io::Result<()> {
        if self.chunk_of_thread(thread).symbols.len() < HITS_PER_CHUNK { Ok(()) } else { self.send_chunk(thread.0 as usize) }
    }
}

impl<S: Sink> Sink for LiveSink<S> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.chunk_of_thread(thread).symbols.push(what);
        self.send_if_full(thread)?;
        self.sink.record(thread, what)
    }

    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        for sites in sites.chunks(HITS_PER_CHUNK) {
            self.chunk_of_thread(thread).symbols.extend(sites);
            self.send_if_full(thread)?;
            if self.sink.record_sites(thread, sites)? == SinkFlow::Stop {
                return Ok(SinkFlow::Stop);
            }
        }
        Ok(SinkFlow::Continue)
    }

    fn record_stamp(&mut self, thread: ThreadNumber, stamp: OrderStamp) {
        let chunk = self.chunk_of_thread(thread);
        chunk.stamps.push((chunk.symbols.len(), stamp));
        self.sink.record_stamp(thread, stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct DiscardingSink;

    impl Sink for DiscardingSink {
        fn record(&mut self, _: ThreadNumber, _: u64) -> io::Result<SinkFlow> {
            Ok(SinkFlow::Continue)
        }
    }

    #[test]
    fn sender_is_never_far_ahead_of_receiver() {
        const TOTAL_HITS: usize = 80 * HITS_PER_CHUNK;
        let (mut sink, hits) = create_live_sink(DiscardingSink);
        let taken = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut all = Vec::new();
                let received = hits.try_for_each(|_, chunk| {
                    taken.fetch_add(chunk.symbols.len(), Ordering::SeqCst);
                    all.extend(chunk.symbols.iter());
                    Ok::<(), ()>(())
                });
                assert!(received.is_ok());
                all
            });
            let sites: Vec<u32> = (0..HITS_PER_CHUNK as u32).collect();
            for recorded in (1..).map(|n| n * HITS_PER_CHUNK).take_while(|recorded| *recorded <= TOTAL_HITS) {
                sink.record_sites(ThreadNumber(0), &sites).unwrap();
                // Besides the queued chunks, the receiver holds one.
                assert!(recorded - taken.load(Ordering::SeqCst) <= (MAX_QUEUED_CHUNKS + 1) * HITS_PER_CHUNK);
            }
            sink.record(ThreadNumber(0), 7).unwrap();
            sink.finish().unwrap_or_else(|_| panic!("the receiver exists"));
            let all = receiving.join().unwrap();
            assert_eq!((all.len(), all.last()), (TOTAL_HITS + 1, Some(&7)));
            assert!(all[..TOTAL_HITS].iter().zip((0..HITS_PER_CHUNK as u64).cycle()).all(|(a, b)| *a == b));
        });
    }

    #[test]
    fn recording_fails_once_receiver_is_dropped() {
        let (mut sink, hits) = create_live_sink(DiscardingSink);
        drop(hits);
        assert!(sink.record_sites(ThreadNumber(0), &vec![1; HITS_PER_CHUNK]).is_err());
    }
}
