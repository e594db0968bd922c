//! Path profiles, traces, waiting time and simulations to what people see.
//!
//! Functions from a [`trodden_profile::Profile`] and the like to strings and bytes. Nothing here reads the environment or the clock, or a
//! file but the recording that is shown: source text comes from a [`Sources`] provider ([`source_files`] has one of files), widths and
//! colour are options. [`trace`] has traces, [`waits`] waiting time, [`simulation`] the hardware path profiler's model, [`streams`] and
//! [`sequences`] recorded streams. The journey of a profile:
//!
//! 1. [`View`]: every function decoded, with readable names and its share of the program ([`view`], [`names`]);
//! 2. [`Selection`]: which functions and paths, in which order ([`select`]);
//! 3. [`PathListing`]: a path as source lines with the direction of each branch ([`path_listing`]);
//! 4. a form: [`text`] (terminal), [`annotate`] (a path over its source), [`json`], [`html`];
//!    [`advice`] (what counts of paths show and counts of edges cannot), [`difference`] (of two profiles);
//!    What is printed of names passes [`escape`];
//! 5. or an exchange format: [`folded`] stacks, [`pprof`], [`lcov`]; graphs of functions: [`dot`].
#![forbid(unsafe_code)]

pub mod advice;
pub mod annotate;
pub mod copies;
pub mod counted_segments;
pub mod coverage;
pub mod difference;
pub mod dot;
pub mod error;
pub mod escape;
pub mod events;
pub mod field_rows;
pub mod folded;
pub mod found;
pub mod html;
pub mod info;
pub mod inlined;
pub mod input_kind;
pub mod isolation;
pub mod json;
pub mod lcov;
pub mod line_range;
pub mod lines;
pub mod measure;
pub mod paint;
pub mod path_listing;
pub mod pprof;
pub mod residual;
pub mod runs;
mod sampled;
pub mod sarif;
mod schema;
pub mod schemes;
pub mod segments;
pub mod select;
pub mod sequences;
pub mod simulation;
pub mod source;
pub mod source_files;
pub mod streams;
pub mod suite;
pub mod targets;
pub mod text;
pub mod trace;
mod turn;
pub mod untested_segments;
pub mod users;
pub mod view;
pub mod waits;
pub mod words;

pub use error::ReportError;
pub use measure::Measure;
pub use path_listing::PathListing;
pub use select::{Ranking, Selection};
pub use source::{SourceCache, Sources};
pub use trodden_text::names::{self, Name};
pub use view::{Function, View};
