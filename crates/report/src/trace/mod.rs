//! Reports on exact traces as text, JSON and HTML pages, and exports to the formats of other tools.

pub mod diff;
pub mod export;
pub mod find;
pub mod interleave;
pub mod page;
pub mod plan;
pub mod show;
