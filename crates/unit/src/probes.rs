//! Encodes blocks as LLVM pseudo probes, for builds in which the addresses of blocks are recorded. A pseudo probe consists of a function
//! identifier and a number, and is stored in the section `.pseudo_probe`. In these builds, the identifier is a hash of the unit and of the
//! function's index in the unit's map. The number encodes the block and the event at the probe. The crate `trodden-binary` reads the
//! section.

use crate::identity::Identity;

/// Returns the identifier of a function for pseudo probes. `function` is its index in the unit's map.
pub fn probe_function_id(unit: Identity, function: u32) -> u64 {
    let mut content = unit.0.to_vec();
    content.extend(function.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&content)
}

/// A pseudo probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PseudoProbe {
    /// The block, which is a node of the function's graph.
    pub block: u32,
    /// The event at the probe.
    pub event: ProbeEvent,
}

/// What happens at a pseudo probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeEvent {
    /// The block begins.
    Begin,
    /// The block is about to make a call that may not return. The first call of a block has no probe, since it is reached whenever the
    /// block begins.
    Reach,
    /// The path is about to end with a tail call, or with a call that does not return. The first call of a block has no probe.
    End,
}

impl PseudoProbe {
    /// Returns the probe at the beginning of a block.
    pub fn block(block: u32) -> PseudoProbe {
        PseudoProbe { block, event: ProbeEvent::Begin }
    }

    /// Returns the probe before a call of the block that may not return.
    pub fn reach(block: u32) -> PseudoProbe {
        PseudoProbe { block, event: ProbeEvent::Reach }
    }

    /// Returns the probe at the end of a path, in the path's last block.
    pub fn end(block: u32) -> PseudoProbe {
        PseudoProbe { block, event: ProbeEvent::End }
    }

    /// Encodes the probe as a number. The number is positive, since LLVM reserves 0.
    pub fn number(self) -> u64 {
        3 * u64::from(self.block) + 1 + self.event as u64
    }

    /// Decodes a number; `None` if it does not encode a probe.
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
    fn probe_numbers_and_function_identifiers_are_unique() {
        for block in [0, 1, 77, u32::MAX] {
            for probe in [PseudoProbe::block(block), PseudoProbe::reach(block), PseudoProbe::end(block)] {
                assert_eq!(PseudoProbe::from_number(probe.number()), Some(probe));
            }
        }
        assert_eq!(PseudoProbe::from_number(0), None);
        let unit = |n| Identity([n; 16]);
        assert_ne!(probe_function_id(unit(1), 0), probe_function_id(unit(1), 1));
        assert_ne!(probe_function_id(unit(1), 0), probe_function_id(unit(2), 0));
    }
}
