//! What the linker put together: the unit records of this image and the extent of its counters.
//!
//! Invariant: every unit's counters lie within the section of counters, or the image is refused as a whole.

use crate::text::Failure;
use crate::wire::{Identity, RawUnit, UNIT_MAGIC, UNIT_VERSION, UnitRecord, image_identity};
use core::arch::asm;
use core::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// The image this code is linked into.
#[derive(Clone, Copy)]
pub struct Image {
    /// Address of the first counter of the template.
    pub template: usize,
    /// Number of counters.
    pub counters: u64,
    /// Address of the page with the switch of the sample tier; 0 if no unit is of that tier.
    pub switch: usize,
    /// Address of the bias of the region that all threads share; 0 if no unit has its threads share one.
    pub shared: usize,
    records: &'static [UnitRecord],
}

/// Address of a symbol that may not exist (then 0); by way of the global offset table, where linkers put 0 for those in every kind of
/// image.
macro_rules! address_of {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads one word of the global offset table.
        unsafe {
            asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        address
    }};
}
pub(crate) use address_of;

impl Image {
    /// Reads the bounds that the linker defined. No unit: nothing is counted in this image.
    pub fn of_linker() -> Image {
        let (first, end) = (address_of!("__start_trodden_units"), address_of!("__stop_trodden_units"));
        let (template, stop) = (address_of!("__start_trodden_counters"), address_of!("__stop_trodden_counters"));
        let count = if first == 0 { 0 } else { end.wrapping_sub(first) / size_of::<UnitRecord>() };
        let records = match count {
            0 => &[][..],
            // SAFETY: the section holds UnitRecords without gaps, is never written, and lives as long as this code.
            _ => unsafe { core::slice::from_raw_parts(first as *const UnitRecord, count) },
        };
        let switch = address_of!("__trodden_switch");
        let shared = address_of!("__trodden_shared_bias");
        Image { template, switch, shared, counters: (stop.wrapping_sub(template) / size_of::<u64>()) as u64, records }
    }

    /// The bias of the region that all threads share.
    pub fn shared_bias(&self) -> Option<&'static AtomicI64> {
        // SAFETY: null, or a word that instrumented code defines for this purpose, and that lives as long as this code.
        unsafe { (self.shared as *const AtomicI64).as_ref() }
    }

    /// Address of the region that all threads share; 0 if there is none yet.
    pub fn shared_region(&self) -> usize {
        match self.shared_bias().map_or(0, |bias| bias.load(SeqCst)) {
            0 => 0,
            bias => self.template.wrapping_add(bias as usize),
        }
    }

    /// Address of the records: an address within this image.
    pub fn address(&self) -> usize {
        self.records.as_ptr() as usize
    }

    /// Number of units.
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Whether there is nothing to count.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() || self.counters == 0
    }

    /// Checks the records against the section of counters.
    pub fn check(&self) -> Result<(), Failure> {
        let whole = self.records.iter().all(|record| record.magic == UNIT_MAGIC && record.version == UNIT_VERSION);
        let inside = self.units().all(|unit| unit.first <= self.counters && unit.counters <= self.counters - unit.first);
        match whole && inside {
            true => Ok(()),
            false => {
                Err(Failure::new(b"its unit records do not fit this runtime", b"rebuild all of its parts with one version of trodden"))
            }
        }
    }

    /// Identity of the image.
    pub fn identity(&self) -> Identity {
        image_identity(self.records.iter().map(|record| (record.unit, record.counters)))
    }

    /// The units as a raw file names them.
    pub fn units(&self) -> impl Iterator<Item = RawUnit> + '_ {
        self.records.iter().map(|record| {
            let counters = (&raw const *record as usize).wrapping_add(record.counters_delta as usize);
            // A unit without counters has no place among them.
            let first = if record.counters == 0 { 0 } else { counters.wrapping_sub(self.template) / size_of::<u64>() };
            RawUnit { unit: record.unit, first: first as u64, counters: record.counters }
        })
    }
}
