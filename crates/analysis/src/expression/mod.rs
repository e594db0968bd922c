//! Path expressions: which paths run through these blocks, in this order, and not through those?
//!
//! Thesis, section 2.3.2, after Bruegge and Hibbard, "Generalized path expressions: a high-level debugging mechanism", 1983. Theirs
//! are over operations of a program; these are over blocks of acyclic paths. A block is on such a path at most once, so "later" and
//! "never" replace repetition.
//!
//! ```text
//! expression = [ function ":" ] pattern { "|" pattern }
//! pattern    = sequence { "&" sequence }
//! sequence   = [ begin [ gap ] ] { place [ gap ] } [ end ] { "!" place }
//! begin      = "entry" | "head"
//! end        = "exit" | "back" | "call"
//! gap        = ".." { "!" place }
//! place      = "_" | "b" NUMBER | lines | NAME "()"
//! lines      = [ FILE ":" ] NUMBER [ "-" NUMBER ]
//! ```
//!
//! A sequence matches a path if its places can be assigned to blocks of the path in order. After a gap, the next place is at the same block
//! or at a later one, and no block in between is one of the gap's places after `!`. Without a gap, the next place is at the same block or
//! the next one. `_` is a block of its own: it is never the block of a neighbour. A path may begin before the first place and continue
//! after the last, unless `begin` and `end` say otherwise. `!` after all places means: nowhere on the path.

pub mod joined;
mod matching;
mod parse;

pub use matching::Matcher;
pub use parse::ParseError;

/// A path expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The name of the functions, as in reports; `None` for all functions.
    pub function: Option<String>,
    /// Patterns, one of which must match. Each is a list of sequences that must all match.
    pub patterns: Vec<Vec<ExpressionSequence>>,
}

/// Places in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpressionSequence {
    /// How the path must begin.
    pub begin: Option<Begin>,
    /// The gap before the first place.
    pub before: Gap,
    /// Each place, with the gap after it.
    pub steps: Vec<(BlockSet, Gap)>,
    /// How the path must end.
    pub end: Option<End>,
    /// Places that are nowhere on the path.
    pub never: Vec<BlockSet>,
}

/// How a path must begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At the function's entry.
    Entry,
    /// At the head of a loop, in its second iteration or later.
    Head,
}

/// How a path must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By leaving the function.
    Exit,
    /// By going back to the head of a loop.
    Back,
    /// At a call that did not return.
    Call,
}

/// The blocks between two places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// No block.
    #[default]
    Nothing,
    /// Any blocks but those of these places.
    Without(Vec<BlockSet>),
}

/// Blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlockSet {
    /// Any block.
    Any,
    /// One block, by its number.
    Block(u32),
    /// Blocks with code of some lines, or of calls in these lines that were inlined.
    Lines {
        /// Last parts of the file's name; the function's own file if there is none.
        file: Option<String>,
        /// First line.
        first: u32,
        /// Last line.
        last: u32,
    },
    /// Blocks with code of a function that was inlined.
    Inlined(String),
}
