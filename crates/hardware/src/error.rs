//! Errors of configurations.

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// A parameter file cannot be parsed.
    #[error("invalid parameters: {0}")]
    Syntax(String),
    /// A parameter is out of range.
    #[error("{parameter} = {value}: must be {remedy}")]
    Parameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// The rejected value.
        value: String,
        /// The permitted values.
        remedy: &'static str,
    },
}

impl HardwareError {
    pub(crate) fn parameter(parameter: &'static str, value: impl ToString, remedy: &'static str) -> HardwareError {
        HardwareError::Parameter { parameter, value: value.to_string(), remedy }
    }
}
