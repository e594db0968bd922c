//! Tests that corrupt files yield an error or a valid graph, but never a panic.

use crate::common;
use tempfile::TempDir;
use trodden_binary::graph::ProgramGraph;
use trodden_binary::{AddressMap, Binary};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

const BOUNDARY_BYTES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xfe, 0xe9, 0xc3];

fn parse_and_recover(bytes: Vec<u8>) {
    let Ok(binary) = Binary::parse("corrupt".as_ref(), bytes.into()) else { return };
    let _ = AddressMap::read(&binary);
    let Ok(graph) = ProgramGraph::from_binary(&binary) else { return };
    for function in &graph.functions {
        assert!(function.blocks.iter().all(|b| b.size > 0 && b.contains(b.last)));
        assert!(function.blocks.is_sorted_by_key(|b| b.start) && function.edges.is_sorted());
        let count = function.blocks.len() as u32;
        assert!(function.edges.iter().all(|e| e.from.0 < count && e.to.0 < count));
        assert!(function.calls.iter().all(|c| c.block.0 < count));
    }
}

#[test]
fn corrupt_bytes_never_panic() {
    let folder = TempDir::new().unwrap();
    let program = common::compile(&folder, "clang-22", "interpreter.c", &[&["-O2"][..], &common::MAP_OPTIONS].concat());
    let good = std::fs::read(common::strip_program(&program)).unwrap();
    let with_map = std::fs::read(&program).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for trial in 0..1500 {
        let mut bytes = if trial % 4 == 0 { with_map.clone() } else { good.clone() };
        for _ in 0..=random.below(8) {
            // Half of the changes are made in the headers, since these matter most.
            let header = random.below(2) == 0;
            let length = bytes.len();
            let at = match (header, random.below(2)) {
                (true, 0) => random.below(0x400),
                (true, _) => length - 1 - random.below(0x700),
                (false, _) => random.below(length),
            };
            bytes[at] = BOUNDARY_BYTES[random.below(BOUNDARY_BYTES.len())];
        }
        if trial % 10 == 0 {
            bytes.truncate(random.below(good.len()));
        }
        parse_and_recover(bytes);
    }
}
