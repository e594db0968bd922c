//! What is wrong with a configuration: each message names the parameter and what it may be.

/// A configuration that no hardware could have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// A file of parameters is not understood.
    #[error("parameters: {0}")]
    Syntax(String),
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

impl HardwareError {
    pub(crate) fn parameter(parameter: &'static str, value: impl ToString, remedy: &'static str) -> HardwareError {
        HardwareError::Parameter { parameter, value: value.to_string(), remedy }
    }
}
