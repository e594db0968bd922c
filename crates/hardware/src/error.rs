//! Errors in detector, table and processor parameters.

/// A parameter of a detector, table or processor that is out of range, or a parameter file that is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// A parameter file cannot be parsed.
    #[error("cannot parse the parameters of the processor model: {0}")]
    Syntax(String),
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

impl HardwareError {
    pub(crate) fn parameter(parameter: &'static str, value: impl ToString, permitted: &'static str) -> HardwareError {
        HardwareError::Parameter { parameter, value: value.to_string(), permitted }
    }
}
