//! Errors of serialised windows and of parameters.

/// The reason why a window cannot be read, or which parameter is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// The bytes of a window do not describe a grammar.
    #[error("a window (a part of the recording) is corrupt at byte {offset}: {what}. Record again, or read only the windows before it")]
    Malformed {
        /// Offset of the first wrong byte, from the start of the window.
        offset: usize,
        /// The fault at this byte.
        what: &'static str,
    },
    /// The bytes end within a window.
    #[error(
        "a window (a part of the recording) is truncated: it needs {needed} bytes, but only {available} are left. The windows before it \
         can be read"
    )]
    Truncated {
        /// Minimum size of the window, in bytes.
        needed: usize,
        /// Available bytes.
        available: usize,
    },
    /// The window has an unsupported version.
    #[error(
        "a window (a part of the recording) has version {found}, but this program reads versions up to {newest}. Use the program that \
         wrote the recording"
    )]
    Version {
        /// Version of the window.
        found: u8,
        /// Newest supported version.
        newest: u8,
    },
    /// A grammar has too many items.
    #[error(
        "the grammar (the compressed sequence of events) has {items} items, but at most {max} are permitted. Analyse fewer windows (parts \
         of the recording) at a time"
    )]
    TooLarge {
        /// Number of items.
        items: usize,
        /// Maximum number of items.
        max: usize,
    },
    /// A parameter is out of range.
    #[error("{parameter} = {value} is not permitted: the value must be {permitted}")]
    Parameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// The rejected value.
        value: String,
        /// The permitted values.
        permitted: &'static str,
    },
}

impl SequenceError {
    pub(crate) fn invalid_parameter(parameter: &'static str, value: impl ToString, permitted: &'static str) -> SequenceError {
        SequenceError::Parameter { parameter, value: value.to_string(), permitted }
    }
}
