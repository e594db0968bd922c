//! The layout of a ring: words that the copies of blocks use, and then symbols of 4 bytes each.

/// Offset of the cursor, which is the negative distance to the end of the ring in bytes.
pub const CURSOR: u64 = 0;
/// Offset of the register that heads save.
pub const SAVED: u64 = 16;
/// Offsets of the registers that lookups save.
pub const SAVED_RAX: u64 = 24;
pub const SAVED_RCX: u64 = 32;
pub const SAVED_RDX: u64 = 40;
/// Offset of the target that is looked up.
pub const TARGET: u64 = 48;
/// Offset of the address where the thread continues.
pub const DESTINATION: u64 = 56;
/// Offset of the first symbol.
pub const SYMBOLS: u64 = 64;
/// Size of a ring's symbols in bytes.
pub const RING_SIZE: u64 = 1 << 20;
