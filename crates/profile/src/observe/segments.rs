//! Finds functions whose paths are counted only as ends of segments, which are paths across calls ([`crate::segments`]).

use super::{InexactFinder, InexactnessReason};
use trodden_unit::{FunctionMap, UnitMap};

#[derive(Default)]
pub struct SegmentFinder(u64);

impl InexactFinder for SegmentFinder {
    fn visit_function(&mut self, _: &UnitMap, function: &FunctionMap, _: u64) {
        self.0 += u64::from(function.segment_words().is_some());
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        if self.0 > 0 { vec![InexactnessReason::Segments(self.0)] } else { Vec::new() }
    }
}
