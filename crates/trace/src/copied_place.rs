//! Positions in instrumented copies of blocks: the purpose of the instruction there, and what is needed to reconstruct the program's own
//! state.

use std::ops::Range;

/// The purpose of an instruction in the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedPlace {
    /// Part of a head (the code that records a site), before the site is recorded.
    Head {
        site: u32,
        /// True if the program's `rcx` is in the ring.
        saved: bool,
    },
    /// Between the recording of the site and its first instruction.
    Recorded {
        site: u32,
        /// True if the program's `rcx` is in the ring.
        saved: bool,
    },
    /// Part of a copied block.
    Body {
        /// The instruction's address in the image.
        original: u64,
        /// True if the image still has the instruction there.
        intact: bool,
    },
    /// Part of a lookup, by which a copy executes an indirect jump.
    Lookup {
        /// The jump's address in the image. A site, a breakpoint or the original instruction is there.
        jump: u64,
        /// True if three of the program's registers are in the ring.
        saved: bool,
        /// True if the jump starts a block, which is recorded already.
        is_recorded: bool,
    },
    /// Just after the breakpoint of a lookup that has not found its target. The program's registers are in the ring.
    Missed { jump: u64, is_recorded: bool },
    /// A jump that must be single-stepped, just after the breakpoint before it.
    Stepped { jump: u64, is_recorded: bool },
    /// Part of an [order stamp](crate::order_stamps).
    Stamp {
        /// The image address of the instruction after it.
        original: u64,
        /// True if three of the program's registers are in the ring.
        saved: bool,
    },
}

impl CopiedPlace {
    /// Returns true if the instruction at the place starts a block that is recorded already.
    pub fn is_recorded(&self) -> bool {
        match *self {
            Self::Recorded { .. } => true,
            Self::Lookup { is_recorded, .. } | Self::Missed { is_recorded, .. } | Self::Stepped { is_recorded, .. } => is_recorded,
            Self::Head { .. } | Self::Body { .. } | Self::Stamp { .. } => false,
        }
    }
}

/// The purpose of each instruction in a range of copies. A compiler has 13 million such instructions, so each takes only 12 bytes.
#[derive(Clone, Debug)]
pub struct CopiedPlaces {
    /// Address of the first copy.
    start: u64,
    /// Offset of each instruction from `start`, ascending.
    offsets: Vec<u32>,
    places: Vec<PackedPlace>,
}

/// A [`CopiedPlace`]: its kind in the upper three bits, two flags, and the site or address in the lower bits.
#[derive(Clone, Copy, Debug)]
struct PackedPlace(u64);

impl CopiedPlaces {
    /// Creates an empty list for copies that begin at address `start`.
    pub fn new(start: u64) -> Self {
        Self { start, offsets: Vec::new(), places: Vec::new() }
    }

    /// Adds an instruction, whose address must be greater than all others.
    pub fn push(&mut self, address: u64, place: CopiedPlace) {
        let offset = u32::try_from(address - self.start).expect("copies lie within reach of a jump");
        debug_assert!(self.offsets.last().is_none_or(|last| *last < offset));
        self.offsets.push(offset);
        self.places.push(PackedPlace::new(place));
    }

    /// Returns the purpose of the instruction at an address; `None` if no instruction begins there.
    pub fn get(&self, address: u64) -> Option<CopiedPlace> {
        let offset = u32::try_from(address.checked_sub(self.start)?).ok()?;
        let index = self.offsets.binary_search(&offset).ok()?;
        Some(self.places[index].unpack())
    }

    /// Returns address and purpose of all instructions, by ascending address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, CopiedPlace)> {
        self.within(&(self.start..u64::MAX))
    }

    /// Returns address and purpose of the instructions in a range, by ascending address.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, CopiedPlace)> + use<'_> {
        let index_of = |address: u64| self.offsets.partition_point(|offset| self.start + u64::from(*offset) < address);
        let (first, end) = (index_of(range.start), index_of(range.end));
        let places = self.offsets[first..end].iter().zip(&self.places[first..end]);
        places.map(|(offset, place)| (self.start + u64::from(*offset), place.unpack()))
    }
}

impl PackedPlace {
    const KIND_SHIFT: u32 = 61;
    const SAVED_OR_INTACT: u64 = 1 << 60;
    const IS_RECORDED: u64 = 1 << 59;
    /// The bits of a site's number or an address. Addresses in programs have at most 57 bits.
    const VALUE_BITS: u64 = Self::IS_RECORDED - 1;

    fn new(place: CopiedPlace) -> Self {
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let saved = |saved: bool| flag(saved, Self::SAVED_OR_INTACT);
        let recorded = |is_recorded: bool| flag(is_recorded, Self::IS_RECORDED);
        let (kind, flags, value) = match place {
            CopiedPlace::Head { site, saved: is_saved } => (0, saved(is_saved), site.into()),
            CopiedPlace::Recorded { site, saved: is_saved } => (1, saved(is_saved), site.into()),
            CopiedPlace::Body { original, intact } => (2, saved(intact), original),
            CopiedPlace::Lookup { jump, saved: is_saved, is_recorded } => (3, saved(is_saved) | recorded(is_recorded), jump),
            CopiedPlace::Missed { jump, is_recorded } => (4, recorded(is_recorded), jump),
            CopiedPlace::Stepped { jump, is_recorded } => (5, recorded(is_recorded), jump),
            CopiedPlace::Stamp { original, saved: is_saved } => (6, saved(is_saved), original),
        };
        Self(kind << Self::KIND_SHIFT | flags | value & Self::VALUE_BITS)
    }

    fn unpack(self) -> CopiedPlace {
        let value = self.0 & Self::VALUE_BITS;
        let (saved, is_recorded) = (self.0 & Self::SAVED_OR_INTACT != 0, self.0 & Self::IS_RECORDED != 0);
        match self.0 >> Self::KIND_SHIFT {
            0 => CopiedPlace::Head { site: value as u32, saved },
            1 => CopiedPlace::Recorded { site: value as u32, saved },
            2 => CopiedPlace::Body { original: value, intact: saved },
            3 => CopiedPlace::Lookup { jump: value, saved, is_recorded },
            4 => CopiedPlace::Missed { jump: value, is_recorded },
            5 => CopiedPlace::Stepped { jump: value, is_recorded },
            _ => CopiedPlace::Stamp { original: value, saved },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_address() {
        let (address, jump, site) = (0x7fff_ffff_fff0, 0x7f00_1234_5678, u32::MAX);
        let mut all = Vec::new();
        for flag in [false, true] {
            all.extend([CopiedPlace::Head { site, saved: flag }, CopiedPlace::Recorded { site: 0, saved: flag }]);
            all.extend([CopiedPlace::Body { original: jump, intact: flag }, CopiedPlace::Missed { jump, is_recorded: flag }]);
            all.push(CopiedPlace::Stamp { original: jump, saved: flag });
            all.extend([CopiedPlace::Stepped { jump, is_recorded: flag }, CopiedPlace::Lookup { jump, saved: flag, is_recorded: !flag }]);
        }
        let mut places = CopiedPlaces::new(address);
        let listed: Vec<(u64, CopiedPlace)> = (0..).map(|n| address + 3 * n).zip(all).collect();
        listed.iter().for_each(|(at, place)| places.push(*at, *place));
        assert_eq!(places.iter().collect::<Vec<_>>(), listed);
        assert_eq!(places.within(&(address + 3..address + 7)).collect::<Vec<_>>(), listed[1..3]);
        assert!(listed.iter().all(|(at, place)| places.get(*at) == Some(*place) && places.get(at + 1).is_none()));
        assert_eq!(places.get(0), None);
    }
}
