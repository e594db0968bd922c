//! Windows, which divide a long sequence among several grammars so that memory is bounded.
//!
//! A window is closed after [`WindowLimits::max_symbols`] symbols, or when its compressor holds [`WindowLimits::max_held`] items. A
//! sequence that compresses well therefore has few windows. The concatenation of all windows is the sequence.

use super::Compressor;
use crate::grammar::Window;
use crate::{CompressionMethod, SequenceError};

/// The limits at which a window is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Maximum number of symbols.
    pub max_symbols: u64,
    /// Maximum number of items in the compressor's memory ([`Compressor::item_count_in_memory`]).
    pub max_held: usize,
}

const MAX_WINDOW_ITEMS: usize = 1 << 28;

impl Default for WindowLimits {
    /// Returns limits of 2^32 symbols and about 100 MB of memory.
    fn default() -> Self {
        WindowLimits { max_symbols: 1 << 32, max_held: 1 << 20 }
    }
}

/// Compresses a sequence of any length, window by window.
pub struct WindowWriter {
    method: CompressionMethod,
    limits: WindowLimits,
    compressor: Box<dyn Compressor + Send>,
    /// Position of the open window's first symbol in the sequence.
    first: u64,
    /// Number of symbols in the open window.
    symbols: u64,
}

impl WindowWriter {
    /// Creates a writer for an empty sequence. Fails if a limit is zero or too large.
    pub fn new(method: CompressionMethod, limits: WindowLimits) -> Result<WindowWriter, SequenceError> {
        if limits.max_symbols == 0 {
            return Err(SequenceError::invalid_parameter("symbols of a window", limits.max_symbols, "at least 1"));
        }
        if limits.max_held == 0 || limits.max_held > MAX_WINDOW_ITEMS {
            return Err(SequenceError::invalid_parameter("items held by a window", limits.max_held, "1 to 2^28"));
        }
        Ok(WindowWriter { method, limits, compressor: method.compressor(), first: 0, symbols: 0 })
    }

    /// Appends a symbol, and returns the window if this symbol completes it.
    pub fn push(&mut self, symbol: u64) -> Result<Option<Window>, SequenceError> {
        self.compressor.push(symbol);
        self.symbols += 1;
        if self.symbols < self.limits.max_symbols && self.compressor.item_count_in_memory() < self.limits.max_held {
            return Ok(None);
        }
        self.close()
    }

    /// Closes the open window and begins a new one. Returns `None` if the window is empty.
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

    /// Returns the number of symbols pushed so far, which is the position of the next symbol.
    pub fn position(&self) -> u64 {
        self.first + self.symbols
    }
}
