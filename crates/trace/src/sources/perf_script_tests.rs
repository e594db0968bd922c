//! Tests with branch records of this program's own code: branches that were not taken are reconstructed, and contradictions become gaps.

use super::*;

/// Finds a function of this program that has a conditional branch before a jump. Returns the function's start, the branch's address and
/// fall-through address, and the jump's address and target.
fn find_conditional_and_jump(binary: &Binary) -> [u64; 5] {
    for function in binary.functions().iter().filter(|f| f.size > 16) {
        let mut address = function.address;
        let mut conditional = None;
        while address < function.address + function.size {
            let Some(instruction) = binary.code_at(address).and_then(|code| decode_instruction(code, address)) else { break };
            let fall_through = address + instruction.len() as u64;
            match (classify_branch(&instruction), conditional) {
                (Some(BranchInstruction::Conditional(_)), None) => conditional = Some((address, fall_through)),
                (Some(BranchInstruction::Jump(target)), Some((at, end))) => return [function.address, at, end, address, target],
                (None, _) => {}
                _ => break,
            }
            address = fall_through;
        }
    }
    panic!("no function of this program begins with a conditional branch and a jump");
}

fn read(text: &str, program: &Path) -> (Vec<StreamEvent>, SourceNotes) {
    let mut source = PerfScriptSource::new(text.as_bytes(), Path::new("perf.txt"), &[program.to_owned()]).unwrap();
    let mut batch = EventBatch::default();
    while source.read(&mut batch).unwrap() {}
    (batch.events.iter().map(|(_, e)| *e).collect(), source.notes())
}

#[test]
fn untaken_conditional_branches_are_reconstructed() {
    let program = std::env::current_exe().unwrap();
    let binary = Binary::read(&program).unwrap();
    let [start, conditional, fall_through, jump, target] = find_conditional_and_jump(&binary);
    let segment = binary.segments().iter().find(|s| s.is_executable).unwrap();
    let bias = 0x5555_0000_0000u64;
    let name = program.file_name().unwrap().to_str().unwrap();
    let (first_page, size, offset) = ((segment.address & !0xfff) + bias, segment.size + 0x1000, segment.file_offset & !0xfff);
    let event = format!("p 7/7 1.0: PERF_RECORD_MMAP2 7/7: [{first_page:#x}({size:#x}) @ {offset:#x} fe:01 12 0]: r-xp /somewhere/{name}");
    let [from, to, next] = [start + bias, jump + bias, target + bias];
    for branches in [
        format!("7/7 1.1: {to:#x}/{next:#x}/P/-/-/0 0x10/{from:#x}/P/-/-/0"),
        format!("7/7 1.1: 10 => {from:x}\n7/7 1.1: {to:x} => {next:x}"),
    ] {
        let (events, notes) = read(&format!("{event}\n{branches}\n"), &program);
        let [StreamEvent::Begin(begin), StreamEvent::Branch(first), StreamEvent::Branch(second)] = events[..] else { panic!("{events:?}") };
        assert_eq!(begin, Address(from));
        assert_eq!((first.address.0, first.is_taken, first.fall_through.0), (conditional + bias, false, fall_through + bias));
        assert_eq!((second.address.0, second.kind, second.next().0), (to, BranchKind::Jump, next));
        assert_eq!((notes.instructions, notes.notes), (u64::from(first.instructions + second.instructions), vec![]));
    }
    // The second branch cannot follow the first.
    let (events, notes) = read(&format!("{event}\n7/7 1.1: 10 => {to:x}\n7/7 1.1: {from:x} => {next:x}\n"), &program);
    assert_eq!(events, [StreamEvent::Begin(Address(to)), StreamEvent::Gap(Address(next))]);
    assert!(notes.notes[0].starts_with("1 of 2 branches"));
}

#[test]
fn malformed_lines_are_reported() {
    let text = "7/7 1.1: 10 => 20\nsome words\n";
    let mut source = PerfScriptSource::new(text.as_bytes(), Path::new("perf.txt"), &[]).unwrap();
    let error = source.read(&mut EventBatch::default()).unwrap_err().to_string();
    assert!(error.contains("perf.txt is corrupt at offset 18"), "{error}");
}
