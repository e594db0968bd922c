//! Path expressions: which paths run through these blocks, in this order, and not through those?
//!
//! Thesis, section 2.3.2, after Bruegge and Hibbard, "Generalized path expressions: a high-level debugging mechanism", 1983. There
//! they are over operations of a program; here over blocks of acyclic paths, where a block is at most once, so that "later" and
//! "never" are all that repetition would say.
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
//! A sequence matches a path if its places can be given to blocks of the path in order. Where a gap stands, the next
//! place is at the same block or at a later one, with no block between that is one of the gap's places behind `!`;
//! without a gap it is at the same block or the next. `_` is a block of its own: it is never the same as that of a
//! neighbour. A path may begin before the first place and go on behind the last, unless `begin` and `end` say
//! otherwise. `!` behind all places means nowhere on the path.

pub mod joined;
mod matching;
mod parse;

pub use matching::Matcher;
pub use parse::ParseError;

/// A path expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The functions that are meant, if not all: a name as the reports have it.
    pub function: Option<String>,
    /// Patterns of which one must match, each a list of sequences that all must.
    pub patterns: Vec<Vec<Sequence>>,
}

/// Places in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// How the path must begin.
    pub begin: Option<Begin>,
    /// What may lie before the first place.
    pub before: Gap,
    /// Each place, with what may lie behind it.
    pub steps: Vec<(Place, Gap)>,
    /// How the path must end.
    pub end: Option<End>,
    /// Places that are nowhere on the path.
    pub never: Vec<Place>,
}

/// How a path must begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At the function's entry.
    Entry,
    /// At the head of a loop, in its second round or later.
    Head,
}

/// How a path must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By leaving the function.
    Exit,
    /// By going back to the head of a loop.
    Back,
    /// At a call that did not come back.
    Call,
}

/// What may lie between two places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// Nothing.
    #[default]
    Nothing,
    /// Any blocks but those of these places.
    Without(Vec<Place>),
}

/// Blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Any block.
    Any,
    /// One, by its number.
    Block(u32),
    /// Those with code of some lines, or of calls in these lines that were inlined.
    Lines {
        /// Last parts of the file's name; the function's own file if there is none.
        file: Option<String>,
        /// First line.
        first: u32,
        /// Last line.
        last: u32,
    },
    /// Those with code of a function that was inlined.
    Inlined(String),
}
