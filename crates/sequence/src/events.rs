//! Classes of symbols, for analyses that need calls and returns.
//!
//! A call's events are between an `Enter` and a `Leave`. A call to a function that records no events has neither symbol. How a path that
//! contains calls is recorded depends on one of three conventions ([`CallRecordingConvention`]; Vaswani, section 3.4.1).

/// How paths that contain calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallRecordingConvention {
    /// A path with calls is recorded as several subpaths. A subpath ends before each call's `Enter`, and the next one begins after the
    /// return.
    Subpaths,
    /// A path is recorded as one event, after the events of its calls.
    WholePaths,
    /// A path is recorded as one event, after the events of its calls. In addition, before each call, the part of the path up to the call
    /// is recorded as a prefix. Prefixes are redundant, but with them, strings of events identify the executed code as precisely as
    /// subpaths do.
    Prefixes,
}

/// Where a subpath ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubpathEnd {
    /// The subpath ends at a call, after which its frame continues.
    Call,
    /// The subpath ends at a back edge, after which its frame continues.
    BackEdge,
    /// The subpath ends with the function's return, or where an exception leaves the function.
    Return,
}

/// The kind of event that a symbol represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A path, or a part of a path, of a function was executed.
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

/// Determines the kind of event that each symbol represents.
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
