//! The kinds of observation that a word of the setting `observe` asks for.

use crate::spell;
use serde::{Deserialize, Serialize};

/// What is observed of paths, as far as a word says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Observe {
    /// How often each was taken.
    #[default]
    Counts,
    /// That, in a form of which LLVM's edge profile can be made.
    EdgeProfile,
    /// That, in a form of which the counters of source-based coverage can be computed.
    Coverage,
    /// That, and the test vectors of decisions (MC/DC).
    Mcdc,
    /// The sequence of paths and calls.
    Stream,
    /// Nothing: blocks are marked.
    Addresses,
    /// Nothing: blocks have sleds for witnesses, and an execution is followed from outside.
    Trace,
}

spell! { Observe:
    Observe::Counts => "counts", "How often each path is taken";
    Observe::EdgeProfile => "edge-profile", "That, in a form of which LLVM's edge profile can be made";
    Observe::Coverage => "coverage", "That, in a form of which the counters of source-based coverage can be computed";
    Observe::Mcdc => "mcdc", "That, and the test vectors of decisions (MC/DC)";
    Observe::Stream => "stream", "The sequence of paths and calls, instead of counts";
    Observe::Addresses => "addresses", "Nothing: where each block lies is noted";
    Observe::Trace => "trace", "Nothing: blocks have sleds for the witnesses of `trodden trace`";
}
