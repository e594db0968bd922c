//! Sequences of path events, compressed by grammars, and analyses that work on the compressed form.
//!
//! Everything here is pure: symbols come in, grammars, counts and differences go out. What a symbol stands for is the caller's business.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`grammar`] | [`Grammar`]: access, expansion, search, counts, serialised windows | - |
//! | [`compress`] | compressors: Sequitur, Re-Pair by blocks, locally consistent parsing; windows with bounded memory | Nevill-Manning and Witten 1997, Larsson and Moffat 1999, Mehlhorn, Sundar and Uhrig 1997 |
//!
//! Terms: a *symbol* is one element of a sequence. A *terminal* is a distinct symbol of one grammar. A *rule* stands for a string of
//! symbols; the *root* rule stands for the whole sequence. An *item* is one place of a rule's body: a terminal or a rule.
#![forbid(unsafe_code)]

pub mod compress;
mod error;
pub mod grammar;
#[cfg(test)]
mod tests;

pub use compress::{Compressor, Method, WindowLimits, WindowWriter};
pub use error::SequenceError;
pub use grammar::{Grammar, GrammarStatistics, Item, Pattern, RuleId, TerminalId};
