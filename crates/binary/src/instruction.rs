//! Classifies x86-64 instructions by their effect on control flow. iced-x86 decodes the instructions. The classification follows volume 2
//! of the Intel 64 and IA-32 Architectures Software Developer's Manual.

pub use iced_x86::Instruction;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, IntelFormatter, Mnemonic, OpKind, Register};

/// Maximum length of an instruction in bytes.
pub const MAX_INSTRUCTION_LENGTH: u64 = 15;

/// Classification of a branch instruction by its effect on control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchInstruction {
    /// A call to a fixed address.
    Call(u64),
    /// A call through a register or memory.
    IndirectCall,
    /// A return.
    Return,
    /// A conditional jump to a fixed address (`jcc`, `loop`, `jrcxz`, `xbegin`).
    Conditional(u64),
    /// A jump to a fixed address.
    Jump(u64),
    /// A jump through a register or memory.
    IndirectJump,
    /// A call to the kernel or a hypervisor (`syscall`, `sysenter`, `int`, `int3`, `vmcall` and similar instructions).
    System,
    /// An instruction that is always invalid (`ud0`, `ud1`, `ud2`), so that execution stops there.
    Stop,
}

impl BranchInstruction {
    /// Returns true for a direct or indirect call.
    pub fn is_call(self) -> bool {
        matches!(self, BranchInstruction::Call(_) | BranchInstruction::IndirectCall)
    }

    /// Returns the target if it is fixed.
    pub fn target(self) -> Option<u64> {
        match self {
            BranchInstruction::Call(target) | BranchInstruction::Conditional(target) | BranchInstruction::Jump(target) => Some(target),
            _ => None,
        }
    }
}

/// Decodes the first instruction in `code`, whose address is `address`. Returns `None` if the bytes are invalid or truncated.
pub fn decode_instruction(code: &[u8], address: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, &code[..code.len().min(MAX_INSTRUCTION_LENGTH as usize)], address, DecoderOptions::NONE);
    let instruction = decoder.can_decode().then(|| decoder.decode())?;
    (!instruction.is_invalid()).then_some(instruction)
}

/// Formats an instruction in Intel syntax, with addresses in hexadecimal.
pub fn format_intel(instruction: &Instruction) -> String {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_branch_leading_zeros(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

/// Classifies an instruction. Returns `None` if control always continues with the next instruction in memory.
pub fn classify_branch(instruction: &Instruction) -> Option<BranchInstruction> {
    match instruction.flow_control() {
        FlowControl::Next => None,
        FlowControl::UnconditionalBranch => Some(BranchInstruction::Jump(instruction.near_branch_target())),
        FlowControl::IndirectBranch => Some(BranchInstruction::IndirectJump),
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            let target = instruction.near_branch_target();
            (target != 0).then_some(BranchInstruction::Conditional(target))
        }
        FlowControl::Return => Some(BranchInstruction::Return),
        FlowControl::Call if is_system_entry(instruction) => Some(BranchInstruction::System),
        FlowControl::Call => Some(BranchInstruction::Call(instruction.near_branch_target())),
        FlowControl::IndirectCall => Some(BranchInstruction::IndirectCall),
        FlowControl::Interrupt => Some(BranchInstruction::System),
        FlowControl::Exception => Some(BranchInstruction::Stop),
    }
}

/// Returns true if a block switches to a different stack: it loads the stack pointer from memory or, if control leaves the function after
/// the block (`is_leaving`), from a register that may hold an argument.
pub fn switches_stack(block: impl Iterator<Item = Instruction>, is_leaving: bool) -> bool {
    const ARGUMENT_REGISTERS: [Register; 4] = [Register::RDI, Register::RSI, Register::RDX, Register::RCX];
    const FRAME_REGISTERS: [Register; 2] = [Register::RBP, Register::RSP];
    let mut loads = false;
    for instruction in block {
        match (instruction.mnemonic(), instruction.op0_register(), instruction.op1_kind()) {
            (Mnemonic::Mov, Register::RSP, OpKind::Memory) => loads |= !FRAME_REGISTERS.contains(&instruction.memory_base()),
            (Mnemonic::Mov, Register::RSP, OpKind::Register) => {
                loads |= is_leaving && ARGUMENT_REGISTERS.contains(&instruction.op1_register())
            }
            (Mnemonic::Xchg, first, _) => loads |= first == Register::RSP || instruction.op1_register() == Register::RSP,
            // These instructions restore the stack pointer from the function's own frame.
            (Mnemonic::Leave, ..) => loads = false,
            (Mnemonic::Lea, Register::RSP, _) if instruction.memory_base() == Register::RBP => loads = false,
            _ => {}
        }
    }
    loads
}

/// Returns true if an instruction calls the kernel or a hypervisor. The decoder classifies such instructions as calls.
fn is_system_entry(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic::{Syscall, Sysenter, Vmcall, Vmlaunch, Vmmcall, Vmresume};
    matches!(instruction.mnemonic(), Syscall | Sysenter | Vmcall | Vmlaunch | Vmmcall | Vmresume)
}

/// Decodes an instruction and classifies it with [`classify_branch`]. Returns `None` if it cannot be decoded or is not a branch.
pub fn branch_at(code: &[u8], address: u64) -> Option<BranchInstruction> {
    classify_branch(&decode_instruction(code, address)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(code: &[u8]) -> Option<BranchInstruction> {
        branch_at(code, 0x1000)
    }

    #[test]
    fn calls_returns_and_jumps_are_classified() {
        let indirect_calls: [&[u8]; 4] = [&[0xff, 0xd0], &[0x41, 0xff, 0xd3], &[0xff, 0x15, 0, 0, 0, 0], &[0x3e, 0xff, 0x14, 0xc1]];
        let returns: [&[u8]; 4] = [&[0xc3], &[0xf3, 0xc3], &[0xf2, 0xc3], &[0xc2, 8, 0]];
        let indirect_jumps: [&[u8]; 3] = [&[0xff, 0xe0], &[0x41, 0xff, 0xe3], &[0x3e, 0xff, 0xe0]];
        assert!(indirect_calls.iter().all(|c| classify(c) == Some(BranchInstruction::IndirectCall)));
        assert!(returns.iter().all(|c| classify(c) == Some(BranchInstruction::Return)));
        assert!(indirect_jumps.iter().all(|c| classify(c) == Some(BranchInstruction::IndirectJump)));
        assert_eq!(classify(&[0xe8, 1, 0, 0, 0]), Some(BranchInstruction::Call(0x1006)));
        assert_eq!(classify(&[0x0f, 0x85, 0, 0, 0, 0]), Some(BranchInstruction::Conditional(0x1006)));
        assert_eq!(classify(&[0x2e, 0x7f, 0xfb]), Some(BranchInstruction::Conditional(0xffe)));
        assert_eq!(classify(&[0xe2, 0xfe]), Some(BranchInstruction::Conditional(0x1000)));
        assert_eq!(classify(&[0xeb, 5]), Some(BranchInstruction::Jump(0x1007)));
        assert_eq!(classify(&[0xe9, 0, 0, 0, 0]), Some(BranchInstruction::Jump(0x1005)));
    }

    #[test]
    fn kernel_entries_traps_and_other_instructions_are_classified() {
        assert_eq!(classify(&[0x0f, 0x05]), Some(BranchInstruction::System));
        assert_eq!(classify(&[0xcd, 0x80]), Some(BranchInstruction::System));
        assert_eq!(classify(&[0x0f, 0x0b]), Some(BranchInstruction::Stop));
        assert_eq!(classify(&[0x90]), None);
        assert_eq!(classify(&[]), None);
        assert_eq!(classify(&[0x0f]), None);
    }
}
