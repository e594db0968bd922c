//! Windows: a long sequence as several grammars, each closed before it takes more memory than allowed.
//!
//! Invariant: the windows' sequences, one after another, are the sequence that was pushed. A window is closed when it has
//! [`WindowLimits::symbols`] symbols, or when its compressor holds [`WindowLimits::held`] things. So memory is bounded by the limits
//! whatever the sequence is, and a sequence that compresses well has few windows.

use super::Compressor;
use crate::grammar::Window;
use crate::{CompressionMethod, SequenceError};

/// When a window is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// The most symbols of a window.
    pub symbols: u64,
    /// The most things that a compressor holds ([`Compressor::held`]).
    pub held: usize,
}

/// The most things that a window may be allowed to hold.
const MOST_HELD: usize = 1 << 28;

impl Default for WindowLimits {
    /// Windows of at most 2^32 symbols and about 100 MB.
    fn default() -> Self {
        WindowLimits { symbols: 1 << 32, held: 1 << 20 }
    }
}

/// Compresses a sequence of any length, window by window.
pub struct WindowWriter {
    method: CompressionMethod,
    limits: WindowLimits,
    compressor: Box<dyn Compressor + Send>,
    /// Position of the open window's first symbol.
    first: u64,
    /// Symbols of the open window.
    symbols: u64,
}

impl WindowWriter {
    /// A writer that has read nothing.
    ///
    /// # Errors
    /// A limit is zero or too large.
    pub fn new(method: CompressionMethod, limits: WindowLimits) -> Result<WindowWriter, SequenceError> {
        if limits.symbols == 0 {
            return Err(SequenceError::parameter("symbols of a window", limits.symbols, "at least 1"));
        }
        if limits.held == 0 || limits.held > MOST_HELD {
            return Err(SequenceError::parameter("things held by a window", limits.held, "1 to 2^28"));
        }
        Ok(WindowWriter { method, limits, compressor: method.compressor(), first: 0, symbols: 0 })
    }

    /// Appends a symbol; gives the window that it fills.
    ///
    /// # Errors
    /// The window's grammar is too large, which the limits prevent.
    pub fn push(&mut self, symbol: u64) -> Result<Option<Window>, SequenceError> {
        self.compressor.push(symbol);
        self.symbols += 1;
        if self.symbols < self.limits.symbols && self.compressor.held() < self.limits.held {
            return Ok(None);
        }
        self.close()
    }

    /// Closes the open window, if it has a symbol. Another begins.
    ///
    /// # Errors
    /// The window's grammar is too large, which the limits prevent.
    pub fn close(&mut self) -> Result<Option<Window>, SequenceError> {
        if self.symbols == 0 {
            return Ok(None);
        }
        let compressor = std::mem::replace(&mut self.compressor, self.method.compressor());
        let window = Window { first: self.first, method: self.method, grammar: compressor.close()? };
        self.first += self.symbols;
        self.symbols = 0;
        Ok(Some(window))
    }

    /// Position of the next symbol: symbols that were pushed.
    pub fn position(&self) -> u64 {
        self.first + self.symbols
    }
}
