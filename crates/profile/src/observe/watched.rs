//! Finds units that count only watched paths, which an expression selects. Their times are decoded in [`super::unknown`].

use super::{Inexact, InexactFinder};
use trodden_unit::UnitMap;

#[derive(Default)]
pub struct WatchedPathFinder(u64);

impl InexactFinder for WatchedPathFinder {
    fn visit_unit(&mut self, map: &UnitMap) {
        self.0 += u64::from(map.experiment.is_watched());
    }

    fn reasons(&mut self) -> Vec<Inexact> {
        if self.0 > 0 { vec![Inexact::Watched(self.0)] } else { Vec::new() }
    }
}
