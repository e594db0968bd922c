//! Writes LLVM's raw profile format (version 10, `InstrProfData.inc`), for functions that the text format cannot represent.
//!
//! LLVM's text reader stores the size of a function's bitmap in a byte (`InstrProfReader.cpp`, LLVM 22: `NumBitmapBytes`), so it supports
//! at most 2,040 test vectors. The raw format has 32 bits for this size. Call-site values are not written, because coverage has none.
//!
//! ```text header (16 words) | a record of 64 bytes per function | counters | bitmaps | names, separated by \x01 | padding
//! ```

use md5::{Digest, Md5};
use trodden_profile::FunctionEdges;

/// Maximum size of a function's bitmap in the text format, in bytes.
pub const MAX_BITMAP_BYTES_IN_TEXT: usize = 255;
/// The magic number at the beginning of the file: `\xfflprofr\x81`, little-endian.
const RAW_PROFILE_MAGIC: u64 = 0xff6c_7072_6f66_7281;
/// Version of the raw format. The top byte of the version word holds flags.
const RAW_FORMAT_VERSION: u64 = 10;
const VARIANT_FLAG_MASK: u64 = 0xff << 56;
const LAST_VALUE_KIND: u64 = 2;
const FUNCTION_RECORD_SIZE: i64 = 64;

/// Returns true if a function cannot be written in the text format.
pub fn needs_raw_format(function: &FunctionEdges) -> bool {
    function.bitmap.len() > MAX_BITMAP_BYTES_IN_TEXT && function.values.iter().all(Vec::is_empty)
}

/// Encodes functions in the raw format. `version` is LLVM's version word, of which only the flags are used.
pub fn encode_raw_profile(functions: &[FunctionEdges], version: u64) -> Vec<u8> {
    let names = encode_function_names(functions);
    let counters: usize = functions.iter().map(|f| f.counts.len()).sum();
    let bitmaps: usize = functions.iter().map(|f| f.bitmap.len()).sum();
    let after_bitmaps = padding_size(bitmaps);
    let header = [
        RAW_PROFILE_MAGIC,
        RAW_FORMAT_VERSION | version & VARIANT_FLAG_MASK,
        0, // build identifiers
        functions.len() as u64,
        0, // padding before the counters
        counters as u64,
        0, // padding after them
        bitmaps as u64,
        after_bitmaps as u64,
        names.len() as u64,
        0, // offsets of counters, bitmaps and names, to which pointers are relative
        0,
        0,
        0, // number of vtables, and size of their names
        0,
        LAST_VALUE_KIND,
    ];
    let mut out: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (mut counter, mut bitmap) = (0, 0);
    for (function, at) in functions.iter().zip(0i64..) {
        out.extend(hash_name(function.name.as_bytes()).to_le_bytes());
        out.extend(function.hash.to_le_bytes());
        // Each pointer is relative to the record that contains it.
        out.extend((counter - at * FUNCTION_RECORD_SIZE).to_le_bytes());
        out.extend((bitmap - at * FUNCTION_RECORD_SIZE).to_le_bytes());
        out.extend([0; 16]); // the function's address, and that of its values
        out.extend((function.counts.len() as u32).to_le_bytes());
        out.extend([0; 8]); // number of value sites of each of three kinds, and padding
        out.extend((function.bitmap.len() as u32).to_le_bytes());
        counter += 8 * function.counts.len() as i64;
        bitmap += function.bitmap.len() as i64;
    }
    functions.iter().flat_map(|f| &f.counts).for_each(|count| out.extend(count.to_le_bytes()));
    functions.iter().for_each(|f| out.extend(&f.bitmap));
    out.resize(out.len() + after_bitmaps, 0);
    out.extend(&names);
    out.resize(out.len() + padding_size(names.len()), 0);
    out
}

/// Encodes names as LLVM does: size and compressed size (0 if uncompressed) as ULEB128, then the text.
fn encode_function_names(functions: &[FunctionEdges]) -> Vec<u8> {
    let text = functions.iter().map(|f| f.name.as_bytes()).collect::<Vec<_>>().join(&1);
    let mut out = Vec::with_capacity(text.len() + 12);
    let mut rest = text.len();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.extend([rest as u8, 0]);
    out.extend(text);
    out
}

/// Returns LLVM's hash of a name: the first eight bytes of its MD5.
fn hash_name(name: &[u8]) -> u64 {
    u64::from_le_bytes(Md5::digest(name)[..8].try_into().expect("sixteen bytes"))
}

fn padding_size(size: usize) -> usize {
    size.next_multiple_of(8) - size
}
