//! Positions in instrumented copies of blocks: the purpose of the instruction there, and what is needed to reconstruct the program's own
//! state.

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
}

impl CopiedPlace {
    /// Returns true if the instruction at the place starts a block that is recorded already.
    pub fn is_recorded(&self) -> bool {
        match *self {
            Self::Recorded { .. } => true,
            Self::Lookup { is_recorded, .. } | Self::Missed { is_recorded, .. } | Self::Stepped { is_recorded, .. } => is_recorded,
            Self::Head { .. } | Self::Body { .. } => false,
        }
    }
}
