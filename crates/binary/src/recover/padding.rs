//! Recognises padding between instructions.

use crate::instruction::decode_instruction;
use iced_x86::Mnemonic;

/// Returns the length of the padding at the start of `bytes`. Padding consists of `nop` instructions of any length, traps, and zeros.
pub fn padding_length(bytes: &[u8], address: u64) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == 0 {
            at += 1;
            continue;
        }
        let Some(instruction) = decode_instruction(&bytes[at..], address + at as u64).filter(|i| at + i.len() <= bytes.len()) else {
            break;
        };
        let is_padding = match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Hlt | Mnemonic::Ud2 => true,
            // An exchange of a register with itself, such as `xchg ax, ax`, has no effect.
            Mnemonic::Xchg => instruction.op0_register() == instruction.op1_register(),
            _ => false,
        };
        if !is_padding {
            break;
        }
        at += instruction.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_ends_at_first_real_instruction() {
        assert_eq!(padding_length(&[0x90, 0x66, 0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xcc], 0), 9);
        assert_eq!(padding_length(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3], 0), 10);
        assert_eq!(padding_length(&[0, 0, 0x55], 0), 2);
        assert_eq!(padding_length(&[], 0), 0);
    }
}
