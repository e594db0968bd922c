//! Classes of symbols, for analyses that need calls and returns.
//!
//! A call's events are between an `Enter` and a `Leave`. A call of a function that records no events has neither. Paths with calls are
//! recorded by one of three conventions ([`Convention`]; Vaswani, section 3.4.1).

/// The way in which paths that contain calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// In pieces: a subpath ends before each call's `Enter`, and the next begins after the return.
    Subpaths,
    /// As one event, after the events of their calls.
    WholePaths,
    /// As one event, after the events of their calls. In addition, before each call, the path's prefix is recorded as a subpath that ends
    /// at the call. Prefixes are redundant, but strings of events then identify the executed code as well as subpaths do.
    Prefixes,
}

/// The end of a subpath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubpathEnd {
    /// At a call. The frame continues after it.
    Call,
    /// At a back edge. The frame continues.
    BackEdge,
    /// At the function's return, or where an exception exits the function.
    Return,
}

/// The class of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A path of a function was executed.
    Subpath {
        /// Number of the function.
        function: u32,
        /// The end of the path.
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

/// Returns the classes of a grammar's terminals, by terminal number.
pub(crate) fn classes(grammar: &crate::Grammar, classify: &impl Classify) -> Vec<EventClass> {
    grammar.terminals().iter().map(|symbol| classify.class(*symbol)).collect()
}
