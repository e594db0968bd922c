//! Reports on waiting time as text, JSON, an HTML page and Chrome trace JSON. Samples are shown as paths if the same run recorded streams.

pub mod chrome;
pub mod expression;
pub mod json;
pub mod page;
pub mod paths;
pub mod text;
