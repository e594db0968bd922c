//! What symbols mean to analyses that need calls and returns.
//!
//! Three conventions of recording are understood ([`Convention`]):
//! - *subpaths* (Vaswani, section 3.4.1): a path ends at each call, before the call's event; behind the return another begins;
//! - *whole paths*: a path runs across calls; its event comes when it ends, behind those of its calls;
//! - *prefixes*: whole paths, and before a call the path up to it, which begins where the whole path does. Each prefix follows from the
//!   whole path, so strings of events identify what was executed as strings of subpaths do.
//!
//! In all a call is bracketed by `Enter` and `Leave`, in which the events of the callee are. A call of a function that records nothing
//! has no bracket.

/// How paths that run across calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// In pieces that end at calls.
    Subpaths,
    /// As a whole, behind their calls.
    WholePaths,
    /// As a whole, behind their calls; before a call what was executed of it, as a subpath that ends at the call.
    Prefixes,
}

/// How a subpath ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubpathEnd {
    /// At a call; the frame goes on behind it.
    Call,
    /// At a back edge of a loop; the frame goes on.
    BackEdge,
    /// At the function's return, or where it was left by an exception.
    Return,
}

/// What kind of event a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A path of a function was executed.
    Subpath {
        /// The function's number.
        function: u32,
        /// How the path ended.
        end: SubpathEnd,
    },
    /// A function was entered.
    Enter,
    /// A function was left.
    Leave,
}

/// Knows the class of each symbol.
pub trait Classify {
    /// The class of a symbol.
    fn class(&self, symbol: u64) -> EventClass;
}

impl<F: Fn(u64) -> EventClass> Classify for F {
    fn class(&self, symbol: u64) -> EventClass {
        self(symbol)
    }
}

/// The classes of a grammar's terminals, by their numbers.
pub(crate) fn classes(grammar: &crate::Grammar, classify: &impl Classify) -> Vec<EventClass> {
    grammar.terminals().iter().map(|symbol| classify.class(*symbol)).collect()
}
