//! Bytes between instructions that only fill space.

use crate::instruction::decode;
use iced_x86::Mnemonic;

/// Bytes up to the first one that is no padding: `nop` of all lengths, traps behind calls that do not return, zeros.
pub fn length(bytes: &[u8], address: u64) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == 0 {
            at += 1;
            continue;
        }
        let Some(instruction) = decode(&bytes[at..], address + at as u64).filter(|i| at + i.len() <= bytes.len()) else { break };
        let is_filling = match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Hlt | Mnemonic::Ud2 => true,
            // Longer fillings: `xchg ax, ax`, and jumps over the rest of the padding.
            Mnemonic::Xchg => instruction.op0_register() == instruction.op1_register(),
            _ => false,
        };
        if !is_filling {
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
    fn fillings_are_known() {
        assert_eq!(length(&[0x90, 0x66, 0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xcc], 0), 9);
        assert_eq!(length(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3], 0), 10);
        assert_eq!(length(&[0, 0, 0x55], 0), 2);
        assert_eq!(length(&[], 0), 0);
    }
}
