//! Waiting time as text, JSON, a page and Chrome trace JSON; waits as expressions; the paths that samples interrupted, by the streams of
//! the same run.

pub mod chrome;
pub mod expression;
pub mod json;
pub mod page;
pub mod paths;
pub mod text;
