//! The reachable instructions, by address: arrays over the bytes of the code, since most bytes belong to an instruction. Access takes
//! constant time, and iteration is a scan of bits.

use super::code::CodeSection;
use crate::instruction::MAX_INSTRUCTION_LENGTH;
use std::ops::Range;

/// The effect of an instruction on control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeFlow {
    Next,
    /// A call of a fixed address.
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
pub struct Reached {
    pub size: u8,
    pub flow: CodeFlow,
}

/// The effects on control flow that need no target. The first is that of most instructions.
const COMMON: [CodeFlow; 5] = [CodeFlow::Next, CodeFlow::Return, CodeFlow::CallIndirect, CodeFlow::JumpIndirect, CodeFlow::Stop];

/// Reachable instructions in code sections.
#[derive(Debug)]
pub struct ReachedCode {
    sections: Vec<ReachedSection>,
    /// The effects on control flow that instructions refer to.
    flows: Vec<CodeFlow>,
    count: usize,
}

#[derive(Debug)]
struct ReachedSection {
    start: u64,
    /// For each byte, the size of the instruction that starts there, or 0.
    sizes: Vec<u8>,
    /// For each byte, the index of the instruction's effect; 0 if no instruction starts there.
    flows: Vec<u32>,
    /// The bytes where instructions start, and those of them that may transfer control.
    starts: Bits,
    transfers: Bits,
}

/// A set of small numbers.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(size: usize) -> Self {
        Self(vec![0; size.div_ceil(u64::BITS as usize)])
    }

    fn set(&mut self, number: usize, is_member: bool) {
        let (word, bit) = (&mut self.0[number / u64::BITS as usize], number as u32 % u64::BITS);
        *word = *word & !(1 << bit) | u64::from(is_member) << bit;
    }

    /// The first member that is not below `from`.
    fn first_from(&self, from: usize) -> Option<usize> {
        let mut word = from / u64::BITS as usize;
        let mut bits = self.0.get(word)? & u64::MAX << (from as u32 % u64::BITS);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * u64::BITS as usize + bits.trailing_zeros() as usize)
    }

    fn from(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.first_from(from), |last| self.first_from(last + 1))
    }
}

impl ReachedSection {
    fn end(&self) -> u64 {
        self.start + self.sizes.len() as u64
    }
}

impl ReachedCode {
    /// No instructions in these sections, which are disjoint and in order of address.
    pub fn new(sections: &[CodeSection]) -> Self {
        let empty = |section: &CodeSection| {
            let size = (section.range.end - section.range.start) as usize;
            let (sizes, flows) = (vec![0; size], vec![0; size]);
            ReachedSection { start: section.range.start, sizes, flows, starts: Bits::new(size), transfers: Bits::new(size) }
        };
        Self { sections: sections.iter().map(empty).collect(), flows: COMMON.to_vec(), count: 0 }
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Adds an instruction, which is in a section.
    pub fn insert(&mut self, at: u64, reached: Reached) {
        let flow = COMMON.iter().position(|common| *common == reached.flow).unwrap_or_else(|| {
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

    /// The instruction at an address.
    pub fn get(&self, at: u64) -> Option<Reached> {
        let section = self.section_at(at)?;
        let offset = (at - section.start) as usize;
        let size = *section.sizes.get(offset)?;
        (size != 0).then(|| Reached { size, flow: self.flows[section.flows[offset] as usize] })
    }

    pub fn contains(&self, at: u64) -> bool {
        self.section_at(at).is_some_and(|section| section.sizes.get((at - section.start) as usize).is_some_and(|size| *size != 0))
    }

    /// The last instruction that starts before an address and near enough to contain or touch it.
    pub fn last_before(&self, at: u64) -> Option<(u64, Reached)> {
        (1..=MAX_INSTRUCTION_LENGTH).find_map(|distance| {
            let start = at.checked_sub(distance)?;
            Some((start, self.get(start)?))
        })
    }

    /// The address of the first instruction at or after an address.
    pub fn first_from(&self, at: u64) -> Option<u64> {
        let first = self.sections.partition_point(|section| section.end() <= at);
        self.sections[first..].iter().find_map(|section| {
            let found = section.starts.first_from(at.saturating_sub(section.start) as usize)?;
            Some(section.start + found as u64)
        })
    }

    /// The instructions that start in a range, in order of address.
    pub fn range(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Reached)> + '_ {
        let first = self.sections.partition_point(|section| section.end() <= range.start);
        let touched = self.sections[first..].iter().take_while(move |section| section.start < range.end);
        touched.flat_map(move |section| {
            let starts = section.starts.from(range.start.saturating_sub(section.start) as usize);
            let inside = starts.take_while(move |offset| section.start + (*offset as u64) < range.end);
            inside.map(|offset| self.in_section(section, offset))
        })
    }

    /// The instructions after which control may not continue with the next one, in order of address.
    pub fn transfers(&self) -> impl Iterator<Item = (u64, Reached)> + '_ {
        self.sections.iter().flat_map(|section| section.transfers.from(0).map(|offset| self.in_section(section, offset)))
    }

    fn in_section(&self, section: &ReachedSection, offset: usize) -> (u64, Reached) {
        let reached = Reached { size: section.sizes[offset], flow: self.flows[section.flows[offset] as usize] };
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

    /// The same instructions in an ordered map.
    #[test]
    fn arrays_answer_like_an_ordered_map() {
        let section = |range: Range<u64>| CodeSection { name: String::new(), range };
        let mut code = ReachedCode::new(&[section(0x1000..0x1100), section(0x2000..0x2080)]);
        let mut map: BTreeMap<u64, Reached> = BTreeMap::new();
        let mut state = 1_u32;
        for _ in 0..150 {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let at = if state >> 30 == 0 { 0x2000 } else { 0x1000 } + u64::from(state >> 16 & 0x7f);
            let flow = match state >> 8 & 7 {
                0 => CodeFlow::Jump(at + 5),
                1 => CodeFlow::Conditional(at),
                kind => COMMON[kind as usize % COMMON.len()],
            };
            let reached = Reached { size: 1 + (state >> 4 & 7) as u8, flow };
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
