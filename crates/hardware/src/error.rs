//! Errors in detector, table and processor parameters.

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// A parameter file cannot be parsed.
    #[error("invalid parameters: {0}")]
    Syntax(String),
    /// A parameter is out of range.
    #[error("{parameter} = {value}: must be {permitted}")]
    Parameter {
        /// Name of the parameter.
        parameter: &'static str,
        /// The rejected value.
        value: String,
        /// The permitted values.
        permitted: &'static str,
    },
}

impl HardwareError {
    pub(crate) fn parameter(parameter: &'static str, value: impl ToString, permitted: &'static str) -> HardwareError {
        HardwareError::Parameter { parameter, value: value.to_string(), permitted }
    }
}
