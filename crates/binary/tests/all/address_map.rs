//! Compares the parser of the compiler's address map with LLVM's own, for compiled programs and for generated files of each version.

use crate::common;
use object::{Object, ObjectSection};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use trodden_binary::{AddressMap, MapBlock};

fn read_with_llvm(file: &Path) -> Vec<Value> {
    let output =
        Command::new("llvm-readobj-22").args(["--elf-output-style=JSON", "--bb-addr-map"]).arg(file).output().expect("llvm-readobj-22");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    all[0]["BBAddrMap"].as_array().expect("functions").iter().map(|f| f["Function"].clone()).collect()
}

fn extract_map(file: &Path) -> Vec<u8> {
    let data = std::fs::read(file).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let sections = file.sections().filter(|s| s.name() == Ok(".llvm_bb_addr_map"));
    sections.flat_map(|s| s.data().unwrap().to_vec()).collect()
}

fn compare_with_llvm(file: &Path) -> AddressMap {
    let own = AddressMap::parse(&extract_map(file)).unwrap();
    let theirs = read_with_llvm(file);
    assert_eq!(own.functions.len(), theirs.len());
    for (function, expected) in own.functions.iter().zip(&theirs) {
        assert_eq!(Some(function.address), expected["At"].as_u64());
        let mut blocks = function.blocks.iter();
        for range in expected["BB Ranges"].as_array().unwrap() {
            let base = range["Base Address"].as_u64().unwrap();
            for entry in range["BB Entries"].as_array().unwrap() {
                compare_block(blocks.next().expect("a block"), base, entry);
            }
        }
        assert!(blocks.next().is_none(), "more blocks than LLVM reads");
        let analysis = &expected["PGO analyses"];
        assert_eq!(function.entry_count, analysis["FuncEntryCount"].as_u64());
        for (block, entry) in function.blocks.iter().zip(analysis["PGO BB entries"].as_array().into_iter().flatten()) {
            compare_analysis(block, entry);
        }
    }
    own
}

fn compare_block(block: &MapBlock, base: u64, entry: &Value) {
    let is = |name: &str| entry[name].as_bool().unwrap();
    assert_eq!(Some(u64::from(block.id)), entry["ID"].as_u64());
    assert_eq!(block.address, base + entry["Offset"].as_u64().unwrap());
    assert_eq!(Some(block.size), entry["Size"].as_u64());
    let properties = block.properties;
    assert_eq!(properties.returns, is("HasReturn"));
    assert_eq!(properties.has_tail_call, is("HasTailCall"));
    assert_eq!(properties.is_landing_pad, is("IsEHPad"));
    assert_eq!(properties.falls_through, is("CanFallThrough"));
    assert_eq!(properties.has_indirect_jump, is("HasIndirectBranch"));
    let call_ends: Vec<u64> =
        entry["Callsite End Offsets"].as_array().into_iter().flatten().map(|o| block.address + o.as_u64().unwrap()).collect();
    assert_eq!(block.call_ends, call_ends);
}

fn compare_analysis(block: &MapBlock, entry: &Value) {
    assert_eq!(block.frequency, entry["Frequency"].as_u64());
    let successors = entry["Successors"].as_array().into_iter().flatten();
    let expected: Vec<(u64, u64)> = successors.map(|s| (s["ID"].as_u64().unwrap(), s["Probability"].as_u64().unwrap())).collect();
    let own: Vec<(u64, u64)> = block.successors.iter().flatten().map(|s| (u64::from(s.id), u64::from(s.probability))).collect();
    assert_eq!(own, expected);
}

#[test]
fn maps_of_programs_agree_with_llvm() {
    let folder = TempDir::new().unwrap();
    for (compiler, name) in [("clang-22", "interpreter.c"), ("clang++-22", "shapes.cpp")] {
        let program = common::compile(
            &folder,
            compiler,
            name,
            &[&["-O2", "-std=c++17"][..usize::from(compiler == "clang++-22") + 1], &common::MAP_OPTIONS].concat(),
        );
        let map = compare_with_llvm(&program);
        assert!(map.functions.len() > 5 && map.functions.iter().all(|f| f.blocks.iter().all(|b| b.frequency.is_some())));
        let binary = common::read(&program);
        let read = AddressMap::read(&binary).unwrap().expect("it has a map");
        assert!(read.functions.iter().is_sorted_by_key(|f| f.address) && read.functions.len() <= map.functions.len());
    }
}

/// Returns the YAML description of a file whose map has one entry with the given version and features.
fn describe_map(version: u8, feature: u8, calls: bool, hash: bool) -> String {
    let calls = if calls { "\n                CallsiteEndOffsets: [ 1, 3 ]" } else { "" };
    let hash = if hash { "\n                Hash: 0x123456789abcdef0" } else { "" };
    format!(
        "--- !ELF\nFileHeader: {{ Class: ELFCLASS64, Data: ELFDATA2LSB, Type: ET_EXEC, Machine: EM_X86_64 }}\nSections:
  - Name: .llvm_bb_addr_map\n    Type: SHT_LLVM_BB_ADDR_MAP\n    Entries:
      - Version: {version}\n        Feature: 0x{feature:x}\n        BBRanges:
          - BaseAddress: 0x11110\n            BBEntries:
              - ID: 3\n                AddressOffset: 0x0\n                Size: 0x8\n                Metadata: 0x8{calls}{hash}
              - ID: 7\n                AddressOffset: 0x2\n                Size: 0x4\n                Metadata: 0x15{calls}{hash}
          - BaseAddress: 0x22220\n            BBEntries:
              - ID: 9\n                AddressOffset: 0x10\n                Size: 0x300\n                Metadata: 0x2{calls}{hash}
    PGOAnalyses:
      - FuncEntryCount: 1000\n        PGOBBEntries:
          - {{ BBFreq: 900, Successors: [ {{ ID: 7, BrProb: 0x40000000 }}, {{ ID: 9, BrProb: 0x40000000 }} ] }}
          - {{ BBFreq: 100000000000, Successors: [ ] }}
          - {{ BBFreq: 3, Successors: [ ] }}\n"
    )
}

#[test]
fn maps_of_every_version_agree_with_llvm() {
    let folder = TempDir::new().unwrap();
    // The features are entry count, frequencies, probabilities and ranges; from version 3 on also calls, and from version 4 on hashes.
    for (version, feature) in [(2, 0x0f), (3, 0x2f), (4, 0x6f), (5, 0x6f)] {
        let text = folder.path().join("map.yaml");
        let file = folder.path().join("map.elf");
        std::fs::write(&text, describe_map(version, feature, version >= 3, version >= 4)).unwrap();
        common::run(Command::new("yaml2obj-22").arg(&text).arg("-o").arg(&file));
        let map = compare_with_llvm(&file);
        let [function] = &map.functions[..] else { panic!("one function") };
        assert_eq!((function.version, function.blocks.len(), function.entry_count), (version, 3, Some(1000)));
        assert_eq!(function.blocks[2].address, 0x22230);
        assert_eq!(function.blocks[0].hash, (version >= 4).then_some(0x1234_5678_9abc_def0));
        assert_eq!(function.blocks[0].call_ends.len(), if version >= 3 { 2 } else { 0 });
    }
}

#[test]
fn side_build_must_have_the_same_code() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let plain = common::compile(&one, "clang-22", "interpreter.c", &["-O2"]);
    let side = common::compile(&two, "clang-22", "interpreter.c", &[&["-O2"][..], &common::MAP_OPTIONS].concat());
    let map = AddressMap::from_side_build(&common::read(&plain), &common::read(&side)).unwrap();
    assert!(map.functions.iter().any(|f| f.blocks.len() > 5));
    let without = AddressMap::from_side_build(&common::read(&plain), &common::read(&plain)).unwrap_err().to_string();
    assert!(without.contains("no section .llvm_bb_addr_map") && without.contains("-fbasic-block-address-map"), "{without}");
    let other = common::compile(&two, "clang-22", "interpreter.c", &[&["-O1"][..], &common::MAP_OPTIONS].concat());
    let differs = AddressMap::from_side_build(&common::read(&plain), &common::read(&other)).unwrap_err().to_string();
    assert!(differs.contains("code differs") && differs.contains("0x"), "{differs}");
}
