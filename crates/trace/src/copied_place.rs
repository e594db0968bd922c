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
    /// After the recording of the site, and before its first instruction is executed.
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

/// Number of instructions of a head, without the breakpoint before it.
pub const HEAD_INSTRUCTION_COUNT: usize = 7;

/// Offset of each instruction of a head from the first one.
pub type HeadOffsets = [u8; HEAD_INSTRUCTION_COUNT];

/// The purpose of each instruction in a range of copies. The copies of a large program, such as a compiler, have 13 million instructions,
/// so an entry takes only 12 bytes, and a head has one entry for all of its instructions.
#[derive(Clone, Debug)]
pub struct CopiedPlaces {
    /// Address of the first copy.
    start: u64,
    head: HeadOffsets,
    /// Offset from `start` of the instruction, or first instruction, of each entry, ascending.
    offsets: Vec<u32>,
    entries: Vec<PackedPlace>,
}

/// A [`CopiedPlace`], or all places of a site's head: the kind in the upper three bits, two flags, and the site or address in the lower
/// bits.
#[derive(Clone, Copy, Debug)]
struct PackedPlace(u64);

impl CopiedPlaces {
    /// Creates an empty list for copies that begin at address `start`.
    pub fn new(start: u64, head: HeadOffsets) -> Self {
        Self { start, head, offsets: Vec::new(), entries: Vec::new() }
    }

    /// Adds an instruction, whose address must be greater than all others.
    pub fn push(&mut self, address: u64, place: CopiedPlace) {
        self.push_entry(address, PackedPlace::new(place));
    }

    /// Adds the instructions of a site's head. The first one, at this address, must be after all others.
    pub fn push_head(&mut self, address: u64, site: u32) {
        self.push_entry(address, PackedPlace::new_head(site));
    }

    fn push_entry(&mut self, address: u64, entry: PackedPlace) {
        let offset = u32::try_from(address - self.start).expect("copies lie within reach of a jump");
        debug_assert!(self.offsets.last().is_none_or(|last| *last < offset));
        self.offsets.push(offset);
        self.entries.push(entry);
    }

    /// Returns the purpose of the instruction at an address; `None` if no instruction begins there.
    pub fn get(&self, address: u64) -> Option<CopiedPlace> {
        let offset = u32::try_from(address.checked_sub(self.start)?).ok()?;
        let index = self.offsets.partition_point(|first| *first <= offset).checked_sub(1)?;
        self.places_of_entry(index).find(|(at, _)| *at == address).map(|(_, place)| place)
    }

    fn places_of_entry(&self, index: usize) -> impl Iterator<Item = (u64, CopiedPlace)> {
        let (first, entry) = (self.start + u64::from(self.offsets[index]), self.entries[index]);
        let (single, site) = match entry.head_site() {
            None => (Some((first, entry.unpack())), None),
            Some(site) => (None, Some(site)),
        };
        let numbered = self.head.into_iter().enumerate();
        let of_head = site
            .into_iter()
            .flat_map(move |site| numbered.clone().map(move |(number, offset)| (first + u64::from(offset), place_in_head(site, number))));
        single.into_iter().chain(of_head)
    }

    /// Returns address and purpose of all instructions, by ascending address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, CopiedPlace)> {
        self.within(&(self.start..u64::MAX))
    }

    /// Returns address and purpose of the instructions in a range, by ascending address.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, CopiedPlace)> + use<'_> {
        let index_of = |address: u64| self.offsets.partition_point(|offset| self.start + u64::from(*offset) < address);
        // The entry before the range may be a head that extends into it.
        let (first, end, range) = (index_of(range.start).saturating_sub(1), index_of(range.end), range.clone());
        (first..end).flat_map(|index| self.places_of_entry(index)).filter(move |(address, _)| range.contains(address))
    }
}

/// Returns the purpose of the instruction with this number in the head of a site.
fn place_in_head(site: u32, number: usize) -> CopiedPlace {
    match number + 1 == HEAD_INSTRUCTION_COUNT {
        true => CopiedPlace::Recorded { site, saved: true },
        false => CopiedPlace::Head { site, saved: number > 0 },
    }
}

impl PackedPlace {
    const KIND_SHIFT: u32 = 61;
    const SAVED_OR_INTACT: u64 = 1 << 60;
    const IS_RECORDED: u64 = 1 << 59;
    /// The kind of an entry for all instructions of a head.
    const ENTIRE_HEAD: u64 = 7;
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

    fn new_head(site: u32) -> Self {
        Self(Self::ENTIRE_HEAD << Self::KIND_SHIFT | u64::from(site))
    }

    /// Returns the site if this is the entry of a head.
    fn head_site(self) -> Option<u32> {
        (self.0 >> Self::KIND_SHIFT == Self::ENTIRE_HEAD).then_some(self.0 as u32)
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
        let head = [0, 9, 18, 20, 31, 35, 44];
        let mut places = CopiedPlaces::new(address, head);
        let listed: Vec<(u64, CopiedPlace)> = (0..).map(|n| address + 3 * n).zip(all).collect();
        listed.iter().for_each(|(at, place)| places.push(*at, *place));
        assert_eq!(places.iter().collect::<Vec<_>>(), listed);
        assert_eq!(places.within(&(address + 3..address + 7)).collect::<Vec<_>>(), listed[1..3]);
        assert!(listed.iter().all(|(at, place)| places.get(*at) == Some(*place) && places.get(at + 1).is_none()));
        assert_eq!(places.get(0), None);
        let start = address + 1000;
        places.push_head(start, site);
        places.push(start + 60, CopiedPlace::Body { original: jump, intact: true });
        let in_head = |number: usize| match number {
            6 => CopiedPlace::Recorded { site, saved: true },
            _ => CopiedPlace::Head { site, saved: number > 0 },
        };
        for (number, offset) in head.into_iter().enumerate() {
            let at = start + u64::from(offset);
            assert_eq!((places.get(at), places.get(at + 1)), (Some(in_head(number)), None));
            let rest: Vec<CopiedPlace> = places.within(&(at..start + 60)).map(|(_, place)| place).collect();
            assert_eq!(rest, (number..7).map(in_head).collect::<Vec<_>>());
        }
        assert_eq!(places.iter().count(), listed.len() + 8);
    }
}
