//! The version of the JSON schema of all reports, and the representation of large numbers in JSON.

use serde_json::{Value, json};

/// Version of the JSON schema.
pub const SCHEMA_VERSION: u32 = 3;

/// The largest integer up to which all integers are exact in double precision, which JavaScript uses.
const MAX_EXACT: u128 = 1 << 53;

/// A number as JSON: a string if it is above 2^53.
pub fn number(value: impl Into<u128>) -> Value {
    match value.into() {
        small if small <= MAX_EXACT => json!(small as u64),
        large => json!(large.to_string()),
    }
}
