//! Waits.
#![forbid(unsafe_code)]
