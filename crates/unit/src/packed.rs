//! Files that carry what one profile says to a later build: a magic, then zstd of
//! [postcard](https://postcard.jamesmunns.com/wire-format) of the content.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;

/// Nothing unpacks to more than this; a larger claim is damage.
const MOST_UNPACKED: u64 = 4 << 30;
/// Nor to so many times its packed size. What builds and runs leave behind is packed to a hundredth at best; files that
/// are made to fill memory, to a ten-thousandth and less.
const MOST_TIMES: u64 = 1024;
/// What any file may unpack to, however small it is.
const ALWAYS: u64 = 16 << 20;

/// The most bytes that so many packed ones may hold.
pub fn most_unpacked(packed: usize) -> u64 {
    (packed as u64).saturating_mul(MOST_TIMES).clamp(ALWAYS, MOST_UNPACKED)
}

/// Unpacks, as a stream: memory is taken only for what is there, whatever the packed bytes claim.
pub fn unpacked(packed: &[u8]) -> Result<Vec<u8>, String> {
    let most = most_unpacked(packed.len());
    let reader = zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    reader.take(most + 1).read_to_end(&mut out).map_err(|e| e.to_string())?;
    if out.len() as u64 > most {
        return Err(format!("its {} packed bytes hold more than {most}, which no such file does", packed.len()));
    }
    Ok(out)
}

/// A file holds something else than it should, or is damaged; says what makes such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongContent(pub &'static str);

/// The content of a file.
pub fn pack<T: Serialize>(magic: &[u8; 8], content: &T) -> Vec<u8> {
    let plain = postcard::to_allocvec(content).expect("the content is plain data");
    let packed = zstd::bulk::compress(&plain, 3).expect("memory can be compressed into memory");
    [&magic[..], &packed].concat()
}

/// What a file holds; `None` if it is another, or damaged.
pub fn unpack<T: DeserializeOwned>(magic: &[u8; 8], bytes: &[u8]) -> Option<T> {
    let packed = bytes.strip_prefix(magic)?;
    postcard::from_bytes(&unpacked(packed).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bombs_are_refused_and_take_no_memory() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
        assert!(bomb.len() < 16 << 10);
        assert!(unpacked(&bomb).unwrap_err().contains("hold more than"));
        assert!(unpack::<Vec<u8>>(b"12345678", &[&b"12345678"[..], &bomb].concat()).is_none());
        let whole = zstd::bulk::compress(&vec![7; 1 << 20], 3).unwrap();
        assert_eq!(unpacked(&whole).unwrap().len(), 1 << 20);
        // The head of a frame that claims four gigabytes, and nothing behind it.
        let claim = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00];
        assert!(unpacked(&claim).map_or(0, |bytes| bytes.capacity()) < 1 << 20);
    }
}
