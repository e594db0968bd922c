//! Symbols: the events of a stream in a form whose meaning does not depend on the context.
//!
//! A thread's events give the depth of the frame to which control returned ([`Event::Resume`]), so the number of frames that were unwound
//! depends on everything before. A symbol has that number instead ([`Symbol::Unwound`]). A grammar rule thus does the same to the stack of
//! frames wherever it occurs, and questions about frames can be answered on rules.

use trodden_sequence::grammar::FrameEffect;
use trodden_wire::stream::{Event, TAG_ENTER, TAG_EXIT, TAG_INHERITED, TAG_MASK, TAG_PATH, TAG_RESUME};

/// An event in a stream log. Counters are those of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// A path ended or reached a call, and its frame continues.
    Path(u32),
    /// A path ended, and its frame with it.
    Exit(u32),
    /// A function began; its first counter.
    Enter(u32),
    /// Number of frames that were unwound.
    Unwound(u32),
    /// A live frame of the process that forked; a counter of its function.
    Inherited(u32),
}

impl Symbol {
    /// Encodes it as a symbol of a grammar.
    pub fn to_number(self) -> u64 {
        let (value, tag) = match self {
            Symbol::Path(counter) => (counter, TAG_PATH),
            Symbol::Exit(counter) => (counter, TAG_EXIT),
            Symbol::Enter(counter) => (counter, TAG_ENTER),
            Symbol::Unwound(frames) => (frames, TAG_RESUME),
            Symbol::Inherited(counter) => (counter, TAG_INHERITED),
        };
        u64::from(value) << 3 | u64::from(tag)
    }

    /// Decodes a number; `None` if it stands for no symbol.
    pub fn from_number(number: u64) -> Option<Symbol> {
        let value = u32::try_from(number >> 3).ok()?;
        match number as u32 & TAG_MASK {
            TAG_PATH => Some(Symbol::Path(value)),
            TAG_EXIT => Some(Symbol::Exit(value)),
            TAG_ENTER => Some(Symbol::Enter(value)),
            TAG_RESUME => Some(Symbol::Unwound(value)),
            TAG_INHERITED => Some(Symbol::Inherited(value)),
            _ => None,
        }
    }

    /// Returns the path counter that a counting build would have incremented.
    pub fn counted(self) -> Option<u32> {
        match self {
            Symbol::Path(counter) | Symbol::Exit(counter) => Some(counter),
            Symbol::Enter(_) | Symbol::Unwound(_) | Symbol::Inherited(_) => None,
        }
    }

    /// Its effect on the stack of frames.
    pub fn effect(self) -> FrameEffect {
        match self {
            Symbol::Path(_) => FrameEffect::default(),
            Symbol::Exit(_) => FrameEffect { closes: 1, opens: false },
            Symbol::Unwound(frames) => FrameEffect { closes: frames.into(), opens: false },
            Symbol::Enter(_) | Symbol::Inherited(_) => FrameEffect { closes: 0, opens: true },
        }
    }
}

/// Tracks the number of a thread's live frames, to turn depths into numbers of unwound frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Number of live frames.
    pub frames: u64,
    /// Whether the depths in events count the same frames; false after a gap in the stream.
    pub is_known: bool,
}

impl Default for Depth {
    /// The beginning of a stream.
    fn default() -> Depth {
        Depth { frames: 0, is_known: true }
    }
}

impl Depth {
    /// Converts the next event; `None` if it has no effect.
    #[inline]
    pub fn symbol(&mut self, event: Event) -> Option<Symbol> {
        match event {
            Event::Path(counter) => Some(Symbol::Path(counter)),
            Event::Exit(counter) => {
                self.frames = self.frames.saturating_sub(1);
                Some(Symbol::Exit(counter))
            }
            Event::Enter(counter) => {
                self.frames += 1;
                Some(Symbol::Enter(counter))
            }
            Event::Inherited(counter) => {
                self.frames += 1;
                Some(Symbol::Inherited(counter))
            }
            Event::Resume(depth) => {
                let depth = u64::from(depth);
                let gone = if self.is_known && depth > 0 { self.frames.saturating_sub(depth) } else { 0 };
                self.frames -= gone;
                (gone > 0).then(|| Symbol::Unwound(u32::try_from(gone).unwrap_or(u32::MAX)))
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
            for symbol in [Symbol::Path, Symbol::Exit, Symbol::Enter, Symbol::Unwound, Symbol::Inherited].map(|make| make(value)) {
                assert_eq!(Symbol::from_number(symbol.to_number()), Some(symbol));
            }
        }
        assert_eq!((Symbol::from_number(0), Symbol::from_number(7), Symbol::from_number(u64::MAX)), (None, None, None));
    }

    #[test]
    fn resume_depths_become_numbers_of_unwound_frames() {
        let mut depth = Depth::default();
        let events = [Event::Inherited(9), Event::Enter(1), Event::Enter(5), Event::Enter(5), Event::Resume(2), Event::Resume(2)];
        let symbols: Vec<_> = events.into_iter().filter_map(|e| depth.symbol(e)).collect();
        assert_eq!(symbols[4..], [Symbol::Unwound(2)]);
        assert_eq!(depth.symbol(Event::Exit(3)), Some(Symbol::Exit(3)));
        assert_eq!((depth.frames, depth.symbol(Event::Resume(0))), (1, None));
        depth.is_known = false;
        assert_eq!(depth.symbol(Event::Resume(1)), None);
    }
}
