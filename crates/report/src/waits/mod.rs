//! Reports on waiting time as text, JSON, an HTML page and Chrome trace JSON, and the paths of samples from the streams of the same run.

pub mod chrome;
pub mod expression;
pub mod json;
pub mod page;
pub mod paths;
pub mod text;
