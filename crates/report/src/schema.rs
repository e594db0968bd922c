//! The version of the JSON schema of all reports, and the form of large numbers in JSON.

use serde_json::{Value, json};

/// Version of the schema of everything that is written as JSON.
pub const SCHEMA_VERSION: u32 = 2;

/// 2^53: whole numbers up to it are exact in double precision, which JavaScript uses.
const EXACT: u128 = 1 << 53;

/// A number; beyond 2^53 a string.
pub fn number(value: impl Into<u128>) -> Value {
    match value.into() {
        small if small <= EXACT => json!(small as u64),
        large => json!(large.to_string()),
    }
}
