//! Sequences of path events, compressed by grammars, and analyses of the compressed form. The crate is pure and does not interpret symbols.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`grammar`] | [`Grammar`]: access, expansion, search, counts, serialised windows | - |
//! | [`compress`] | Sequitur, Re-Pair, locally consistent parsing; windows that bound memory | in its files |
//! | [`hot`] | minimal hot subpaths | Larus 1999 |
//! | [`events`] | classes of symbols: paths, calls, returns | Vaswani, section 3.4.1 |
//! | [`segments`] | interprocedural path segments of depth k | Vaswani, sections 3.4.1 and 3.4.2 |
//! | [`iterations`] | k consecutive iterations as one path | D'Elia and Demetrescu 2013 |
//! | [`general_paths`] | the last k branches as one path | Young and Smith 1998 |
//! | [`compare`] | first difference of two sequences, alignment by calls | Karp and Rabin 1987, Myers 1986 |
//! | [`phases`] | intervals with similar behaviour | Sherwood and others 2002 |
//!
//! Terms: a *symbol* is an element of a sequence, a *terminal* a distinct symbol of one grammar. A *rule* generates a string of symbols,
//! the *root* rule the whole sequence. An *item* is an element of a rule's body: a terminal or a rule.
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
