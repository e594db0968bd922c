//! Compressors: symbols one by one, a grammar at the end. Windows keep their memory bounded.
//!
//! | method | time | size | depth | online |
//! |---|---|---|---|---|
//! | [`Sequitur`] | amortised O(1) for a symbol | small | unbounded | yes: the grammar is that of what was read |
//! | [`RePair`] | O(1) for a symbol, when the window is closed | smallest | logarithmic in practice | by windows |
//! | [`Phrases`] | O(1) for a symbol, one step of Sequitur for a phrase | near Sequitur's | unbounded | yes, phrase by phrase |
//! | [`LocallyConsistent`] | O(1) for a symbol, few hash look-ups | larger | O(log n) | yes, level by level |
//!
//! Measurements are in the guide's chapter on streams.

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

/// Makes a grammar of the symbols that it is given.
pub trait Compressor {
    /// Appends a symbol.
    fn push(&mut self, symbol: u64);

    /// Things held in memory: places of bodies and terminals, each some tens of bytes.
    fn held(&self) -> usize;

    /// The grammar of all symbols so far.
    ///
    /// # Errors
    /// It has more than [`crate::grammar::MOST_ITEMS`] items.
    fn close(self: Box<Self>) -> Result<Grammar, SequenceError>;
}

/// A way to make a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionMethod {
    /// Digrams are unique, rules are used twice (Nevill-Manning and Witten 1997).
    Sequitur = 1,
    /// The most frequent pair becomes a rule, again and again (Larsson and Moffat 1999).
    RePair = 2,
    /// Blocks by local minima of hashes, level by level (Mehlhorn, Sundar and Uhrig 1997).
    LocallyConsistent = 3,
    /// Phrases by their content, and Sequitur's grammar of them.
    Phrases = 4,
}

impl CompressionMethod {
    /// All methods.
    pub const ALL: [CompressionMethod; 4] =
        [CompressionMethod::Sequitur, CompressionMethod::RePair, CompressionMethod::LocallyConsistent, CompressionMethod::Phrases];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            CompressionMethod::Sequitur => "sequitur",
            CompressionMethod::RePair => "re-pair",
            CompressionMethod::LocallyConsistent => "locally-consistent",
            CompressionMethod::Phrases => "phrases",
        }
    }

    /// The method of a name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn named(name: &str) -> Result<CompressionMethod, SequenceError> {
        let found = CompressionMethod::ALL.into_iter().find(|method| method.name() == name);
        found.ok_or_else(|| SequenceError::parameter("method", name, "sequitur, re-pair, locally-consistent or phrases"))
    }

    /// A compressor that has read nothing.
    pub fn compressor(self) -> Box<dyn Compressor + Send> {
        match self {
            CompressionMethod::Sequitur => Box::new(Sequitur::default()),
            CompressionMethod::RePair => Box::new(RePair::default()),
            CompressionMethod::LocallyConsistent => Box::new(LocallyConsistent::default()),
            CompressionMethod::Phrases => Box::new(Phrases::default()),
        }
    }

    /// The grammar of a sequence.
    ///
    /// # Errors
    /// It has too many items.
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
