//! Tests of the instrumented copies of blocks, and of the patches that lead to them.

use super::*;
use crate::copy_encoder::SitePatch;
use iced_x86::{InstructionInfoFactory, RflagsBits};

/// Number of instructions of a head (the code that records a site), without the breakpoint before it.
const HEAD_INSTRUCTION_COUNT: usize = 7;

/// Copies the blocks that start at these offsets, each of which is a site.
fn copies_of(code: &[u8], starts: &[u64]) -> BlockCopies {
    copies_with_sleds(code, starts, &HashSet::new())
}

fn copies_with_sleds(code: &[u8], starts: &[u64], sleds: &HashSet<u64>) -> BlockCopies {
    const AT: u64 = 0x40_0000;
    let ends = starts.iter().copied().skip(1).chain([code.len() as u64]);
    let blocks: Vec<Range<u64>> = starts.iter().zip(ends).map(|(start, end)| AT + start..AT + end).collect();
    let sites = blocks.iter().map(|b| b.start).zip(0..).collect();
    let code = [(AT, code.to_vec())];
    let none = HashSet::new();
    let table = 0x110_0000;
    let request =
        CopyRequest { code: &code, blocks: &blocks, sites: &sites, jumps: &none, guarded: &none, sleds, thread_positions: &[], table };
    copy_blocks(&request, 0x100_0000).unwrap()
}

fn patch(copies: &BlockCopies, offset: u64) -> Option<SitePatch> {
    copies.patches.iter().find(|(address, _)| *address == 0x40_0000 + offset).map(|(_, patch)| *patch)
}

fn instructions(copies: &BlockCopies) -> Vec<Instruction> {
    Decoder::with_ip(64, &copies.code, 0x100_0000, DecoderOptions::NONE).into_iter().collect()
}

#[test]
fn heads_change_neither_flags_nor_the_stack() {
    // mov eax, 1; ret
    let copies = copies_of(&[0xb8, 1, 0, 0, 0, 0xc3], &[0]);
    let mut factory = InstructionInfoFactory::new();
    for instruction in instructions(&copies).iter().skip(1).take(HEAD_INSTRUCTION_COUNT) {
        assert_eq!(instruction.rflags_modified(), RflagsBits::NONE, "{instruction:?}");
        let used = factory.info(instruction);
        let writes_stack = used.used_memory().iter().any(|m| m.base() == Register::RSP || m.segment() == Register::SS);
        assert!(!writes_stack, "{instruction:?}");
    }
    assert_eq!(patch(&copies, 0), Some(SitePatch::Jump(0x100_0001)));
}

#[test]
fn short_blocks_have_breakpoints_and_branches_between_copies_are_direct() {
    // test eax, eax; je 4; nop; (4:) jmp 0; (6:) nops
    let copies = copies_of(&[0x85, 0xc0, 0x74, 1, 0x90, 0xeb, 0xf9], &[0, 4, 5]);
    assert!(matches!(patch(&copies, 0), Some(SitePatch::Breakpoint(_))));
    assert!(matches!(patch(&copies, 5), Some(SitePatch::Breakpoint(_))));
    // All branches stay in the copies, so the loop runs there.
    let end = 0x100_0000 + copies.code.len() as u64;
    for branch in instructions(&copies).iter().filter(|i| has_target(i)) {
        assert!((0x100_0000..end).contains(&branch.near_branch_target()), "{branch:?}");
    }
}

/// mov eax, 1; mov ebx, 2; jmp 12; (12:) xor eax, eax; (14:) mov eax, 1; ret
const CODE_WITH_ROOM_FOR_A_RELAY: [u8; 20] = [0xb8, 1, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0xeb, 0, 0x31, 0xc0, 0xb8, 1, 0, 0, 0, 0xc3];

#[test]
fn a_short_site_has_a_relay_in_another_block() {
    let copies = copies_of(&CODE_WITH_ROOM_FOR_A_RELAY, &[0, 12, 14]);
    let Some(SitePatch::ShortJump { to, relay: 0x40_0005, host: 0x40_0000 }) = patch(&copies, 12) else { panic!("{:?}", copies.patches) };
    assert_eq!(copies.places.get(to), Some(CopiedPlace::Head { site: 1, saved: false }));
    // The relay has overwritten the instruction at offset 5, but not the next one, at offset 10.
    let is_intact = |original| {
        copies.places.iter().find_map(|(_, place)| match place {
            CopiedPlace::Body { original: found, intact } if found == original => Some(intact),
            _ => None,
        })
    };
    assert_eq!((is_intact(0x40_0005), is_intact(0x40_000a)), (Some(false), Some(true)));
}

#[test]
fn relays_replace_no_faulting_instruction_and_no_block_start() {
    let breakpoint = |code: &[u8], starts: &[u64]| matches!(patch(&copies_of(code, starts), 12), Some(SitePatch::Breakpoint(_)));
    // Replace `mov ebx, 2` by `mov ebx, [rax + 0]; nop; nop`, which may fault.
    let mut code = CODE_WITH_ROOM_FOR_A_RELAY;
    code[5..10].copy_from_slice(&[0x8b, 0x58, 0, 0x90, 0x90]);
    assert!(breakpoint(&code, &[0, 12, 14]));
    // Start with `mov eax, [rax + 0x100]` (6 bytes), after which a signal handler may resume.
    code[..10].copy_from_slice(&[0x8b, 0x80, 0, 1, 0, 0, 0x90, 0x90, 0x90, 0x90]);
    assert!(breakpoint(&code, &[0, 12, 14]));
    // A block starts at offset 7, inside the relay.
    assert!(breakpoint(&CODE_WITH_ROOM_FOR_A_RELAY, &[0, 7, 12, 14]));
}

#[test]
fn calls_stay_in_the_image_and_return_into_a_copy() {
    // mov eax, 1; call 0x20; mov ebx, 1; ret
    let mut code = vec![0xb8, 1, 0, 0, 0, 0xe8, 0x16, 0, 0, 0, 0xbb, 1, 0, 0, 0, 0xc3];
    let copies = copies_of(&code, &[0]);
    assert!(matches!(patch(&copies, 10), Some(SitePatch::Jump(_))), "after the call");
    assert!(instructions(&copies).iter().any(|i| i.near_branch_target() == 0x40_0005), "to the call");
    // No jump is written if the return address of a call would be inside it.
    code = vec![0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3];
    assert!(matches!(patch(&copies_of(&code, &[0]), 0), Some(SitePatch::Breakpoint(_))));
}

#[test]
fn execution_continues_in_the_image_after_a_sled() {
    // A sled, then `call rax`. The only room for a jump is in the sled.
    let code = [&WITNESS_SLED_INSTRUCTION[..], &[0xff, 0xd0]].concat();
    let copies = copies_with_sleds(&code, &[0], &HashSet::from([0x40_0000]));
    assert_eq!(copies.patches, [(0x40_0000, SitePatch::Jump(0x100_0001))]);
    let all = instructions(&copies);
    assert_eq!((all.len(), all.last().unwrap().near_branch_target()), (HEAD_INSTRUCTION_COUNT + 2, 0x40_0008));
}

#[test]
fn rip_relative_addresses_refer_to_the_image() {
    // lea rax, [rip + 0] (the second block); (7:) mov eax, 1; ret
    let copies = copies_of(&[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xc3], &[0, 7]);
    let lea = instructions(&copies).into_iter().find(|i| i.code() == Code::Lea_r64_m && i.is_ip_rel_memory_operand()).unwrap();
    assert_eq!(lea.ip_rel_memory_address(), 0x40_0007);
}

/// The copies of 60 blocks, encoded in pieces of the given length. Each block calls or branches to two others.
fn copies_in_pieces(piece_length: usize) -> BlockCopies {
    let mut code = Vec::new();
    for block in 0..60_i32 {
        let branches: [(&[u8], i32); 2] = [(&[0x0f, 0x84], block * 7 % 60), (&[[0xe8], [0xe9]][block as usize % 2], block * 11 % 60)];
        let begin = code.len();
        for (opcode, to) in branches {
            code.extend(opcode);
            let displacement = to * 11 - (code.len() as i32 + 4);
            code.extend(displacement.to_le_bytes());
        }
        assert_eq!(code.len() - begin, 11);
    }
    const AT: u64 = 0x40_0000;
    let blocks: Vec<Range<u64>> = (0..60).map(|block| AT + block * 11..AT + block * 11 + 11).collect();
    let sites = blocks.iter().map(|b| b.start).zip(0..).collect();
    let (code, none) = ([(AT, code)], HashSet::new());
    let (blocks, jumps, table) = (&blocks[..], &none, 0x110_0000);
    let request = CopyRequest { code: &code, blocks, sites: &sites, jumps, guarded: &none, sleds: &none, thread_positions: &[], table };
    copy_in_pieces(&request, 0x100_0000, piece_length).unwrap()
}

/// Returns the place of each instruction in the copies, its mnemonic, and the place in the copies to which it branches.
fn branches_between_copies(copies: &BlockCopies) -> Vec<(CopiedPlace, Mnemonic, Option<CopiedPlace>)> {
    const AT: u64 = 0x100_0000;
    let decode = |address: u64| Decoder::with_ip(64, &copies.code[(address - AT) as usize..], address, DecoderOptions::NONE).decode();
    let target = |instruction: &Instruction| {
        let to = instruction.near_branch_target();
        let is_copy = has_target(instruction) && (AT..AT + copies.code.len() as u64).contains(&to);
        // The target may be a stub, whose jump leads on, or a breakpoint, which has no place.
        is_copy.then(|| copies.places.get(to).or_else(|| copies.places.get(decode(to).near_branch_target()))).flatten()
    };
    copies.places.iter().map(|(address, place)| (place, decode(address).mnemonic(), target(&decode(address)))).collect()
}

#[test]
fn copies_do_not_depend_on_the_length_of_pieces() {
    let whole = copies_in_pieces(PIECE_LENGTH);
    let expected = branches_between_copies(&whole);
    assert!(expected.iter().filter(|(_, _, target)| target.is_some()).count() >= 90);
    for piece_length in [1, 30, 200] {
        let copies = copies_in_pieces(piece_length);
        assert!(copies.code.len() > whole.code.len(), "some pieces end with stubs");
        assert_eq!(branches_between_copies(&copies), expected);
        let patched =
            |copies: &BlockCopies| copies.patches.iter().map(|(at, patch)| (*at, std::mem::discriminant(patch))).collect::<Vec<_>>();
        assert_eq!(patched(&copies), patched(&whole));
        let leads_to_head = |(_, patch): &(u64, SitePatch)| match patch {
            SitePatch::Jump(to) | SitePatch::ShortJump { to, .. } | SitePatch::Breakpoint(to) => copies.places.get(*to).is_some(),
        };
        assert!(copies.patches.iter().all(leads_to_head));
    }
}
