//! Events of a thread as symbols of 32 bits, which trace files store.
//!
//! Most blocks come after another block of the same function, or after one call or return. So the symbol of a block also contains the call
//! or return before it, in its upper bits. All other events have symbols of their own.

use crate::predicted::CONTEXT_MASK;
use crate::trace_event::{TraceBlock, TraceEvent};

const RETURN_SYMBOL: u32 = 0;
const UNWIND_SYMBOL: u32 = 1;
const FIRST_CALL_SYMBOL: u32 = 2;
const OUTSIDE_FLAG: u32 = 1;
const TAIL_FLAG: u32 = 2;
const FIRST_BLOCK_SYMBOL: u32 = 8;

/// The calls and returns between a block and the block before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLead(u32);

impl BlockLead {
    /// Neither a call nor a return.
    pub const NONE: Self = Self(0);
    /// A call from traced code.
    pub const CALL: Self = Self(1);
    /// A return.
    pub const RETURN: Self = Self(2);
    /// A tail call from traced code.
    pub const TAIL_CALL: Self = Self(4);

    /// Returns this followed by `next`; `None` if no symbol has both.
    pub fn followed_by(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::NONE, next) => Some(next),
            (Self::RETURN, Self::CALL | Self::TAIL_CALL) => Some(Self(self.0 | next.0)),
            _ => None,
        }
    }

    /// Returns true if there is a return.
    #[inline]
    pub fn returns(self) -> bool {
        self.0 & Self::RETURN.0 != 0
    }

    /// Returns true if there is a call that is not a tail call.
    #[inline]
    pub fn calls(self) -> bool {
        self.0 & Self::CALL.0 != 0
    }

    /// Returns true if there is a tail call.
    #[inline]
    pub fn tail_calls(self) -> bool {
        self.0 & Self::TAIL_CALL.0 != 0
    }

    fn events(self) -> impl Iterator<Item = TraceEvent> {
        let call = |tail| TraceEvent::Call { outside: false, tail };
        let events =
            [self.returns().then_some(TraceEvent::Return), self.calls().then(|| call(false)), self.tail_calls().then(|| call(true))];
        events.into_iter().flatten()
    }
}

/// The symbol of a block, with the calls and returns that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSymbol(u32);

impl Default for BlockSymbol {
    /// Returns the symbol of the first block, without a lead.
    fn default() -> Self {
        Self(FIRST_BLOCK_SYMBOL)
    }
}

impl BlockSymbol {
    /// Returns the symbol of a block; `None` if the block's number is too large.
    pub fn new(lead: BlockLead, block: TraceBlock) -> Option<Self> {
        let number = block.0.checked_add(FIRST_BLOCK_SYMBOL).filter(|number| *number <= CONTEXT_MASK)?;
        Some(Self(lead.0 << CONTEXT_MASK.count_ones() | number))
    }

    /// The calls and returns before the block.
    #[inline]
    pub fn lead(self) -> BlockLead {
        BlockLead(self.0 >> CONTEXT_MASK.count_ones())
    }

    /// The block.
    #[inline]
    pub fn block(self) -> TraceBlock {
        TraceBlock((self.0 & CONTEXT_MASK) - FIRST_BLOCK_SYMBOL)
    }

    /// Returns the calls and returns before the block, and the block.
    pub fn events(self) -> impl Iterator<Item = TraceEvent> {
        self.lead().events().chain([TraceEvent::Block(self.block())])
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Returns the symbols of the calls and returns in `lead`, without a block.
pub fn symbols_of_lead(lead: BlockLead) -> impl Iterator<Item = u32> {
    lead.events().map(|event| symbol_of_event(event).expect("only blocks have no symbols of their own"))
}

/// Returns the symbol of an event other than a block, which has a [`BlockSymbol`].
pub fn symbol_of_event(event: TraceEvent) -> Option<u32> {
    match event {
        TraceEvent::Return => Some(RETURN_SYMBOL),
        TraceEvent::Unwind => Some(UNWIND_SYMBOL),
        TraceEvent::Call { outside, tail } => {
            Some(FIRST_CALL_SYMBOL + if outside { OUTSIDE_FLAG } else { 0 } + if tail { TAIL_FLAG } else { 0 })
        }
        TraceEvent::Block(_) => None,
    }
}

/// Appends the events of a symbol in a trace with this number of program blocks; returns `None` if the symbol is invalid.
pub fn push_events_of_symbol(symbol: u64, block_count: usize, events: &mut Vec<TraceEvent>) -> Option<()> {
    let symbol = u32::try_from(symbol).ok()?;
    if symbol & CONTEXT_MASK >= FIRST_BLOCK_SYMBOL {
        let symbol = BlockSymbol(symbol);
        let is_known = (symbol.block().0 as usize) < block_count;
        if !is_known || (symbol.lead().calls() && symbol.lead().tail_calls()) {
            return None;
        }
        events.extend(symbol.events());
        return Some(());
    }
    let flags = symbol.wrapping_sub(FIRST_CALL_SYMBOL);
    events.push(match symbol {
        RETURN_SYMBOL => TraceEvent::Return,
        UNWIND_SYMBOL => TraceEvent::Unwind,
        _ if flags <= OUTSIDE_FLAG | TAIL_FLAG => TraceEvent::Call { outside: flags & OUTSIDE_FLAG != 0, tail: flags & TAIL_FLAG != 0 },
        _ => return None,
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_decoded() {
        let leads = [BlockLead::NONE, BlockLead::CALL, BlockLead::RETURN, BlockLead::TAIL_CALL];
        let pairs = leads.into_iter().flat_map(|a| leads.into_iter().filter_map(move |b| a.followed_by(b)));
        let all: Vec<BlockLead> = pairs.collect();
        assert_eq!(all.iter().filter(|lead| lead.returns() && (lead.calls() || lead.tail_calls())).count(), 2);
        for lead in all {
            let symbol = BlockSymbol::new(lead, TraceBlock(5)).unwrap();
            assert_eq!((symbol.lead(), symbol.block()), (lead, TraceBlock(5)));
            let (mut together, mut separate) = (Vec::new(), Vec::new());
            push_events_of_symbol(symbol.number().into(), 6, &mut together).unwrap();
            symbols_of_lead(lead).for_each(|symbol| push_events_of_symbol(symbol.into(), 6, &mut separate).unwrap());
            separate.push(TraceEvent::Block(TraceBlock(5)));
            assert_eq!(together, separate);
            assert!(push_events_of_symbol(symbol.number().into(), 5, &mut together).is_none());
        }
        for event in [(true, true), (true, false)].map(|(outside, tail)| TraceEvent::Call { outside, tail }) {
            let mut events = Vec::new();
            push_events_of_symbol(symbol_of_event(event).unwrap().into(), 0, &mut events).unwrap();
            assert_eq!(events, [event]);
        }
    }

    #[test]
    fn invalid_symbols_are_rejected() {
        let mut events = Vec::new();
        let call_and_tail_call = u64::from(5 << CONTEXT_MASK.count_ones() | FIRST_BLOCK_SYMBOL);
        let lead_without_block = u64::from(1_u32 << CONTEXT_MASK.count_ones());
        for symbol in [6, 7, 1 << 32, call_and_tail_call, lead_without_block, u64::MAX] {
            assert!(push_events_of_symbol(symbol, 1, &mut events).is_none(), "{symbol:#x}");
        }
        assert!(BlockSymbol::new(BlockLead::NONE, TraceBlock(CONTEXT_MASK)).is_none());
    }
}
