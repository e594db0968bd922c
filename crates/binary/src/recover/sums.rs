//! Symbolic values of registers and memory in a normal form: a constant plus multiples of atoms, modulo 2^64.

/// Index of an instruction in a [`FunctionBody`](super::values::FunctionBody).
pub type SumPosition = u32;

/// A place that holds a value: a register or a stack slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SumLocation {
    /// A general-purpose register, by its number in instruction encodings.
    Register(u8),
    /// A stack slot, addressed by `rsp` or `rbp` plus a constant.
    Slot {
        /// Encoding of the register.
        base: u8,
        displacement: u64,
    },
}

/// A part of a [`SumValue`] that is not analysed further.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SumAtom {
    /// A load from memory.
    Load {
        bytes: u8,
        /// Whether the loaded value is sign-extended.
        is_signed: bool,
        address: Box<SumValue>,
    },
    /// The unknown value of a location that was written by one of these instructions.
    Opaque(SumLocation, Vec<SumPosition>),
    /// The low bytes of a value.
    Low(u8, Box<SumValue>),
    /// The lowest bytes of a value, as many as the number says, sign-extended.
    Signed(u8, Box<SumValue>),
    /// A value masked with a constant.
    And(u64, Box<SumValue>),
}

/// A constant plus multiples of atoms, modulo 2^64.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SumValue {
    pub constant: u64,
    /// Atoms, each with its factor, which is not 0. Ascending by atom.
    pub terms: Vec<(SumAtom, u64)>,
}

impl SumValue {
    pub fn constant(constant: u64) -> SumValue {
        SumValue { constant, terms: Vec::new() }
    }

    pub fn atom(atom: SumAtom) -> SumValue {
        SumValue { constant: 0, terms: vec![(atom, 1)] }
    }

    /// Returns the atom if the value is a single atom without a factor or constant. Otherwise returns `None`.
    pub fn only_atom(&self) -> Option<&SumAtom> {
        match (&self.terms[..], self.constant) {
            ([(atom, 1)], 0) => Some(atom),
            _ => None,
        }
    }

    pub fn plus(&self, other: &SumValue) -> SumValue {
        let mut terms = self.terms.clone();
        for (atom, factor) in &other.terms {
            match terms.iter_mut().find(|(a, _)| a == atom) {
                Some((_, sum)) => *sum = sum.wrapping_add(*factor),
                None => terms.push((atom.clone(), *factor)),
            }
        }
        terms.retain(|(_, factor)| *factor != 0);
        terms.sort();
        SumValue { constant: self.constant.wrapping_add(other.constant), terms }
    }

    pub fn times(&self, factor: u64) -> SumValue {
        let mut terms: Vec<(SumAtom, u64)> = self.terms.iter().map(|(a, f)| (a.clone(), f.wrapping_mul(factor))).collect();
        terms.retain(|(_, factor)| *factor != 0);
        SumValue { constant: self.constant.wrapping_mul(factor), terms }
    }

    /// Truncates the value to its lowest `bytes` bytes.
    pub fn truncated(self, bytes: u8) -> SumValue {
        if bytes >= 8 {
            return self;
        }
        let mask = (1_u64 << (8 * bytes)) - 1;
        if self.terms.is_empty() {
            return SumValue::constant(self.constant & mask);
        }
        match self.only_atom() {
            Some(SumAtom::Low(had, _) | SumAtom::Load { bytes: had, is_signed: false, .. }) if *had <= bytes => self,
            Some(SumAtom::And(bits, _)) if *bits <= mask => self,
            _ => SumValue::atom(SumAtom::Low(bytes, Box::new(self))),
        }
    }

    /// Truncates the value to its lowest `bytes` bytes, and sign-extends the result.
    pub fn sign_extended(self, bytes: u8) -> SumValue {
        if bytes >= 8 {
            return self;
        }
        if self.terms.is_empty() {
            let shift = 64 - 8 * u32::from(bytes);
            return SumValue::constant((((self.constant << shift) as i64) >> shift) as u64);
        }
        match self.only_atom() {
            Some(SumAtom::Load { bytes: had, address, .. }) if *had == bytes => {
                SumValue::atom(SumAtom::Load { bytes, is_signed: true, address: address.clone() })
            }
            _ => SumValue::atom(SumAtom::Signed(bytes, Box::new(self))),
        }
    }
}

/// Removes the zero extension of a four-byte value, if there is one.
pub fn without_zero_extension(value: SumValue) -> SumValue {
    match value.only_atom() {
        Some(SumAtom::Low(4, inner)) => (**inner).clone(),
        _ => value,
    }
}

/// Returns true if a value is loaded from a table at a constant address.
pub fn is_from_table(atom: &SumAtom) -> bool {
    match atom {
        SumAtom::Load { bytes: 4 | 8, address, .. } => address.constant > 0xfff && address.terms.len() == 1,
        SumAtom::Signed(4, inner) => inner.only_atom().is_some_and(is_from_table),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opaque_value(at: SumPosition) -> SumValue {
        SumValue::atom(SumAtom::Opaque(SumLocation::Register(0), vec![at]))
    }

    #[test]
    fn equal_sums_have_equal_form() {
        let sum = opaque_value(1).times(4).plus(&SumValue::constant(0x1000)).plus(&opaque_value(2));
        let other = opaque_value(2).plus(&opaque_value(1).times(2)).plus(&SumValue::constant(0x1000)).plus(&opaque_value(1).times(2));
        assert_eq!(sum, other);
        assert_eq!(opaque_value(1).plus(&opaque_value(1).times(u64::MAX)), SumValue::constant(0));
        assert!(sum.only_atom().is_none() && opaque_value(1).only_atom().is_some());
    }

    #[test]
    fn extensions_of_constants_are_folded() {
        assert_eq!(SumValue::constant(0x1_0000_0080).truncated(4), SumValue::constant(0x80));
        assert_eq!(SumValue::constant(0x80).sign_extended(1), SumValue::constant(0x80_u64.wrapping_sub(0x100)));
        let byte = SumValue::atom(SumAtom::Load { bytes: 1, is_signed: false, address: Box::new(opaque_value(3)) });
        assert_eq!(byte.clone().truncated(4), byte);
        assert_eq!(without_zero_extension(opaque_value(1).truncated(4)), opaque_value(1));
    }

    #[test]
    fn only_loads_from_fixed_addresses_are_from_tables() {
        let read = |address: SumValue| SumAtom::Load { bytes: 8, is_signed: false, address: Box::new(address) };
        assert!(is_from_table(&read(opaque_value(1).times(8).plus(&SumValue::constant(0x2000)))));
        assert!(!is_from_table(&read(opaque_value(1).plus(&SumValue::constant(8)))));
    }
}
