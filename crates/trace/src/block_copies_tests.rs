//! Tests of the instrumented copies of blocks, and of the patches that lead to them.

use super::*;
use crate::copied_place::HEAD_INSTRUCTION_COUNT;
use crate::copy_encoder::SitePatch;
use iced_x86::{InstructionInfoFactory, RflagsBits};

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
    // test eax, eax; je 5; (4:) nop; (5:) jmp 0
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

const BLOCKS: i32 = 60;
const BLOCK_LENGTH: i32 = 16;

/// Returns the blocks to which block `block` of [`copies_of_branches`] branches, in the order of its branches.
fn branches_of(block: i32) -> [i32; 3] {
    [block * 7 % BLOCKS, (block + 1) % BLOCKS, block * 11 % BLOCKS]
}

/// Returns the copies of blocks that contain a conditional branch, a branch without a near form (`loop` or `jrcxz`) and a jump: some of
/// them to the next block, others to blocks before and after.
fn copies_of_branches() -> BlockCopies {
    let mut code = Vec::new();
    for block in 0..BLOCKS {
        let [conditional, next, to] = branches_of(block);
        let begin = block * BLOCK_LENGTH;
        let mut push = |opcode: &[u8], length: i32, target: i32| {
            code.extend(opcode);
            let displacement = target * BLOCK_LENGTH - (code.len() as i32 + length);
            code.extend(&displacement.to_le_bytes()[..length as usize]);
        };
        push(&[0x0f, 0x80 | (block % 16) as u8], 4, conditional);
        if next > 0 {
            push(&[[0xe2], [0xe3]][block as usize % 2], 1, next);
        }
        push(&[0xe9], 4, to);
        code.resize((begin + BLOCK_LENGTH) as usize, 0x90);
    }
    copies_of(&code, &(0..BLOCKS).map(|block| (block * BLOCK_LENGTH) as u64).collect::<Vec<_>>())
}

#[test]
fn branches_between_copies_lead_where_the_original_ones_lead() {
    const AT: u64 = 0x100_0000;
    let copies = copies_of_branches();
    let decode = |address: u64| Decoder::with_ip(64, &copies.code[(address - AT) as usize..], address, DecoderOptions::NONE).decode();
    let site_of = |place: Option<CopiedPlace>| match place {
        Some(CopiedPlace::Head { site, saved: false }) => Some(site as i32),
        _ => None,
    };
    let mut short = 0;
    for block in 0..BLOCKS {
        let recorded = CopiedPlace::Recorded { site: block as u32, saved: false };
        let mut at = copies.places.iter().find(|(_, place)| *place == recorded).unwrap().0;
        let [conditional, next, to] = branches_of(block);
        let mut check = |branch: &Instruction, target: i32| {
            assert_eq!(site_of(copies.places.get(branch.near_branch_target())), Some(target), "{block}: {branch}");
            short += usize::from(branch.len() == 2);
        };
        let first = decode(at);
        assert_eq!(first.condition_code() as i32 - 1, block % 16, "{first}");
        check(&first, conditional);
        at = first.next_ip();
        if next > 0 {
            let [branch, over] = [decode(at), decode(at + 2)];
            assert_eq!(branch.mnemonic(), [Mnemonic::Loop, Mnemonic::Jrcxz][block as usize % 2]);
            assert_eq!(
                copies.places.get(at),
                Some(CopiedPlace::Body { original: (0x40_0006 + block * BLOCK_LENGTH) as u64, intact: true })
            );
            check(&decode(branch.near_branch_target()), next);
            at = over.near_branch_target();
        }
        check(&decode(at), to);
    }
    assert!(short > 0, "some branches are short");
    let leads_to_head = |(_, patch): &(u64, SitePatch)| match patch {
        SitePatch::Jump(to) | SitePatch::ShortJump { to, .. } | SitePatch::Breakpoint(to) => site_of(copies.places.get(*to)).is_some(),
    };
    assert_eq!(copies.patches.iter().filter(|patch| leads_to_head(patch)).count(), BLOCKS as usize);
}

#[test]
fn a_block_that_falls_through_to_the_next_has_a_short_jump() {
    // mov eax, 1; (5:) mov eax, 1; ret
    let copies = copies_of(&[0xb8, 1, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xc3], &[0, 5]);
    let jump = instructions(&copies).into_iter().find(|i| i.code() == Code::Jmp_rel8_64).unwrap();
    assert_eq!(copies.places.get(jump.near_branch_target()), Some(CopiedPlace::Head { site: 1, saved: false }));
    assert_eq!(jump.near_branch_target(), jump.next_ip() + 1, "only the breakpoint is skipped");
}

#[test]
fn instructions_too_far_from_their_operands_are_refused() {
    // lea rax, [rip + 0]; ret
    let code = [(0x1_0000_0000, vec![0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3])];
    assert!(copy_range(&code, 0x1_0000_0000..0x1_0000_0008, 0x1_7000_0000).is_ok());
    assert!(copy_range(&code, 0x1_0000_0000..0x1_0000_0008, 0x1_9000_0000).is_err());
}
