//! The kinds of observation that users can request with the setting `observe`.

use crate::spell;
use serde::{Deserialize, Serialize};

/// Values of the setting `observe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Observe {
    /// Counts of paths.
    #[default]
    Counts,
    /// Counts of paths, from which LLVM's edge profile is computed.
    EdgeProfile,
    /// Counts of paths, from which the counters of source-based coverage are computed.
    Coverage,
    /// Like `Coverage`, and additionally the test vectors of decisions (MC/DC).
    Mcdc,
    /// The sequence of paths and calls.
    Stream,
    /// The address of each block, without any counts.
    Addresses,
    /// Nothing. A tracer follows the execution from outside the program, with the help of sleds (patchable instructions) in the blocks.
    Trace,
}

spell! { Observe:
    Observe::Counts => "counts", "Counts of paths";
    Observe::EdgeProfile => "edge-profile", "Counts from which LLVM's edge profile can be computed";
    Observe::Coverage => "coverage", "Counts from which the counters of source-based coverage can be computed";
    Observe::Mcdc => "mcdc", "Coverage, and the test vectors of decisions (MC/DC)";
    Observe::Stream => "stream", "The sequence of paths and calls, instead of counts";
    Observe::Addresses => "addresses", "The address of each block, without counts";
    Observe::Trace => "trace", "Nothing; blocks have sleds, by which `trodden trace` follows the execution";
}
