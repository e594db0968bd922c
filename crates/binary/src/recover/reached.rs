//! The instructions that exploration has reached, by address. They are stored in arrays over the bytes of the code, since most bytes belong
//! to an instruction. Access takes constant time, and iteration scans bit sets.

use super::code::CodeSection;
use crate::instruction::MAX_INSTRUCTION_LENGTH;
use std::ops::Range;

/// The effect of an instruction on control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeFlow {
    Next,
    /// A call to a fixed address.
    Call(u64),
    /// A call through a register or memory.
    CallIndirect,
    /// A conditional jump to a fixed address.
    Conditional(u64),
    /// A jump to a fixed address.
    Jump(u64),
    /// A jump through a register or memory.
    JumpIndirect,
    Return,
    /// A trap.
    Stop,
}

/// A reachable instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedInstruction {
    pub size: u8,
    pub flow: CodeFlow,
}

/// Effects on control flow that have no target address. The first one is that of most instructions.
const COMMON_CODE_FLOWS: [CodeFlow; 5] = [CodeFlow::Next, CodeFlow::Return, CodeFlow::CallIndirect, CodeFlow::JumpIndirect, CodeFlow::Stop];

/// The reached instructions in all code sections.
#[derive(Debug)]
pub struct ReachedCode {
    sections: Vec<ReachedSection>,
    /// Effects on control flow, to which the sections refer by index.
    flows: Vec<CodeFlow>,
    count: usize,
}

#[derive(Debug)]
struct ReachedSection {
    start: u64,
    /// Size of the instruction that starts at each byte; 0 if none starts there.
    sizes: Vec<u8>,
    /// Index in [`ReachedCode::flows`] of the effect of the instruction that starts at each byte; 0 if none starts there.
    flows: Vec<u32>,
    /// The bytes at which instructions start. `transfers` contains those whose instruction may transfer control.
    starts: BitSet,
    transfers: BitSet,
}

/// A set of small numbers.
#[derive(Debug)]
struct BitSet(Vec<u64>);

impl BitSet {
    fn new(size: usize) -> Self {
        Self(vec![0; size.div_ceil(u64::BITS as usize)])
    }

    fn set(&mut self, number: usize, is_member: bool) {
        let (word, bit) = (&mut self.0[number / u64::BITS as usize], number as u32 % u64::BITS);
        *word = *word & !(1 << bit) | u64::from(is_member) << bit;
    }

    /// Returns the lowest member that is at least `from`.
    fn first_from(&self, from: usize) -> Option<usize> {
        let mut word = from / u64::BITS as usize;
        let mut bits = self.0.get(word)? & u64::MAX << (from as u32 % u64::BITS);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * u64::BITS as usize + bits.trailing_zeros() as usize)
    }

    fn iter_from(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.first_from(from), |last| self.first_from(last + 1))
    }
}

impl ReachedSection {
    fn end(&self) -> u64 {
        self.start + self.sizes.len() as u64
    }
}

impl ReachedCode {
    /// Creates a set without instructions for the given sections, which must be sorted by address and must not overlap.
    pub fn new(sections: &[CodeSection]) -> Self {
        let empty = |section: &CodeSection| {
            let size = (section.range.end - section.range.start) as usize;
            let (sizes, flows) = (vec![0; size], vec![0; size]);
            ReachedSection { start: section.range.start, sizes, flows, starts: BitSet::new(size), transfers: BitSet::new(size) }
        };
        Self { sections: sections.iter().map(empty).collect(), flows: COMMON_CODE_FLOWS.to_vec(), count: 0 }
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Adds an instruction, which must be in one of the sections.
    pub fn insert(&mut self, at: u64, reached: ReachedInstruction) {
        let flow = COMMON_CODE_FLOWS.iter().position(|common| *common == reached.flow).unwrap_or_else(|| {
            self.flows.push(reached.flow);
            self.flows.len() - 1
        });
        let number = self.sections.partition_point(|section| section.start <= at) - 1;
        let section = &mut self.sections[number];
        let offset = (at - section.start) as usize;
        self.count += usize::from(section.sizes[offset] == 0);
        (section.sizes[offset], section.flows[offset]) = (reached.size, flow as u32);
        section.starts.set(offset, true);
        section.transfers.set(offset, flow != 0);
    }

    /// Returns the instruction that starts at an address.
    pub fn get(&self, at: u64) -> Option<ReachedInstruction> {
        let section = self.section_at(at)?;
        let offset = (at - section.start) as usize;
        let size = *section.sizes.get(offset)?;
        (size != 0).then(|| ReachedInstruction { size, flow: self.flows[section.flows[offset] as usize] })
    }

    pub fn contains(&self, at: u64) -> bool {
        self.section_at(at).is_some_and(|section| section.sizes.get((at - section.start) as usize).is_some_and(|size| *size != 0))
    }

    /// Returns the last instruction before an address that is near enough to contain the address or to end there.
    pub fn last_before(&self, at: u64) -> Option<(u64, ReachedInstruction)> {
        (1..=MAX_INSTRUCTION_LENGTH).find_map(|distance| {
            let start = at.checked_sub(distance)?;
            Some((start, self.get(start)?))
        })
    }

    /// Returns the address of the first instruction at or after an address.
    pub fn first_from(&self, at: u64) -> Option<u64> {
        let first = self.sections.partition_point(|section| section.end() <= at);
        self.sections[first..].iter().find_map(|section| {
            let found = section.starts.first_from(at.saturating_sub(section.start) as usize)?;
            Some(section.start + found as u64)
        })
    }

    /// Returns the instructions that start in a range, sorted by address.
    pub fn range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, ReachedInstruction)> + '_ {
        let first = self.sections.partition_point(|section| section.end() <= range.start);
        let touched = self.sections[first..].iter().take_while(move |section| section.start < range.end);
        touched.flat_map(move |section| {
            let starts = section.starts.iter_from(range.start.saturating_sub(section.start) as usize);
            let inside = starts.take_while(move |offset| section.start + (*offset as u64) < range.end);
            inside.map(|offset| self.instruction_in_section(section, offset))
        })
    }

    /// Returns the instructions after which control does not always continue with the next one, sorted by address.
    pub fn transfers(&self) -> impl Iterator<Item = (u64, ReachedInstruction)> + '_ {
        self.sections.iter().flat_map(|section| section.transfers.iter_from(0).map(|offset| self.instruction_in_section(section, offset)))
    }

    fn instruction_in_section(&self, section: &ReachedSection, offset: usize) -> (u64, ReachedInstruction) {
        let reached = ReachedInstruction { size: section.sizes[offset], flow: self.flows[section.flows[offset] as usize] };
        (section.start + offset as u64, reached)
    }

    fn section_at(&self, at: u64) -> Option<&ReachedSection> {
        let after = self.sections.partition_point(|section| section.start <= at);
        self.sections[..after].last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares the set with an ordered map of the same instructions.
    #[test]
    fn reached_code_agrees_with_an_ordered_map() {
        let section = |range: Range<u64>| CodeSection { name: String::new(), range };
        let mut code = ReachedCode::new(&[section(0x1000..0x1100), section(0x2000..0x2080)]);
        let mut map: BTreeMap<u64, ReachedInstruction> = BTreeMap::new();
        let mut state = 1_u32;
        for _ in 0..150 {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let at = if state >> 30 == 0 { 0x2000 } else { 0x1000 } + u64::from(state >> 16 & 0x7f);
            let flow = match state >> 8 & 7 {
                0 => CodeFlow::Jump(at + 5),
                1 => CodeFlow::Conditional(at),
                kind => COMMON_CODE_FLOWS[kind as usize % COMMON_CODE_FLOWS.len()],
            };
            let reached = ReachedInstruction { size: 1 + (state >> 4 & 7) as u8, flow };
            code.insert(at, reached);
            map.insert(at, reached);
        }
        let pairs = |range: Range<u64>| map.range(range).map(|(at, reached)| (*at, *reached)).collect::<Vec<_>>();
        assert_eq!((code.len(), code.range(0..u64::MAX).collect::<Vec<_>>()), (map.len(), pairs(0..u64::MAX)));
        let transfers = pairs(0..u64::MAX).into_iter().filter(|(_, reached)| reached.flow != CodeFlow::Next);
        assert!(code.transfers().eq(transfers));
        for at in (0xff0..0x1110).chain(0x1ff0..0x2090) {
            assert_eq!((code.get(at), code.contains(at)), (map.get(&at).copied(), map.contains_key(&at)), "{at:#x}");
            assert_eq!(code.first_from(at), map.range(at..).next().map(|(at, _)| *at), "{at:#x}");
            let near = map.range(at - MAX_INSTRUCTION_LENGTH..at).next_back().map(|(at, reached)| (*at, *reached));
            assert_eq!(code.last_before(at), near, "{at:#x}");
            for length in [0, 1, 30, 0x1000] {
                assert!(code.range(at..at + length).eq(pairs(at..at + length)), "{at:#x} {length}");
            }
        }
    }
}
