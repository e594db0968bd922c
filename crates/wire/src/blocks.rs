//! The stream of executed blocks that the QEMU plugin writes to a pipe: a file header ([`crate::file_header`], kind BLOCKS), followed by
//! frames, each with a header. A block is described before it is executed. Everything is little-endian.

// Content of each kind of frame:
//
// Block      BlockHeader | size of each instruction, a byte | code
// Executed   words u64: the number of a block, a memory access (bit 63), or [`SIGNAL_HANDLER_RETURN_WORD`]
// Mappings   base u64 | text of /proc/PID/maps, with addresses that are the program's plus `base`
// End        u64: number of threads that were not recorded
// Handler    u64: address of a signal handler that the program installed
// Fork       empty: the program created a child process, which is not recorded
// Exec       empty: the program is about to replace itself; nothing follows if that succeeds

use crate::layout::Layout;

/// Version of files of kind [`crate::file_header::FileKind::BLOCKS`].
pub const VERSION: u32 = 2;
/// Bit that marks a word as a memory access.
pub const MEMORY_ACCESS_BIT: u64 = 1 << 63;
/// Word for a thread's return from a signal handler, by the system call at the end of the preceding block.
pub const SIGNAL_HANDLER_RETURN_WORD: u64 = 1 << 62;
const STORE_ACCESS_BIT: u64 = 1 << 62;
/// Bit position of a memory access's size.
const ACCESS_SIZE_SHIFT: u32 = 58;
/// Bit position of the instruction's number in its block; the lower bits are the address.
const ACCESS_INSTRUCTION_SHIFT: u32 = 48;
const ACCESS_ADDRESS_MASK: u64 = (1 << ACCESS_INSTRUCTION_SHIFT) - 1;
const ACCESS_INSTRUCTION_MASK: u64 = (1 << (ACCESS_SIZE_SHIFT - ACCESS_INSTRUCTION_SHIFT)) - 1;

/// The kind of a frame, which determines the layout of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// The description of a block. It precedes the block's first execution.
    Block = 1,
    /// The words of a thread: the blocks that it executed and its memory accesses, in order.
    Executed = 2,
    /// The mapped files.
    Mappings = 3,
    /// A thread starts.
    ThreadBegins = 4,
    /// A thread ends.
    ThreadEnds = 5,
    /// The program ended. This is the last frame.
    End = 6,
    /// A signal handler was installed.
    Handler = 7,
    /// A child process was created.
    Fork = 8,
    /// The program is about to be replaced by a different program.
    Exec = 9,
}

impl FrameKind {
    /// Returns the kind with this number, or `None` if there is none.
    pub fn from_number(number: u32) -> Option<FrameKind> {
        use FrameKind::{Block, End, Exec, Executed, Fork, Handler, Mappings, ThreadBegins, ThreadEnds};
        [Block, Executed, Mappings, ThreadBegins, ThreadEnds, End, Handler, Fork, Exec].into_iter().find(|k| *k as u32 == number)
    }
}

/// The header of a frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// A [`FrameKind`].
    pub kind: u32,
    /// QEMU's number for the thread, or 0 if the frame is not about a thread.
    pub thread: u32,
    /// Size of the content in bytes.
    pub bytes: u64,
}

impl FrameHeader {
    /// Creates the header of a frame with this content.
    pub fn new(kind: FrameKind, thread: u32, content: &[u8]) -> FrameHeader {
        FrameHeader { kind: kind as u32, thread, bytes: content.len() as u64 }
    }

    /// Returns the header's bytes in the stream.
    pub fn to_bytes(self) -> [u8; FrameHeader::BYTES] {
        let mut bytes = [0; FrameHeader::BYTES];
        self.write(&mut bytes).expect("as many bytes as a header has");
        bytes
    }
}

/// The start of a block's description.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The block's number. Blocks are numbered from 0 in the order of their descriptions.
    pub number: u64,
    /// Address of the first instruction.
    pub address: u64,
    /// Number of instructions.
    pub instructions: u64,
}

impl BlockHeader {
    /// Returns the header's bytes in the stream.
    pub fn to_bytes(self) -> [u8; BlockHeader::BYTES] {
        let mut bytes = [0; BlockHeader::BYTES];
        self.write(&mut bytes).expect("as many bytes as a header has");
        bytes
    }
}

crate::layout::layouts! {
    FrameHeader { kind, thread, bytes }
    BlockHeader { number, address, instructions }
}

/// Encodes a memory access as a word. `size_shift` is the binary logarithm of the access's size in bytes.
pub fn encode_memory_access(instruction: u64, address: u64, size_shift: u32, is_store: bool) -> u64 {
    let store = if is_store { STORE_ACCESS_BIT } else { 0 };
    MEMORY_ACCESS_BIT
        | store
        | u64::from(size_shift & 0xf) << ACCESS_SIZE_SHIFT
        | (instruction & ACCESS_INSTRUCTION_MASK) << ACCESS_INSTRUCTION_SHIFT
        | address & ACCESS_ADDRESS_MASK
}

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Number of the instruction in its block, from 0.
    pub instruction: u64,
    /// Lowest address of the accessed memory.
    pub address: u64,
    /// Size in bytes.
    pub size: u32,
    /// True for a store, false for a load.
    pub is_store: bool,
}

/// Returns the memory access that a word represents, or `None` if the word represents anything else.
pub fn decode_memory_access(word: u64) -> Option<MemoryAccess> {
    let size = 1u32.checked_shl((word >> ACCESS_SIZE_SHIFT) as u32 & 0xf)?;
    let instruction = word >> ACCESS_INSTRUCTION_SHIFT & ACCESS_INSTRUCTION_MASK;
    (word & MEMORY_ACCESS_BIT != 0).then_some(MemoryAccess {
        instruction,
        address: word & ACCESS_ADDRESS_MASK,
        size,
        is_store: word & STORE_ACCESS_BIT != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_access_is_decoded_from_its_word_only() {
        for (address, shift, is_store) in [(0x7fff_1234_5678, 3, true), (0x10, 0, false), (0x40_0000, 6, false)] {
            let access = MemoryAccess { instruction: u64::from(shift) * 100, address, size: 1 << shift, is_store };
            assert_eq!(decode_memory_access(encode_memory_access(access.instruction, address, shift, is_store)), Some(access));
        }
        assert_eq!(decode_memory_access(77), None);
        assert_eq!(FrameKind::from_number(6), Some(FrameKind::End));
        assert_eq!(FrameKind::from_number(10), None);
        assert_eq!(decode_memory_access(SIGNAL_HANDLER_RETURN_WORD), None);
    }
}
