//! Compares the graphs of stripped programs with the compiler's address map of the same code.
//!
//! The map describes LLVM's machine blocks, which exclude padding, may end with two branches, and need not start at the target of a branch.
//! Therefore two comparisons are made. Edges from machine blocks that end with a branch must lead to the first instruction after padding at
//! the target. Each start of a block must be a start in the map, or follow a branch or a call that never returns.

use crate::common;
use iced_x86::Mnemonic;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use tempfile::TempDir;
use trodden_binary::graph::{BlockEnd, CallKind, CodeCallee, CodeEdgeKind, FunctionGraph, GraphDoubt, GraphSource, ProgramGraph};
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction};
use trodden_binary::{AddressMap, Binary, MapBlock, recover};

/// Percentage of the block starts and edges in the map that recovery must find, apart from dead code.
const MIN_PERCENT_FOUND: f64 = 99.9;

struct AddressMapComparison {
    starts: usize,
    starts_found: usize,
    edges: usize,
    edges_found: usize,
    /// Starts and edges that are in the graph but not in the map.
    wrong: Vec<(u64, u64)>,
    missing: Vec<(u64, u64)>,
}

fn skip_padding(binary: &Binary, mut at: u64) -> u64 {
    while let Some(instruction) = binary.code_at(at).and_then(|code| decode_instruction(code, at)).filter(|i| i.mnemonic() == Mnemonic::Nop)
    {
        at = instruction.next_ip();
    }
    at
}

/// Returns the address after each branch that ends a block.
fn find_addresses_after_branches(binary: &Binary, graph: &ProgramGraph) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for block in graph.functions.iter().flat_map(|f| &f.blocks) {
        let instruction = decode_instruction(binary.code_at(block.last).unwrap(), block.last).unwrap();
        if matches!(
            classify_branch(&instruction),
            Some(
                BranchInstruction::Conditional(_)
                    | BranchInstruction::Jump(_)
                    | BranchInstruction::IndirectJump
                    | BranchInstruction::Return
            )
        ) {
            found.insert(instruction.next_ip());
        }
    }
    found
}

fn compare_with_map(binary: &Binary, map: &AddressMap, graph: &ProgramGraph) -> AddressMapComparison {
    let blocks: BTreeMap<u64, &MapBlock> =
        map.functions.iter().flat_map(|f| &f.blocks).filter(|b| b.size > 0).map(|b| (b.address, b)).collect();
    let containing = |at: u64| blocks.range(..=at).next_back().map(|(_, b)| *b).filter(|b| at < b.address + b.size);
    let branches = find_addresses_after_branches(binary, graph);
    let all_blocks = graph.functions.iter().flat_map(|f| &f.blocks);
    let after_calls: BTreeSet<u64> = all_blocks.filter(|b| b.end == BlockEnd::CallWithoutReturn).map(|b| b.end_address()).collect();
    let (mut edges, mut starts) = (BTreeSet::new(), BTreeSet::new());
    let mut pads = BTreeSet::new();
    for function in &map.functions {
        let by_id: HashMap<u32, &MapBlock> = function.blocks.iter().map(|b| (b.id, b)).collect();
        starts.insert(function.address);
        pads.extend(function.blocks.iter().filter(|b| b.properties.is_landing_pad && b.size > 0).map(|b| b.address));
        for block in function.blocks.iter().filter(|b| b.size > 0 && branches.contains(&(b.address + b.size))) {
            let targets = block.successors.iter().flatten().map(|s| by_id[&s.id]).filter(|b| !b.properties.is_landing_pad);
            edges.extend(targets.map(|to| (block.address + block.size, skip_padding(binary, to.address))));
        }
    }
    starts.extend(edges.iter().map(|(_, to)| *to));
    starts.extend(pads);
    let (mut own_edges, mut own_starts, mut wrong) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for function in &graph.functions {
        for block in function.blocks.iter().filter(|b| containing(b.start).is_some()) {
            let start = skip_padding(binary, block.start);
            own_starts.insert(start);
            if !blocks.contains_key(&start) && !branches.contains(&block.start) && !after_calls.contains(&block.start) {
                wrong.push((block.start, block.start));
            }
        }
        for edge in function.edges.iter().filter(|e| e.kind != CodeEdgeKind::Unwind) {
            let (from, to) = (function.block(edge.from), skip_padding(binary, function.block(edge.to).start));
            let Some(block) = containing(from.last) else { continue };
            let end = block.address + block.size;
            let stays_inside = to > from.start && to < end && !blocks.contains_key(&to);
            if !stays_inside && branches.contains(&from.end_address()) && branches.contains(&end) {
                own_edges.insert((end, to));
            }
        }
    }
    wrong.extend(own_edges.difference(&edges));
    let missing: Vec<(u64, u64)> = edges.difference(&own_edges).copied().chain(starts.difference(&own_starts).map(|s| (*s, *s))).collect();
    AddressMapComparison {
        starts: starts.len(),
        starts_found: starts.intersection(&own_starts).count(),
        edges: edges.len(),
        edges_found: edges.intersection(&own_edges).count(),
        wrong,
        missing,
    }
}

/// Asserts that recovery finds at least [`MIN_PERCENT_FOUND`] of the block starts and edges in the map, and no others. Dead code after
/// calls that never return does not count: it is in the map but not in the graph.
fn assert_graph_matches_map(what: &str, program: &Path) {
    let with_map = common::read(program);
    let binary = common::read(&common::strip_program(program));
    let map = AddressMap::from_side_build(&binary, &with_map).unwrap();
    let graph = recover(&binary, None, &[]).unwrap();
    assert!(graph.functions.iter().all(|f| f.source == GraphSource::Recovered && !f.has_symbol));
    let mut compared = compare_with_map(&binary, &map, &graph);
    let unreached: Vec<(u64, u64)> = graph
        .functions
        .iter()
        .flat_map(|f| &f.uncertain)
        .filter_map(|u| if let GraphDoubt::Unreached { size } = u.doubt { Some((u.address, u.address + size + 1)) } else { None })
        .collect();
    let is_dead = |at: u64| unreached.iter().any(|(from, to)| (*from..=*to).contains(&at));
    let before = compared.missing.len();
    compared.missing.retain(|(from, to)| !is_dead(*from) && !is_dead(*to));
    let dead = before - compared.missing.len();
    let percent = 100.0 * (1.0 - compared.missing.len() as f64 / (compared.starts + compared.edges) as f64);
    println!(
        "{what}: block starts {} of {}, edges {} of {}; {percent:.2} % without {dead} of dead code; {} not in the map",
        compared.starts_found,
        compared.starts,
        compared.edges_found,
        compared.edges,
        compared.wrong.len()
    );
    for function in &map.functions {
        assert!(graph.function_entered_at(function.address).is_some(), "{what}: no function at {:#x}", function.address);
    }
    assert!(percent >= MIN_PERCENT_FOUND, "{what}: missing {:x?}", compared.missing);
    assert_eq!(compared.wrong, [], "{what}");
    assert!(compared.edges > 50, "{what}");
}

#[test]
fn graphs_of_c_programs_match_the_map() {
    for options in
        [&["-O0"][..], &["-O2"], &["-O2", "-fPIE", "-pie", "-fno-plt"], &["-O2", "-no-pie"], &["-Os"], &["-O3", "-fcf-protection=full"]]
    {
        let folder = TempDir::new().unwrap();
        let program = common::compile(&folder, "clang-22", "interpreter.c", &[options, &common::MAP_OPTIONS].concat());
        assert_graph_matches_map(&format!("interpreter.c {}", options.join(" ")), &program);
    }
}

#[test]
fn graph_of_cpp_program_with_exceptions_matches_the_map() {
    let folder = TempDir::new().unwrap();
    let program = common::compile(&folder, "clang++-22", "shapes.cpp", &[&["-O2", "-std=c++17"][..], &common::MAP_OPTIONS].concat());
    assert_graph_matches_map("shapes.cpp -O2", &program);
}

#[test]
fn graph_of_rust_program_matches_the_map() {
    let folder = TempDir::new().unwrap();
    let map = "llvm-args=--basic-block-address-map --pgo-analysis-map=func-entry-count,bb-freq,br-prob";
    let program = common::compile(&folder, "rustc", "evaluator.rs", &["-C", "opt-level=3", "-C", map]);
    assert_graph_matches_map("evaluator.rs", &program);
}

#[test]
fn jump_tables_of_enumerations_without_check_are_bounded() {
    let folder = TempDir::new().unwrap();
    let map = "llvm-args=--basic-block-address-map --pgo-analysis-map=func-entry-count,bb-freq,br-prob";
    let program = common::compile(&folder, "rustc", "decoder.rs", &["-C", "opt-level=3", "-C", map]);
    assert_graph_matches_map("decoder.rs", &program);
    let graph = recover(&common::read(&common::strip_program(&program)), None, &[]).unwrap();
    let overlapping =
        graph.functions.iter().flat_map(|f| &f.uncertain).filter(|u| matches!(u.doubt, GraphDoubt::Overlap | GraphDoubt::Undecodable));
    assert_eq!(overlapping.count(), 0);
}

/// Reads a program after removing its section headers, as the tool `sstrip` does.
fn read_without_section_headers(program: &Path) -> Binary {
    let mut data = std::fs::read(program).unwrap();
    let binary = common::read(program);
    let end = binary.segments().iter().map(|s| s.file_offset + s.file_size).max().unwrap();
    data.truncate(end as usize);
    // Clears the offset and number of the section headers, and the index of their string table.
    data[40..48].fill(0);
    data[60..64].fill(0);
    Binary::parse(program, data.into()).unwrap()
}

/// The entry of a function, the start and size of its blocks, and the numbers of its edges and calls.
type FunctionShape = (u64, Vec<(u64, u64)>, [usize; 2]);

fn graph_shapes(binary: &Binary) -> Vec<FunctionShape> {
    let graph = recover(binary, None, &[]).unwrap();
    let blocks = |f: &FunctionGraph| f.blocks.iter().map(|b| (b.start, b.size)).collect();
    graph.functions.iter().map(|f| (f.entry, blocks(f), [f.edges.len(), f.calls.len()])).collect()
}

#[test]
fn graphs_do_not_depend_on_section_headers() {
    let folder = TempDir::new().unwrap();
    for (compiler, source, options) in
        [("gcc", "interpreter.c", &["-O2"][..]), ("g++", "shapes.cpp", &["-O2", "-Wl,-z,lazy", "-fcf-protection=full"])]
    {
        let program = common::strip_program(&common::compile(&folder, compiler, source, options));
        let (with, without) = (common::read(&program), read_without_section_headers(&program));
        // Without the path of the loader, the libraries of the program could not be listed.
        assert_eq!(without.section(".interp"), with.section(".interp"));
        let (with, without) = (graph_shapes(&with), graph_shapes(&without));
        assert!(with.len() > 10, "{source}");
        let differs = with.iter().find(|f| !without.contains(f)).or_else(|| without.iter().find(|f| !with.contains(f)));
        let other = differs.and_then(|f| without.iter().rfind(|o| o.0 <= f.0));
        assert_eq!(differs, None, "{source}: {} and {} functions; {other:?}", with.len(), without.len());
    }
}

/// Returns the number of calls with a landing pad that no exception bypasses, and the number of other calls with a landing pad.
fn count_landing_pads(compiler: &str, source: &str) -> (usize, usize) {
    let folder = TempDir::new().unwrap();
    let program = common::compile(&folder, compiler, source, &["-O"]);
    let graph = recover(&common::read(&program), None, &[]).unwrap();
    let calls = || graph.functions.iter().flat_map(|f| &f.calls).filter(|c| c.landing_pad.is_some());
    (calls().filter(|c| c.always_lands).count(), calls().filter(|c| !c.always_lands).count())
}

#[test]
fn bypassable_landing_pads_are_distinguished() {
    // In Rust, every landing pad cleans up, catches everything, or aborts.
    let (lands, passes) = count_landing_pads("rustc", "evaluator.rs");
    assert!(lands > 50 && passes == 0, "{lands} {passes}");
    // Two pads are cleanups, and one catches everything. The fourth catches a single type, so other exceptions bypass it.
    assert_eq!(count_landing_pads("g++", "catches.cpp"), (3, 1));
}

#[test]
fn frequencies_come_from_the_map() {
    let folder = TempDir::new().unwrap();
    let program = common::compile(&folder, "clang-22", "interpreter.c", &[&["-O2"][..], &common::MAP_OPTIONS].concat());
    let graph = ProgramGraph::from_binary(&common::read(&program)).unwrap();
    let main = graph.functions_named("main").next().expect("main");
    assert!(matches!(main.source, GraphSource::AddressMap { version: 2..=5 }));
    let frequencies = main.frequencies.as_ref().expect("frequencies");
    assert_eq!((frequencies.blocks.len(), frequencies.edges.len()), (main.blocks.len(), main.edges.len()));
    for (place, block) in main.blocks.iter().enumerate() {
        let index = trodden_binary::graph::BlockIndex(place as u32);
        let out: Vec<usize> = (0..main.edges.len()).filter(|e| main.edges[*e].from == index).collect();
        let sum: f64 = out.iter().map(|e| frequencies.edges[*e]).sum();
        assert!(out.is_empty() || (sum - 1.0).abs() < 1e-3, "block {:#x}: {sum}", block.start);
    }
}

#[test]
fn jumps_are_resolved_again_when_more_code_is_known() {
    let folder = TempDir::new().unwrap();
    let program = common::compile(&folder, "gcc", "switches.s", &["-no-pie"]);
    let graph = recover(&common::read(&program), None, &[]).unwrap();
    for (name, is_certain) in [("states", false), ("cold_first", true)] {
        let function = graph.functions.iter().find(|f| f.name == name).unwrap();
        let jump = function.blocks.iter().position(|b| b.end == BlockEnd::IndirectJump).unwrap();
        assert_eq!(function.edges.iter().filter(|edge| edge.from.0 as usize == jump).count(), 3, "{name}: {function:#?}");
        assert_eq!(function.other_entries, [0_u64; 0], "{name}");
        assert_eq!(function.uncertain.is_empty(), is_certain, "{name}: {:?}", function.uncertain);
    }
    let chain = graph.functions.iter().find(|f| f.name == "chain").unwrap();
    assert_eq!((chain.calls.len(), &chain.uncertain[..]), (30, &[][..]));
    // The address of a function without unwind information and symbol is found in data.
    let symbols = std::process::Command::new("nm").arg(&program).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let bare = symbols.lines().find_map(|line| line.strip_suffix(" t bare")).unwrap();
    let bare = u64::from_str_radix(bare, 16).unwrap();
    let stripped = recover(&common::read(&common::strip_program(&program)), None, &[]).unwrap();
    assert!(stripped.functions.iter().any(|f| f.blocks.iter().any(|block| block.start == bare)), "{bare:#x}");
}

/// Returns the transfers of control that leave a function by a jump: for each, the name of the function that is entered, and whether it is
/// one of several ways out of its block. `?` stands for unknown functions.
fn tail_calls<'g>(graph: &'g ProgramGraph, name: &str) -> Vec<(&'g str, bool)> {
    let function = graph.functions_named(name).next().unwrap_or_else(|| panic!("no {name}"));
    let tails = function.calls.iter().filter(|call| call.kind != CallKind::Call);
    let entered = tails.map(|call| match call.callee {
        CodeCallee::Function(entry) => (&*graph.functions.iter().find(|f| f.entry == entry).unwrap().name, call.kind != CallKind::TailCall),
        CodeCallee::Indirect => ("?", call.kind != CallKind::TailCall),
        ref other => panic!("{other:?}"),
    });
    entered.collect()
}

#[test]
fn functions_with_several_entries_are_split() {
    let folder = TempDir::new().unwrap();
    let program = common::compile(&folder, "gcc", "entries.s", &["-no-pie"]);
    let graph = recover(&common::read(&program), None, &[]).unwrap();
    assert!(graph.functions.iter().all(|f| f.other_entries.is_empty()));
    let block_count = |name: &str| graph.functions_named(name).next().unwrap().blocks.len();
    assert_eq!(tail_calls(&graph, "first"), [("first+0x13", true), ("first+0x9", false)]);
    assert_eq!(tail_calls(&graph, "first+0x9"), [("first+0x13", false), ("first+0x13", false)]);
    assert_eq!(tail_calls(&graph, "first+0x13"), []);
    assert_eq!(["first", "first+0x9", "first+0x13"].map(block_count), [2, 3, 1]);
    // The tail that both share is only the first target of the table. The end of the table is not certain, so there may be more targets.
    assert_eq!(tail_calls(&graph, "by_tag"), [("?", true), ("by_tag+0xc", true)]);
    assert_eq!(tail_calls(&graph, "between"), [("by_tag+0xc", false)]);
    assert_eq!(["by_tag", "between", "by_tag+0xc"].map(block_count), [3, 1, 1]);
}
