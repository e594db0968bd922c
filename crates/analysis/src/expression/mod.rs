//! Path expressions: which paths run through these blocks, in this order, and not through those?
//!
//! After Bruegge and Hibbard, "Generalized path expressions: a high-level debugging mechanism", 1983. Their expressions range over a
//! program's operations. The expressions here range over the blocks of acyclic paths, in which a block occurs at most once, so "later" and
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
//! or a later one, and no block in between is one of the gap's excluded places (after `!`). Without a gap, the next place is at the same
//! block or the next one. `_` takes a separate block, never the block of a neighbouring place. Unless `begin` and `end` say otherwise, a
//! path may start before the first place and continue after the last place. A `!` after all places excludes a place from the complete path.

pub mod joined;
mod matching;
mod parse;

pub use matching::PathMatcher;
pub use parse::ExpressionParseError;

/// A path expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathExpression {
    /// The function name, as in reports, or `None` for all functions.
    pub function: Option<String>,
    /// Alternative patterns. Each is a list of sequences that must all match.
    pub patterns: Vec<Vec<ExpressionSequence>>,
}

/// Places that a path must pass in this order, with the gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpressionSequence {
    /// How the path must begin.
    pub begin: Option<RequiredPathBegin>,
    /// The gap before the first place.
    pub before: AllowedBlocksBetween,
    /// Each place, with the gap after it.
    pub steps: Vec<(ExpressionPlace, AllowedBlocksBetween)>,
    /// How the path must end.
    pub end: Option<RequiredPathEnd>,
    /// Places that must not be on the path.
    pub never: Vec<ExpressionPlace>,
}

/// How a path must begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredPathBegin {
    /// At the function's entry.
    Entry,
    /// The path begins at the head of a loop, in its second iteration or later.
    Head,
}

/// How a path must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredPathEnd {
    /// The path ends at an exit from the function.
    Exit,
    /// The path ends with a back edge to a loop head.
    Back,
    /// The path ends at a call that did not return.
    Call,
}

/// The blocks allowed between two places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedBlocksBetween {
    /// No block.
    #[default]
    Nothing,
    /// Any number of blocks that belong to none of these places.
    Without(Vec<ExpressionPlace>),
}

/// A place in an expression, which represents a set of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExpressionPlace {
    /// Any block.
    Any,
    /// One block, by its number.
    Block(u32),
    /// Blocks with code of these lines, or with code of inlined calls in these lines.
    Lines {
        /// Last components of the file name, or `None` for the function's own file.
        file: Option<String>,
        /// First line.
        first: u32,
        /// Last line.
        last: u32,
    },
    /// Blocks with code of this inlined function.
    Inlined(String),
}
