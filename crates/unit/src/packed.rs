//! Files that carry what one profile says to a later build: a magic, then zstd of [postcard](https://postcard.jamesmunns.com/wire-format) of the content.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// No file unpacks to more than this; a larger claim is damage.
const MOST_UNPACKED: usize = 1 << 30;

/// The content of a file.
pub fn pack<T: Serialize>(magic: &[u8; 8], content: &T) -> Vec<u8> {
    let plain = postcard::to_allocvec(content).expect("the content is plain data");
    let packed = zstd::bulk::compress(&plain, 3).expect("memory can be compressed into memory");
    [&magic[..], &packed].concat()
}

/// What a file holds; `None` if it is another, or damaged.
pub fn unpack<T: DeserializeOwned>(magic: &[u8; 8], bytes: &[u8]) -> Option<T> {
    let packed = bytes.strip_prefix(magic)?;
    let size = zstd::bulk::Decompressor::upper_bound(packed).unwrap_or(MOST_UNPACKED).min(MOST_UNPACKED);
    let plain = zstd::bulk::decompress(packed, size).ok()?;
    postcard::from_bytes(&plain).ok()
}
