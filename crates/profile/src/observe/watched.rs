//! Finds units that count only watched paths, which an expression selects. Their times are decoded in [`super::unknown`].

use super::{InexactFinder, InexactnessReason};
use trodden_unit::UnitMap;

#[derive(Default)]
pub struct WatchedPathFinder(u64);

impl InexactFinder for WatchedPathFinder {
    fn visit_unit(&mut self, map: &UnitMap) {
        self.0 += u64::from(map.experiment.is_watched());
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        if self.0 > 0 { vec![InexactnessReason::Watched(self.0)] } else { Vec::new() }
    }
}
