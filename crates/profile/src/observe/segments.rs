//! Finds functions whose paths are counted only as ends of segments, which are paths across calls ([`crate::segments`]).

use super::{Inexact, InexactFinder};
use trodden_unit::{FunctionMap, UnitMap};

#[derive(Default)]
pub struct SegmentFinder(u64);

impl InexactFinder for SegmentFinder {
    fn visit_function(&mut self, _: &UnitMap, function: &FunctionMap, _: u64) {
        self.0 += u64::from(function.segment_words().is_some());
    }

    fn reasons(&mut self) -> Vec<Inexact> {
        if self.0 > 0 { vec![Inexact::Segments(self.0)] } else { Vec::new() }
    }
}
