//! Links the graphs of a program and some of its shared libraries to one graph.
//!
//! Each file gets its own range of linked addresses. The low 48 bits are the address in the file, and the bits above are the number of the
//! file. The program has number 0 and keeps its addresses; libraries are numbered from 1. File addresses are below 2^47, so the ranges do
//! not overlap.

use crate::graph::{CodeCallee, FunctionGraph, GraphDoubt, GraphObservation, ProgramGraph};
use std::collections::BTreeMap;

const ADDRESS_RANGE_SIZE_PER_FILE: u64 = 1 << 48;

/// Returns the first linked address of a file, which is 0 for the program (file number 0).
pub fn base_address(file: usize) -> u64 {
    file as u64 * ADDRESS_RANGE_SIZE_PER_FILE
}

/// Splits a linked address into the number of the file and the address in this file.
pub fn split_address(address: u64) -> (usize, u64) {
    ((address / ADDRESS_RANGE_SIZE_PER_FILE) as usize, address % ADDRESS_RANGE_SIZE_PER_FILE)
}

impl ProgramGraph {
    /// Links the graphs of a program and its libraries, given in order of file number. `exports` contains the linked addresses of exported
    /// functions by name. Calls to imports with such a name become calls to the exported function.
    pub fn link_files(files: Vec<ProgramGraph>, exports: &BTreeMap<String, u64>) -> ProgramGraph {
        let mut all = ProgramGraph::default();
        for (number, mut graph) in files.into_iter().enumerate() {
            graph.shift_addresses(base_address(number));
            all.functions.append(&mut graph.functions);
            all.stubs.append(&mut graph.stubs);
            all.stub_ranges.append(&mut graph.stub_ranges);
            all.code_ranges.append(&mut graph.code_ranges);
            all.unknown_ranges.append(&mut graph.unknown_ranges);
            all.observations.append(&mut graph.observations);
        }
        for call in all.functions.iter_mut().flat_map(|f| &mut f.calls) {
            let CodeCallee::Import(name) = &call.callee else { continue };
            if let Some(entry) = exports.get(name.split('@').next().unwrap_or(name)) {
                call.callee = CodeCallee::Function(*entry);
            }
        }
        all
    }

    fn shift_addresses(&mut self, by: u64) {
        self.functions.iter_mut().for_each(|f| f.shift_addresses(by));
        for stub in &mut self.stubs {
            stub.address += by;
            stub.resolver = stub.resolver.map(|r| r + by);
        }
        let ranges = self.stub_ranges.iter_mut().chain(&mut self.code_ranges).chain(&mut self.unknown_ranges);
        ranges.for_each(|r| *r = r.start + by..r.end + by);
        self.observations.iter_mut().for_each(|o| *o = GraphObservation { from: o.from + by, to: o.to + by });
    }
}

impl FunctionGraph {
    fn shift_addresses(&mut self, by: u64) {
        self.entry += by;
        self.other_entries.iter_mut().for_each(|e| *e += by);
        self.ranges.iter_mut().for_each(|r| *r = r.start + by..r.end + by);
        for block in &mut self.blocks {
            block.start += by;
            block.last += by;
        }
        for call in &mut self.calls {
            call.address += by;
            call.return_address = call.return_address.map(|a| a + by);
            call.landing_pad = call.landing_pad.map(|a| a + by);
            match &mut call.callee {
                CodeCallee::Function(entry) => *entry += by,
                CodeCallee::OneOf(entries) => entries.iter_mut().for_each(|e| *e += by),
                CodeCallee::Import(_) | CodeCallee::Indirect => {}
            }
        }
        self.landing_pads.iter_mut().for_each(|p| *p += by);
        for uncertain in &mut self.uncertain {
            uncertain.address += by;
            match &mut uncertain.doubt {
                GraphDoubt::JumpTableWithoutBound { table: place, .. }
                | GraphDoubt::OutsideCode { target: place }
                | GraphDoubt::AddedEdge { target: place } => {
                    *place = place.wrapping_add(by);
                }
                GraphDoubt::UnresolvedJump
                | GraphDoubt::MoreTargets
                | GraphDoubt::AnyLabel
                | GraphDoubt::AssumedTailCall
                | GraphDoubt::Overlap
                | GraphDoubt::Undecodable
                | GraphDoubt::Unreached { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Binary;
    use std::path::Path;

    #[test]
    fn linked_address_splits_into_file_and_address() {
        assert_eq!(split_address(base_address(3) + 0x1234), (3, 0x1234));
        assert_eq!(split_address(0x40_1000), (0, 0x40_1000));
    }

    #[test]
    fn every_address_of_library_is_shifted() {
        let binary = Binary::read(Path::new("/bin/true")).unwrap();
        let own = ProgramGraph::from_binary(&binary).unwrap();
        assert!(!own.functions.is_empty());
        let linked = ProgramGraph::link_files(vec![ProgramGraph::default(), own.clone()], &BTreeMap::new());
        assert_eq!(linked.functions.len(), own.functions.len());
        for (moved, original) in linked.functions.iter().zip(&own.functions) {
            assert_eq!(split_address(moved.entry), (1, original.entry));
            assert_eq!(moved.edges, original.edges);
            assert!(
                moved
                    .blocks
                    .iter()
                    .zip(&original.blocks)
                    .all(|(m, o)| split_address(m.start) == (1, o.start) && split_address(m.last) == (1, o.last))
            );
            for (m, o) in moved.calls.iter().zip(&original.calls) {
                assert_eq!(
                    (split_address(m.address), m.return_address.map(split_address)),
                    ((1, o.address), o.return_address.map(|a| (1, a)))
                );
                if let (CodeCallee::Function(m), CodeCallee::Function(o)) = (&m.callee, &o.callee) {
                    assert_eq!(split_address(*m), (1, *o));
                }
            }
        }
    }

    #[test]
    fn calls_of_imports_become_calls_of_exports() {
        let call = crate::graph::CallSite {
            block: crate::graph::BlockIndex(0),
            address: 16,
            return_address: Some(21),
            callee: CodeCallee::Import("deflate@ZLIB_1".to_owned()),
            kind: crate::graph::CallKind::Call,
            returns: crate::graph::CallReturns::Maybe,
            landing_pad: None,
            always_lands: false,
        };
        let function = FunctionGraph {
            name: "main".to_owned(),
            has_symbol: true,
            entry: 16,
            other_entries: Vec::new(),
            ranges: Vec::from([16..32; 1]),
            blocks: Vec::new(),
            edges: Vec::new(),
            calls: vec![call],
            landing_pads: Vec::new(),
            source: crate::graph::GraphSource::Recovered,
            uncertain: Vec::new(),
            is_address_taken: false,
            returns: true,
            frequencies: None,
        };
        let program = ProgramGraph { functions: vec![function], ..ProgramGraph::default() };
        let deflate = base_address(1) + 0x40;
        let linked = ProgramGraph::link_files(vec![program], &BTreeMap::from([("deflate".to_owned(), deflate)]));
        assert_eq!(linked.functions[0].calls[0].callee, CodeCallee::Function(deflate));
    }
}
