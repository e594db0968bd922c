//! Waiting time as text, JSON, a page and Chrome trace JSON.

pub mod chrome;
pub mod json;
pub mod page;
pub mod text;
