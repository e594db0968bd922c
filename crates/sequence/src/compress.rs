//! Compressors, which take the symbols of a sequence one by one and return a grammar that generates the sequence. Dividing the sequence
//! into windows bounds their memory.
//!
//! | method | time per symbol | size | depth | online |
//! |---|---|---|---|---|
//! | [`Sequitur`] | amortised O(1) | small | unbounded | yes |
//! | [`RePair`] | O(log n), when the window is closed | smallest | logarithmic in practice | by windows |
//! | [`Phrases`] | O(1), and one step of Sequitur per phrase | near Sequitur's | unbounded | by phrases |
//! | [`LocallyConsistent`] | O(1), with few hash look-ups | larger | O(log n) | by levels |

pub(crate) mod hashing;
mod locally_consistent;
mod phrases;
mod re_pair;
mod sequitur;
mod window;

pub use locally_consistent::LocallyConsistent;
pub use phrases::Phrases;
pub use re_pair::RePair;
pub use sequitur::Sequitur;
pub use window::{WindowLimits, WindowWriter};

use crate::{Grammar, SequenceError};

/// Builds a sequence's grammar from symbols that are pushed one by one.
pub trait Compressor {
    /// Appends a symbol.
    fn push(&mut self, symbol: u64);

    /// Returns the number of grammar items and distinct symbols in memory. Each takes some tens of bytes.
    fn item_count_in_memory(&self) -> usize;

    /// Returns the grammar of all symbols pushed so far. Fails if it has more than [`crate::grammar::MAX_ITEMS`] items.
    fn close(self: Box<Self>) -> Result<Grammar, SequenceError>;
}

/// An algorithm that compresses a sequence into a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionMethod {
    /// Keeps digrams unique, and rules used at least twice (Nevill-Manning and Witten 1997).
    Sequitur = 1,
    /// Repeatedly replaces the most frequent pair by a rule (Larsson and Moffat 1999).
    RePair = 2,
    /// Cuts blocks at local minima of hashes, level by level (Mehlhorn, Sundar and Uhrig 1997).
    LocallyConsistent = 3,
    /// Cuts phrases at positions that depend on the content, and applies Sequitur to the sequence of phrases.
    Phrases = 4,
}

impl CompressionMethod {
    /// All methods.
    pub const ALL: [CompressionMethod; 4] =
        [CompressionMethod::Sequitur, CompressionMethod::RePair, CompressionMethod::LocallyConsistent, CompressionMethod::Phrases];

    /// Returns the method's name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            CompressionMethod::Sequitur => "sequitur",
            CompressionMethod::RePair => "re-pair",
            CompressionMethod::LocallyConsistent => "locally-consistent",
            CompressionMethod::Phrases => "phrases",
        }
    }

    /// Parses a name as returned by [`CompressionMethod::name`].
    pub fn from_name(name: &str) -> Result<CompressionMethod, SequenceError> {
        let found = CompressionMethod::ALL.into_iter().find(|method| method.name() == name);
        found.ok_or_else(|| SequenceError::invalid_parameter("method", name, "sequitur, re-pair, locally-consistent or phrases"))
    }

    /// Creates an empty compressor that uses this method.
    pub fn compressor(self) -> Box<dyn Compressor + Send> {
        match self {
            CompressionMethod::Sequitur => Box::new(Sequitur::default()),
            CompressionMethod::RePair => Box::new(RePair::default()),
            CompressionMethod::LocallyConsistent => Box::new(LocallyConsistent::default()),
            CompressionMethod::Phrases => Box::new(Phrases::default()),
        }
    }

    /// Compresses a complete sequence.
    pub fn compress(self, symbols: impl IntoIterator<Item = u64>) -> Result<Grammar, SequenceError> {
        let mut compressor = self.compressor();
        symbols.into_iter().for_each(|symbol| compressor.push(symbol));
        compressor.close()
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<CompressionMethod> {
        CompressionMethod::ALL.into_iter().find(|method| method.code() == code)
    }
}
