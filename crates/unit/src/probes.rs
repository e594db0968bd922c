//! How blocks are named in the section `.pseudo_probe` of programs of the tier `addresses`: what the plugin writes and readers look for.
//!
//! LLVM's pseudo probes carry a function's identifier and a number. Here the first is a hash of the unit and of the
//! function's place in its map, the second says the block and what is about to happen in it. The section's format is
//! read in the crate `trodden-binary`.

use crate::identity::Identity;

/// Identifier of a function of a unit, by its place in the unit's map, in pseudo probes.
pub fn probe_function(unit: Identity, function: u32) -> u64 {
    let mut content = unit.0.to_vec();
    content.extend(function.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&content)
}

/// What the place of a probe means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PseudoProbe {
    /// The block, a node of the function's graph.
    pub block: u32,
    /// What happens here.
    pub event: ProbeEvent,
}

/// What happens at a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeEvent {
    /// The block begins.
    Begin,
    /// The block is about to make the call that might not come back. Where no other call comes before, this has no
    /// probe: it happens whenever the block begins.
    Reach,
    /// The path is about to end, by a call that takes the function's place or does not return. No probe as well where no call comes before.
    End,
}

impl PseudoProbe {
    /// A block begins.
    pub fn block(block: u32) -> PseudoProbe {
        PseudoProbe { block, event: ProbeEvent::Begin }
    }

    /// A call that might not come back.
    pub fn reach(block: u32) -> PseudoProbe {
        PseudoProbe { block, event: ProbeEvent::Reach }
    }

    /// The end of a path.
    pub fn end(block: u32) -> PseudoProbe {
        PseudoProbe { block, event: ProbeEvent::End }
    }

    /// Its number: not 0, which LLVM uses.
    pub fn number(self) -> u64 {
        3 * u64::from(self.block) + 1 + self.event as u64
    }

    /// The probe of a number.
    pub fn from_number(number: u64) -> Option<PseudoProbe> {
        let from = number.checked_sub(1)?;
        let event = [ProbeEvent::Begin, ProbeEvent::Reach, ProbeEvent::End][(from % 3) as usize];
        Some(PseudoProbe { block: u32::try_from(from / 3).ok()?, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_numbers_and_functions_names_of_their_own() {
        for block in [0, 1, 77, u32::MAX] {
            for probe in [PseudoProbe::block(block), PseudoProbe::reach(block), PseudoProbe::end(block)] {
                assert_eq!(PseudoProbe::from_number(probe.number()), Some(probe));
            }
        }
        assert_eq!(PseudoProbe::from_number(0), None);
        let unit = |n| Identity([n; 16]);
        assert_ne!(probe_function(unit(1), 0), probe_function(unit(1), 1));
        assert_ne!(probe_function(unit(1), 0), probe_function(unit(2), 0));
    }
}
