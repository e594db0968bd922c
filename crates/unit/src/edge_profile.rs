//! What a unit knows of LLVM's own profile of it (of edges, or of the regions of coverage), so that a path profile can be turned into one.
//!
//! LLVM's profile-guided optimisation wants the values of counters that its front half puts into a function (on chords
//! of a spanning tree of the graph as it is then). A collecting build lets LLVM insert them, and takes them out again
//! before code is made: where a counter would have been incremented by a constant, a [`Marker`] stays in the map, and
//! its value follows from how often the block is executed, which paths tell. What no path can tell (an increment by a
//! computed amount, or between two calls of one block of which either may not return) is counted by a counter of the
//! unit's own ([`OwnCounters`]).

use serde::{Deserialize, Serialize};
use trodden_flow::Node;

/// LLVM's counters of a unit, and what their values are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeProfile {
    /// LLVM's word of version and flags (`__llvm_profile_raw_version`).
    pub version: u64,
    /// Names of functions as profiles have them (`main`, `file.c;local`), of which [`ProfiledFunction::name`] gives hashes.
    pub names: Vec<String>,
    /// Functions with counters: defined in the unit, or inlined there.
    pub functions: Vec<ProfiledFunction>,
    /// Where constants would have been added to counters.
    pub markers: Vec<Marker>,
    /// What is counted apart.
    pub own: Vec<OwnCounters>,
    /// What is counted of values.
    pub values: Vec<ValueCounters>,
}

impl EdgeProfile {
    /// Whether the counters are those of a compiler's front end, which coverage is made of, and not of edges: by LLVM's
    /// flag for the latter.
    pub fn is_coverage(&self) -> bool {
        const OF_EDGES: u64 = 1 << 56;
        self.version & OF_EDGES == 0
    }
}

/// A function that LLVM counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledFunction {
    /// The first eight bytes of its name's MD5 hash, little-endian: LLVM's key for names.
    pub name: u64,
    /// Hash of its graph.
    pub hash: u64,
    /// Number of its counters.
    pub counters: u32,
    /// Number of bits of the test vectors of its decisions (MC/DC), whole bytes; each is a counter behind
    /// [`ProfiledFunction::counters`], of which it matters only whether it is 0.
    pub bits: u32,
    /// Number of its places where LLVM notes values, for each kind: targets of indirect calls, sizes of memory
    /// operations, tables of virtual functions. Compilers want to see as many places in a profile.
    pub value_sites: [u16; 3],
}

/// A counter of LLVM's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeCounter {
    /// Place of its function in [`EdgeProfile::functions`].
    pub function: u32,
    /// Its number there; from the number of the function's counters on, those are its bits.
    pub index: u32,
}

/// A place where a counter would have been incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Place of the function that holds it in [`crate::UnitMap::functions`].
    pub function: u32,
    /// Its block there.
    pub block: Node,
    /// Where in the block.
    pub place: MarkerPlace,
    /// The counter.
    pub counter: EdgeCounter,
    /// What would have been added.
    pub amount: i64,
}

/// Where in its block a marker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkerPlace {
    /// Before every call that might not come back: whoever enters the block passes it.
    Entered,
    /// Behind every such call: only who leaves the block passes it.
    Left,
}

/// Counters of the unit that count what LLVM's would have counted, in addition to the markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCounters {
    /// The first of LLVM's counters.
    pub counter: EdgeCounter,
    /// The first of the unit's.
    pub first: u64,
    /// How many, one for one.
    pub count: u32,
}

/// Counters of the unit that count values at one place of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueCounters {
    /// Place of the function in [`EdgeProfile::functions`].
    pub function: u32,
    /// Which values.
    pub kind: ValueKind,
    /// Number of the place among the function's of that kind.
    pub site: u16,
    /// The first of the unit's counters; there are [`ValueKind::counters`].
    pub first: u64,
}

/// Values that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ValueKind {
    /// Where indirect calls go. A target is known by its distance from the beginning of the image (0 if it is
    /// elsewhere), which chooses one of [`TARGET_BUCKETS`] pairs of counters: how many calls, and the sum of the
    /// distances. Where all calls of a pair go to one function, the sum tells which. Pairs can be added up, so that
    /// threads and runs can.
    Target,
    /// Sizes of memory operations, of which there are [`SIZE_CLASSES`], each with a counter: 0 to 8 each by itself,
    /// then powers of two, what is between two of them, and all above 512.
    Size,
}

/// Pairs of counters for the targets of one call; a power of two.
pub const TARGET_BUCKETS: u32 = 32;
/// Classes of sizes.
pub const SIZE_CLASSES: u32 = 22;
/// By which distances are multiplied to choose a pair: the highest bits of the product do.
pub const TARGET_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

impl ValueKind {
    /// Number of the unit's counters at each place.
    pub fn counters(self) -> u32 {
        match self {
            ValueKind::Target => 2 * TARGET_BUCKETS,
            ValueKind::Size => SIZE_CLASSES,
        }
    }
}

/// The pair for a target.
pub fn target_bucket(distance: u64) -> u32 {
    (distance.wrapping_mul(TARGET_HASH) >> (u64::BITS - TARGET_BUCKETS.ilog2())) as u32
}

/// The size that stands for a class in LLVM's profiles.
pub fn size_of_class(class: u32) -> u64 {
    match class {
        0..=8 => u64::from(class),
        _ => (1 << ((class - 2) / 2)) + u64::from(class % 2),
    }
}
