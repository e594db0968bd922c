//! Sequences of path events, compressed by grammars, and analyses that work on the compressed form. The crate does no input or output, and
//! assigns no meaning to symbols.
//!
//! A *symbol* is an element of a sequence, and a *terminal* is a distinct symbol of one grammar. A *rule* generates a string of symbols;
//! the *root* rule generates the complete sequence. An *item* is an element of a rule's body, and is either a terminal or a rule.
#![forbid(unsafe_code)]

pub mod compare;
pub mod compress;
mod crossing;
mod error;
pub mod events;
pub mod general_paths;
pub mod grammar;
pub mod hot;
pub mod iterations;
pub mod phases;
pub mod segments;
#[cfg(test)]
mod tests;

pub use compress::{CompressionMethod, Compressor, WindowLimits, WindowWriter};
pub use error::SequenceError;
pub use grammar::{Grammar, GrammarItem, GrammarStatistics, RuleId, SearchPattern, TerminalId};
