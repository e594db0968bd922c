//! A BT9 trace written by hand from the published format.

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
    let mut batch = Batch::default();
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
fn damage_is_named_with_its_place() {
    let text = |text: &str| read(text).unwrap_err().to_string();
    assert!(text("BT9\n").contains("no BT9 trace"));
    assert!(text(TRACE.strip_suffix("EOF\n").unwrap()).contains(&format!("cut off at offset {}", TRACE.len() - 4)));
    let bad = text(&TRACE.replace("\n3\n4\n", "\n3\n9\n"));
    assert!(bad.contains("no edge `9`") && bad.contains(&format!("offset {}", TRACE.len() - 6)), "{bad}");
    assert!(text(&TRACE.replace("JMP+DIR+CND", "HOP+DIR+CND")).contains("not understood"));
    let edges = TRACE.find("BT9_EDGES").unwrap();
    assert!(text(&TRACE[..edges]).contains("BT9_EDGE_SEQUENCE"));
    assert!(text(&TRACE[..edges + 60]).contains(&format!("cut off at offset {}", edges + 60)) || TRACE.as_bytes()[edges + 59] == b'\n');
}
