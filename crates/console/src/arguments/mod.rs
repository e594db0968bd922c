//! Command line arguments that both programs share: parsers of values, tables of choices, and parameters of counting.

pub mod choices;
pub mod compression;
pub mod engines;
pub mod laboratory;
pub mod parameters;
pub mod partition;
pub mod places;
pub mod shares;
pub mod simulate;
pub mod times;

pub use compression::METHODS;
pub use parameters::Parameters;
