//! What is wrong with a serialised window or with a request: each message names the place and the remedy.

/// A sequence or a window that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// The bytes of a window end early, or do not describe a grammar.
    #[error("window, byte {offset}: {what}; the window is damaged: record again, or read the windows before it")]
    Malformed {
        /// Offset of the first byte that does not fit, from the beginning of the window.
        offset: usize,
        /// What was expected there.
        what: &'static str,
    },
    /// The bytes end within a window.
    #[error("the window ends early: {needed} bytes are needed, {available} are there; the windows before it can be read")]
    Truncated {
        /// Bytes from the window's beginning that are known to be needed.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The window was written by a newer version.
    #[error("window of version {found}: this program reads versions up to {newest}; read it with the program that wrote it")]
    Version {
        /// The version of the window.
        found: u8,
        /// The newest version that is understood.
        newest: u8,
    },
    /// Grammars are too large to be one.
    #[error("a grammar of {items} items is too large (at most {most}): analyse fewer windows at a time")]
    TooLarge {
        /// Items of all rules.
        items: usize,
        /// The most items.
        most: usize,
    },
    /// A parameter has a value that it cannot have.
    #[error("{parameter} = {value}: {remedy}")]
    Parameter {
        /// Its name.
        parameter: &'static str,
        /// What it was given.
        value: String,
        /// What it may be.
        remedy: &'static str,
    },
}

impl SequenceError {
    pub(crate) fn parameter(parameter: &'static str, value: impl ToString, remedy: &'static str) -> SequenceError {
        SequenceError::Parameter { parameter, value: value.to_string(), remedy }
    }
}
