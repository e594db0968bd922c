//! Tests with a BT9 trace written by hand from the published format.

use super::*;

const TRACE: &str = "\
BT9_SPA_TRACE_FORMAT
bt9_minor_version: 0
total_instruction_count: 14 # Instruction count
BT9_NODES
#NODE id virtual_address physical_address opcode size
NODE 0 0 - 0 0
NODE 1 0x1008 - 0x54 4 class: JMP+DIR+CND behavior: DYN+DIR taken_cnt: 1 not_taken_cnt: 1 tgt_cnt: 1 # mnemonic: \"b.ne\"
NODE 2 0x1010 - 0x55 4 class: CALL+DIR+UCD behavior: AT+DIR taken_cnt: 1 not_taken_cnt: 0 tgt_cnt: 1
NODE 3 0x2004 - 0x56 4 class: RET+IND+UCD
BT9_EDGES
#EDGE id src_id dest_id taken br_virt_target br_phy_target inst_cnt
EDGE 0 0 1 T 0x1000 - 2 traverse_cnt: 1
EDGE 1 1 1 T 0x1000 - 2 traverse_cnt: 1
EDGE 2 1 2 N 0x100c - 1 traverse_cnt: 1
EDGE 3 2 3 T 0x2000 - 1 traverse_cnt: 1
EDGE 4 3 0 T 0x1014 - 0 traverse_cnt: 1
BT9_EDGE_SEQUENCE
0
1
2
3
4
EOF
";

fn read(text: &str) -> Result<(Vec<StreamEvent>, u64), SourceError> {
    let mut source = Bt9Source::new(text.as_bytes(), Path::new("t.bt9"))?;
    let mut batch = EventBatch::default();
    while source.read(&mut batch)? {}
    Ok((batch.events.iter().map(|(_, e)| *e).collect(), source.notes().instructions))
}

#[test]
fn edges_are_branches() {
    let branch = |address: u64, target: u64, kind, is_taken, instructions| {
        let (address, target, fall_through) = (Address(address), Address(target), Address(address + 4));
        StreamEvent::Branch(RetiredBranch { address, target, fall_through, kind, is_taken, instructions, stack: None })
    };
    let expected = vec![
        StreamEvent::Begin(Address(0x1000)),
        branch(0x1008, 0x1000, BranchKind::Conditional, true, 3),
        branch(0x1008, 0x1000, BranchKind::Conditional, false, 3),
        branch(0x1010, 0x2000, BranchKind::Call, true, 2),
        branch(0x2004, 0x1014, BranchKind::Return, true, 2),
        StreamEvent::End(0),
    ];
    assert_eq!(read(TRACE).unwrap(), (expected, 10));
}

#[test]
fn corrupt_data_is_reported_with_its_offset() {
    let text = |text: &str| read(text).unwrap_err().to_string();
    assert!(text("BT9\n").contains("not a BT9 trace"));
    assert!(text(TRACE.strip_suffix("EOF\n").unwrap()).contains(&format!("truncated at offset {}", TRACE.len() - 4)));
    let bad = text(&TRACE.replace("\n3\n4\n", "\n3\n9\n"));
    assert!(bad.contains("edge `9` is not defined") && bad.contains(&format!("offset {}", TRACE.len() - 6)), "{bad}");
    assert!(text(&TRACE.replace("JMP+DIR+CND", "HOP+DIR+CND")).contains("malformed"));
    let edges = TRACE.find("BT9_EDGES").unwrap();
    assert!(text(&TRACE[..edges]).contains("BT9_EDGE_SEQUENCE"));
    assert!(text(&TRACE[..edges + 60]).contains(&format!("truncated at offset {}", edges + 60)) || TRACE.as_bytes()[edges + 59] == b'\n');
}

/// Builds a trace of conditional branches. Each is given by its address, size and opcode, the target if it is taken, and the edge's target
/// otherwise.
fn trace_of_conditionals(branches: &[(u64, u64, &str, Option<u64>, u64)]) -> String {
    let mut text = "BT9_SPA_TRACE_FORMAT\nBT9_NODES\nNODE 0 0 - 0 0\n".to_owned();
    for (number, (address, size, opcode, ..)) in branches.iter().enumerate() {
        text += &format!("NODE {} {address:#x} - {opcode} {size} class: JMP+DIR+CND\n", number + 1);
    }
    text += "BT9_EDGES\n";
    for (number, (.., taken, fall_through)) in branches.iter().enumerate() {
        let (outcome, target) = taken.map_or(("N", *fall_through), |target| ("T", target));
        text += &format!("EDGE {number} {} 0 {outcome} {target:#x} - 0\n", number + 1);
    }
    text += "BT9_EDGE_SEQUENCE\n";
    (0..branches.len()).for_each(|number| text += &format!("{number}\n"));
    text + "EOF\n"
}

fn read_targets(text: &str) -> (Vec<u64>, usize) {
    let mut source = Bt9Source::new(text.as_bytes(), Path::new("t.bt9")).unwrap();
    let mut batch = EventBatch::default();
    while source.read(&mut batch).unwrap() {}
    let target = |event: &StreamEvent| if let StreamEvent::Branch(branch) = event { Some(branch.target.0) } else { None };
    (batch.events.iter().filter_map(|(_, event)| target(event)).collect(), source.notes().notes.len())
}

#[test]
fn targets_of_untaken_branches_are_decoded_from_opcodes() {
    // jz +5, jz -16 (short), jnz -256 (near); then the same with the bytes in the other order.
    let printed =
        [(0x1000, 2, "0x7405", Some(0x1007), 0), (0x2000, 2, "0x74f0", None, 0x2002), (0x3000, 6, "0x0f8500ffffff", None, 0x3006)];
    let other = [(0x1000, 2, "0x0574", Some(0x1007), 0), (0x2000, 2, "0xf074", None, 0x2002), (0x3000, 6, "0xffffff00850f", None, 0x3006)];
    let expected = vec![0x1007, 0x1ff2, 0x2f06];
    assert_eq!(read_targets(&trace_of_conditionals(&printed)), (expected.clone(), 0));
    assert_eq!(read_targets(&trace_of_conditionals(&other)), (expected, 0));
    // b.ne +8; cbz x0, -4; tbnz w3, #1, +16; b.eq -1 MiB.
    let arm = [
        (0x4000, 4, "0x54000041", Some(0x4008), 0),
        (0x4010, 4, "0xb4ffffe0", None, 0x4014),
        (0x4020, 4, "0x37080083", None, 0x4024),
        (0x20_0000, 4, "0x54800000", None, 0x20_0004),
    ];
    assert_eq!(read_targets(&trace_of_conditionals(&arm)), (vec![0x4008, 0x400c, 0x4030, 0x10_0000], 0));
    // If the encoding cannot be determined, the branch counts as forward, with a note.
    assert_eq!(read_targets(&trace_of_conditionals(&[(0x2000, 2, "0x74f0", None, 0x2002)])), (vec![0x2002], 1));
    assert_eq!(
        read_targets(&trace_of_conditionals(&[(0x1000, 2, "0x7405", Some(0x1100), 0), (0x2000, 2, "0x74f0", None, 0)])),
        (vec![0x1100, 0x2002], 1)
    );
    // The edge itself has the target.
    assert_eq!(read_targets(&trace_of_conditionals(&[(0x2000, 2, "-", None, 0x1f00)])), (vec![0x1f00], 0));
}
