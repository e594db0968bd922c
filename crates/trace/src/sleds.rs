//! Witness sleds: no-op sequences that the compiler plugin puts at the start of blocks ([`WITNESS_SLED_INSTRUCTION`]) in programs built for
//! tracing. A jump fits into a sled whatever else the block contains, and no instruction needs to be moved.

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::collections::HashMap;
use std::ops::Range;
use trodden_binary::Binary;
use trodden_wire::WITNESS_SLED_INSTRUCTION;

/// Returns the address of the sled in each block that has one, by the block's start. The code before a sled contains no call, and always
/// runs before it.
pub fn find_sleds_in_blocks(code: &[(u64, Vec<u8>)], blocks: &[Range<u64>]) -> HashMap<u64, u64> {
    blocks.iter().filter_map(|block| Some((block.start, find_sled_in_block(code, block)?))).collect()
}

fn find_sled_in_block(code: &[(u64, Vec<u8>)], block: &Range<u64>) -> Option<u64> {
    let (start, bytes) = code.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&block.start))?;
    let end = (block.end - start).min(bytes.len() as u64) as usize;
    let bytes = &bytes[(block.start - start) as usize..end];
    for instruction in &mut Decoder::with_ip(64, bytes, block.start, DecoderOptions::NONE) {
        let at = (instruction.ip() - block.start) as usize;
        if bytes[at..].starts_with(&WITNESS_SLED_INSTRUCTION) {
            return Some(instruction.ip());
        }
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return None;
        }
    }
    None
}

/// Returns the address of the first sled in a file's code.
pub fn find_first_sled(binary: &Binary) -> Option<u64> {
    let code = binary.segments().iter().filter(|s| s.is_executable);
    code.filter_map(|segment| {
        let bytes = binary.bytes_at(segment.address)?;
        let place = bytes.windows(WITNESS_SLED_INSTRUCTION.len()).position(|window| window == WITNESS_SLED_INSTRUCTION)?;
        Some(segment.address + place as u64)
    })
    .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sled_is_found_up_to_the_first_call() {
        // push rbp; the sled; call rax; the sled; ret
        let code = [&[0x55][..], &WITNESS_SLED_INSTRUCTION, &[0xff, 0xd0], &WITNESS_SLED_INSTRUCTION, &[0xc3]].concat();
        let (end, code) = (0x1000 + code.len() as u64, [(0x1000, code)]);
        let blocks = [0x1000..0x1009, 0x1009..end, 0x100b..end];
        assert_eq!(find_sleds_in_blocks(&code, &blocks), HashMap::from([(0x1000, 0x1001), (0x100b, 0x100b)]));
        // The end of the block truncates the sled.
        assert!(find_sleds_in_blocks(&code, std::slice::from_ref(&(0x1001..0x1008))).is_empty());
    }
}
