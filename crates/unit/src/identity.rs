//! Identities of units, images and input files, which are hashes of their content.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Identity of a compilation unit (a hash of its bitcode and of how it was instrumented), of an executable or shared library, or of an
/// input file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity(pub [u8; 16]);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Identity {
    /// Returns the identity of some content: its 128-bit XXH3 hash.
    pub fn from_content(content: &[u8]) -> Identity {
        Identity(xxhash_rust::xxh3::xxh3_128(content).to_le_bytes())
    }

    /// Parses the 32 hexadecimal digits that [`fmt::Display`] writes; `None` for other text.
    pub fn parse(text: &str) -> Option<Identity> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Identity(bytes))
    }
}
