//! Formats path profiles, traces, waiting time and simulations, for people and in exchange formats.
//!
//! The input is a [`trodden_profile::Profile`] or a recording; the output is a string or bytes. This crate reads neither the environment
//! nor the clock: options determine the terminal width and colour, and a [`SourceProvider`] closure supplies source text. A profile is
//! decoded into a [`ProfileView`], filtered and ordered by a [`PathSelection`], turned into source lines by [`PathListing`], and written as
//! [`text`], [`annotate`], [`json`], [`html`] or an exchange format ([`folded`], [`pprof`], [`lcov`], [`dot`]). Names from programs pass
//! through [`escape`], because they may contain control characters.
#![forbid(unsafe_code)]

pub mod advice;
pub mod annotate;
pub mod callers;
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
mod function_totals;
pub mod html;
mod indent;
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
mod targets;
pub mod text;
pub mod trace;
mod turn;
pub mod untested_segments;
pub mod users;
pub mod view;
pub mod waits;
pub mod words;

pub use error::ReportError;
pub use measure::PathMeasure;
pub use path_listing::PathListing;
pub use select::{PathSelection, RankedPaths};
pub use source::{SourceCache, SourceProvider};
pub use trodden_text::names::{self, DemangledName};
pub use view::{Function, ProfileView};
