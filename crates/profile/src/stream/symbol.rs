//! Symbols: the events of a stream, in a form that does not depend on earlier events.
//!
//! An [`Event::Resume`] gives the depth of the frame to which control returned, so the number of unwound frames depends on all previous
//! events. The corresponding symbol gives that number instead ([`StreamSymbol::Unwound`]). Therefore a grammar rule has the same effect on
//! the call stack wherever it occurs, and queries about frames can be answered without expanding rules.

use trodden_sequence::grammar::FrameEffect;
use trodden_wire::stream::{Event, TAG_ENTER, TAG_EXIT, TAG_INHERITED, TAG_MASK, TAG_PATH, TAG_RESUME};

/// An event in a stream log. Counters are numbered within the executable or shared library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamSymbol {
    /// A path ended or reached a call, and its frame continues. The value is the path's counter.
    Path(u32),
    /// A path ended, and its frame with it. The value is the path's counter.
    Exit(u32),
    /// A function began. The value is the function's first counter.
    Enter(u32),
    /// Frames were unwound. The value is their number.
    Unwound(u32),
    /// A frame was already active when a `fork` created the process. The value is a counter of the frame's function.
    Inherited(u32),
}

impl StreamSymbol {
    /// Encodes the symbol as a number, which is a terminal of a grammar.
    pub fn to_number(self) -> u64 {
        let (value, tag) = match self {
            StreamSymbol::Path(counter) => (counter, TAG_PATH),
            StreamSymbol::Exit(counter) => (counter, TAG_EXIT),
            StreamSymbol::Enter(counter) => (counter, TAG_ENTER),
            StreamSymbol::Unwound(frames) => (frames, TAG_RESUME),
            StreamSymbol::Inherited(counter) => (counter, TAG_INHERITED),
        };
        u64::from(value) << 3 | u64::from(tag)
    }

    /// Decodes a terminal of a grammar; `None` if the number does not encode a symbol.
    pub fn from_number(number: u64) -> Option<StreamSymbol> {
        let value = u32::try_from(number >> 3).ok()?;
        match number as u32 & TAG_MASK {
            TAG_PATH => Some(StreamSymbol::Path(value)),
            TAG_EXIT => Some(StreamSymbol::Exit(value)),
            TAG_ENTER => Some(StreamSymbol::Enter(value)),
            TAG_RESUME => Some(StreamSymbol::Unwound(value)),
            TAG_INHERITED => Some(StreamSymbol::Inherited(value)),
            _ => None,
        }
    }

    /// Returns the counter that a counting build would have incremented; `None` if no path ended or reached a call.
    pub fn counter_to_increment(self) -> Option<u32> {
        match self {
            StreamSymbol::Path(counter) | StreamSymbol::Exit(counter) => Some(counter),
            StreamSymbol::Enter(_) | StreamSymbol::Unwound(_) | StreamSymbol::Inherited(_) => None,
        }
    }

    /// Returns how many frames the symbol pops from the call stack, and whether it pushes one.
    pub fn frame_effect(self) -> FrameEffect {
        match self {
            StreamSymbol::Path(_) => FrameEffect::default(),
            StreamSymbol::Exit(_) => FrameEffect { closes: 1, opens: false },
            StreamSymbol::Unwound(frames) => FrameEffect { closes: frames.into(), opens: false },
            StreamSymbol::Enter(_) | StreamSymbol::Inherited(_) => FrameEffect { closes: 0, opens: true },
        }
    }
}

/// Depth of a thread's call stack, with which depths in events are converted to numbers of unwound frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStackDepth {
    /// Number of live frames.
    pub frames: u64,
    /// Whether `frames` is the depth to which events refer. False after a gap in the stream.
    pub is_known: bool,
}

impl Default for CallStackDepth {
    /// Returns the depth at the beginning of a stream, before any frame.
    fn default() -> CallStackDepth {
        CallStackDepth { frames: 0, is_known: true }
    }
}

impl CallStackDepth {
    /// Converts the next event to a symbol. Returns `None` for a resumption that unwinds no frames.
    #[inline]
    pub fn next_symbol(&mut self, event: Event) -> Option<StreamSymbol> {
        match event {
            Event::Path(counter) => Some(StreamSymbol::Path(counter)),
            Event::Exit(counter) => {
                self.frames = self.frames.saturating_sub(1);
                Some(StreamSymbol::Exit(counter))
            }
            Event::Enter(counter) => {
                self.frames += 1;
                Some(StreamSymbol::Enter(counter))
            }
            Event::Inherited(counter) => {
                self.frames += 1;
                Some(StreamSymbol::Inherited(counter))
            }
            Event::Resume(depth) => {
                let depth = u64::from(depth);
                let gone = if self.is_known && depth > 0 { self.frames.saturating_sub(depth) } else { 0 };
                self.frames -= gone;
                (gone > 0).then(|| StreamSymbol::Unwound(u32::try_from(gone).unwrap_or(u32::MAX)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_survive_encoding() {
        for value in [0, 1, 7, 1 << 20, u32::MAX >> 3, u32::MAX] {
            for symbol in [StreamSymbol::Path, StreamSymbol::Exit, StreamSymbol::Enter, StreamSymbol::Unwound, StreamSymbol::Inherited]
                .map(|make| make(value))
            {
                assert_eq!(StreamSymbol::from_number(symbol.to_number()), Some(symbol));
            }
        }
        assert_eq!((StreamSymbol::from_number(0), StreamSymbol::from_number(7), StreamSymbol::from_number(u64::MAX)), (None, None, None));
    }

    #[test]
    fn resume_depths_become_numbers_of_unwound_frames() {
        let mut depth = CallStackDepth::default();
        let events = [Event::Inherited(9), Event::Enter(1), Event::Enter(5), Event::Enter(5), Event::Resume(2), Event::Resume(2)];
        let symbols: Vec<_> = events.into_iter().filter_map(|e| depth.next_symbol(e)).collect();
        assert_eq!(symbols[4..], [StreamSymbol::Unwound(2)]);
        assert_eq!(depth.next_symbol(Event::Exit(3)), Some(StreamSymbol::Exit(3)));
        assert_eq!((depth.frames, depth.next_symbol(Event::Resume(0))), (1, None));
        depth.is_known = false;
        assert_eq!(depth.next_symbol(Event::Resume(1)), None);
    }
}
