//! Values as sums: a constant plus multiples of what cannot be expressed further.
//!
//! Sums are modulo 2^64, in a form of their own for each value, so that equal values compare equal where they were found equal.

/// An instruction of a [`FunctionBody`], by its place.
pub type SumPosition = u32;

/// A place that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SumLocation {
    /// A general register, by its number in the instruction encoding.
    Register(u8),
    /// Memory at a fixed distance from `rsp` or `rbp`.
    Slot {
        /// Number of the register.
        base: u8,
        /// Distance.
        displacement: u64,
    },
}

/// A value that is not expressed by others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// What lies in memory.
    Load {
        /// How many bytes.
        bytes: u8,
        /// Extended by its sign.
        signed: bool,
        /// Where.
        address: Box<SumValue>,
    },
    /// What these instructions left in a place.
    Opaque(SumLocation, Vec<SumPosition>),
    /// The low bytes of a value.
    Low(u8, Box<SumValue>),
    /// The low bytes of a value, extended by their sign.
    Signed(u8, Box<SumValue>),
    /// Some bits of a value.
    And(u64, Box<SumValue>),
}

/// A constant and multiples of atoms, modulo 2^64.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SumValue {
    /// The constant.
    pub constant: u64,
    /// Atoms with their factors, ascending; none is zero.
    pub terms: Vec<(Atom, u64)>,
}

impl SumValue {
    /// A constant.
    pub fn constant(constant: u64) -> SumValue {
        SumValue { constant, terms: Vec::new() }
    }

    /// One atom.
    pub fn atom(atom: Atom) -> SumValue {
        SumValue { constant: 0, terms: vec![(atom, 1)] }
    }

    /// The only atom of a value that is nothing else.
    pub fn only_atom(&self) -> Option<&Atom> {
        match (&self.terms[..], self.constant) {
            ([(atom, 1)], 0) => Some(atom),
            _ => None,
        }
    }

    /// A sum.
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

    /// A multiple.
    pub fn times(&self, factor: u64) -> SumValue {
        let mut terms: Vec<(Atom, u64)> = self.terms.iter().map(|(a, f)| (a.clone(), f.wrapping_mul(factor))).collect();
        terms.retain(|(_, factor)| *factor != 0);
        SumValue { constant: self.constant.wrapping_mul(factor), terms }
    }

    /// The low bytes.
    pub fn low(self, bytes: u8) -> SumValue {
        if bytes >= 8 {
            return self;
        }
        let mask = (1_u64 << (8 * bytes)) - 1;
        if self.terms.is_empty() {
            return SumValue::constant(self.constant & mask);
        }
        match self.only_atom() {
            Some(Atom::Low(had, _) | Atom::Load { bytes: had, signed: false, .. }) if *had <= bytes => self,
            Some(Atom::And(bits, _)) if *bits <= mask => self,
            _ => SumValue::atom(Atom::Low(bytes, Box::new(self))),
        }
    }

    /// The low bytes, extended by their sign.
    pub fn signed(self, bytes: u8) -> SumValue {
        if bytes >= 8 {
            return self;
        }
        if self.terms.is_empty() {
            let shift = 64 - 8 * u32::from(bytes);
            return SumValue::constant((((self.constant << shift) as i64) >> shift) as u64);
        }
        match self.only_atom() {
            Some(Atom::Load { bytes: had, address, .. }) if *had == bytes => {
                SumValue::atom(Atom::Load { bytes, signed: true, address: address.clone() })
            }
            _ => SumValue::atom(Atom::Signed(bytes, Box::new(self))),
        }
    }
}

/// A value before its upper half was cleared.
pub fn unextended(value: SumValue) -> SumValue {
    match value.only_atom() {
        Some(Atom::Low(4, inner)) => (**inner).clone(),
        _ => value,
    }
}

/// Whether a value is read from a table at a fixed address.
pub fn is_from_table(atom: &Atom) -> bool {
    match atom {
        Atom::Load { bytes: 4 | 8, address, .. } => address.constant > 0xfff && address.terms.len() == 1,
        Atom::Signed(4, inner) => inner.only_atom().is_some_and(is_from_table),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opaque(at: SumPosition) -> SumValue {
        SumValue::atom(Atom::Opaque(SumLocation::Register(0), vec![at]))
    }

    #[test]
    fn sums_are_in_one_form() {
        let sum = opaque(1).times(4).plus(&SumValue::constant(0x1000)).plus(&opaque(2));
        let other = opaque(2).plus(&opaque(1).times(2)).plus(&SumValue::constant(0x1000)).plus(&opaque(1).times(2));
        assert_eq!(sum, other);
        assert_eq!(opaque(1).plus(&opaque(1).times(u64::MAX)), SumValue::constant(0));
        assert!(sum.only_atom().is_none() && opaque(1).only_atom().is_some());
    }

    #[test]
    fn extensions_of_constants_are_computed() {
        assert_eq!(SumValue::constant(0x1_0000_0080).low(4), SumValue::constant(0x80));
        assert_eq!(SumValue::constant(0x80).signed(1), SumValue::constant(0x80_u64.wrapping_sub(0x100)));
        let byte = SumValue::atom(Atom::Load { bytes: 1, signed: false, address: Box::new(opaque(3)) });
        assert_eq!(byte.clone().low(4), byte);
        assert_eq!(unextended(opaque(1).low(4)), opaque(1));
    }

    #[test]
    fn tables_lie_at_fixed_addresses() {
        let read = |address: SumValue| Atom::Load { bytes: 8, signed: false, address: Box::new(address) };
        assert!(is_from_table(&read(opaque(1).times(8).plus(&SumValue::constant(0x2000)))));
        assert!(!is_from_table(&read(opaque(1).plus(&SumValue::constant(8)))));
    }
}
