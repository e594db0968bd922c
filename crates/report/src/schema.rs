//! What all reports as JSON have in common: the version of their schema, and how numbers are written.

use serde_json::{Value, json};

/// Version of the schema of everything that is written as JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// Greatest whole number up to which all are exact in the floating point of JavaScript and its kin.
const EXACT: u128 = 1 << 53;

/// A number; beyond 2^53 a string.
pub fn number(value: impl Into<u128>) -> Value {
    match value.into() {
        small if small <= EXACT => json!(small as u64),
        large => json!(large.to_string()),
    }
}
