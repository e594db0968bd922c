//! Classes of symbols, for analyses that need calls and returns.
//!
//! Calls are bracketed by `Enter` and `Leave`, with the callee's events in between; calls of functions that record nothing have no
//! brackets. Paths with calls are recorded by one of three conventions ([`Convention`]; Vaswani, section 3.4.1).

/// How paths that contain calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// In pieces: a subpath ends before each call's `Enter`, and another begins after the return.
    Subpaths,
    /// As a whole, after the events of their calls.
    WholePaths,
    /// As a whole, after the events of their calls. In addition, before each call, the prefix up to it as a subpath that ends at the call.
    /// Prefixes are redundant, but let strings of events identify what was executed as well as with subpaths.
    Prefixes,
}

/// How a subpath ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubpathEnd {
    /// At a call. The frame continues after it.
    Call,
    /// At a back edge. The frame continues.
    BackEdge,
    /// At the function's return, or where an exception left it.
    Return,
}

/// The class of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A path of a function was executed.
    Subpath {
        /// Number of the function.
        function: u32,
        /// How the path ended.
        end: SubpathEnd,
    },
    /// A function was entered.
    Enter,
    /// A function was left.
    Leave,
}

/// Classifies symbols.
pub trait Classify {
    /// Returns the class of a symbol.
    fn class(&self, symbol: u64) -> EventClass;
}

impl<F: Fn(u64) -> EventClass> Classify for F {
    fn class(&self, symbol: u64) -> EventClass {
        self(symbol)
    }
}

/// The classes of a grammar's terminals, by terminal number.
pub(crate) fn classes(grammar: &crate::Grammar, classify: &impl Classify) -> Vec<EventClass> {
    grammar.terminals().iter().map(|symbol| classify.class(*symbol)).collect()
}
