//! What kind of branch an instruction of x86-64 is.
//!
//! Only as much is decoded as tells calls, returns and jumps apart. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
//! appendix A.

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// A call.
    Call,
    /// A return.
    Return,
    /// A conditional jump.
    Conditional,
    /// Another jump, or anything else.
    Jump,
}

/// The branch that begins with these bytes.
pub fn branch(code: &[u8]) -> Branch {
    // Segments and notrack, operand size, bnd and repetition, REX.
    let is_prefix = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let rest = &code[code.iter().take_while(|b| is_prefix(b)).count()..];
    match (rest.first(), rest.get(1).map(|operands| operands >> 3 & 7)) {
        (Some(0xe8), _) | (Some(0xff), Some(2 | 3)) => Branch::Call,
        (Some(0xc2 | 0xc3 | 0xca | 0xcb), _) => Branch::Return,
        (Some(0x70..=0x7f), _) => Branch::Conditional,
        (Some(0x0f), _) if matches!(rest.get(1), Some(0x80..=0x8f)) => Branch::Conditional,
        _ => Branch::Jump,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_returns_and_jumps() {
        let calls: [&[u8]; 5] =
            [&[0xe8, 1, 0, 0, 0], &[0xff, 0xd0], &[0x41, 0xff, 0xd3], &[0xff, 0x15, 0, 0, 0, 0], &[0x3e, 0xff, 0x14, 0xc1]];
        let returns: [&[u8]; 4] = [&[0xc3], &[0xf3, 0xc3], &[0xf2, 0xc3], &[0xc2, 8, 0]];
        let conditional: [&[u8]; 3] = [&[0x0f, 0x85, 0, 0, 0, 0], &[0x74, 2], &[0x2e, 0x7f, 9]];
        let jumps: [&[u8]; 5] = [&[0xeb, 5], &[0xe9, 0, 0, 0, 0], &[0xff, 0xe0], &[0x41, 0xff, 0xe3], &[0x0f, 0x05]];
        assert!(calls.iter().all(|c| branch(c) == Branch::Call));
        assert!(returns.iter().all(|c| branch(c) == Branch::Return));
        assert!(conditional.iter().all(|c| branch(c) == Branch::Conditional));
        assert!(jumps.iter().all(|c| branch(c) == Branch::Jump));
        assert_eq!(branch(&[]), Branch::Jump);
    }
}
