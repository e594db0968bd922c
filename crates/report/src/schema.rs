//! The version of the JSON schema that reports share, and the representation of large numbers in JSON.

use serde_json::{Value, json};

/// Version of the JSON schema of reports.
pub const SCHEMA_VERSION: u32 = 3;

/// JavaScript's numbers have double precision. They represent all integers up to this one exactly.
const MAX_EXACT_INTEGER: u128 = 1 << 53;

/// Represents a number as JSON: as a string if it is above 2^53.
pub fn number(value: impl Into<u128>) -> Value {
    match value.into() {
        small if small <= MAX_EXACT_INTEGER => json!(small as u64),
        large => json!(large.to_string()),
    }
}
