//! The layout of a ring buffer: words that the instrumented copies of blocks use, and then symbols of 4 bytes each.

/// Offset of the cursor, which is the negative distance in bytes from the next free symbol to the end of the ring.
pub const RING_CURSOR_OFFSET: u64 = 0;
/// Offset of a word that is 1 if the thread takes [order stamps](crate::order_stamps), and 0 otherwise.
pub const TAKES_STAMPS_OFFSET: u64 = 8;
/// Offset of the word in which heads save the program's `rcx`.
pub const SAVED_REGISTERS_OFFSET: u64 = 16;
/// Offsets of the words in which lookups and order stamps save the program's registers.
pub const SAVED_RAX_OFFSET: u64 = 24;
pub const SAVED_RCX_OFFSET: u64 = 32;
pub const SAVED_RDX_OFFSET: u64 = 40;
/// Offset of the jump target that a lookup searches for.
pub const LOOKUP_TARGET_OFFSET: u64 = 48;
/// Offset of the address at which the thread continues after a lookup.
pub const LOOKUP_DESTINATION_OFFSET: u64 = 56;
/// Offset of the first symbol.
pub const RING_SYMBOLS_OFFSET: u64 = 64;
/// Size of a ring's symbols in bytes.
pub const RING_SIZE: u64 = 1 << 20;
