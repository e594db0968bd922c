//! Exact traces as text, JSON, pages and in forms of other tools.
//!
//! | file | what |
//! |---|---|
//! | `show.rs` | calls as a tree, blocks, addresses |
//! | `find.rs`, `diff.rs` | executions of a place; where two traces part |
//! | `page.rs`, `page/` | calls one after the other on an HTML page |
//! | `export.rs` | folded stacks, Chrome's trace events |
//! | `plan.rs` | the plan of a recording |

pub mod diff;
pub mod export;
pub mod find;
pub mod page;
pub mod plan;
pub mod show;
