//! Classes of symbols, for analyses that need calls and returns.
//!
//! A call's events are between an `Enter` and a `Leave`. A call of a function that records no events has neither symbol. Three conventions
//! ([`Convention`]; Vaswani, section 3.4.1) determine how paths with calls are recorded.

/// How paths that contain calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// As several subpaths. A subpath ends before each call's `Enter`, and the next subpath begins after the return.
    Subpaths,
    /// As one event, after the events of their calls.
    WholePaths,
    /// As one event, after the events of their calls. In addition, before each call, the path's prefix is recorded as a subpath that ends
    /// at the call. Prefixes are redundant, but strings of events then identify the executed code as well as subpaths do.
    Prefixes,
}

/// Where a subpath ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubpathEnd {
    /// At a call, after which the frame continues.
    Call,
    /// At a back edge, after which the frame continues.
    BackEdge,
    /// At the function's return, or where an exception exits the function.
    Return,
}

/// The event that a symbol represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A path of a function was executed.
    Subpath {
        /// The function's number.
        function: u32,
        /// Where the path ends.
        end: SubpathEnd,
    },
    /// A function was entered.
    Enter,
    /// A function was left.
    Leave,
}

/// Determines which event each symbol represents.
pub trait Classify {
    /// Returns the event that `symbol` represents.
    fn class(&self, symbol: u64) -> EventClass;
}

impl<F: Fn(u64) -> EventClass> Classify for F {
    fn class(&self, symbol: u64) -> EventClass {
        self(symbol)
    }
}

pub(crate) fn classify_terminals(grammar: &crate::Grammar, classify: &impl Classify) -> Vec<EventClass> {
    grammar.terminals().iter().map(|symbol| classify.class(*symbol)).collect()
}
