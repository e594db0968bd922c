//! The passes that apply to a program, by what it counts.

use trodden_flow::ProbeProgram;
use trodden_flow::program::{CounterCells, DominantCounting, EarlyCounting, PassChoices, TripCounting};

pub fn allowed_passes(program: &ProbeProgram) -> PassChoices {
    let all = PassChoices { trip_counts: TripCounting::On, early: EarlyCounting::IfProfitable, dominant: DominantCounting::Register };
    match (program.cells(), program.known(), program.places()) {
        (CounterCells::Interesting(_), ..) => PassChoices { early: EarlyCounting::IfProfitable, ..PassChoices::COUNTING_AT_PATH_ENDS },
        (CounterCells::Labels { .. }, ..) => PassChoices { early: EarlyCounting::Never, dominant: DominantCounting::Shared, ..all },
        (_, Some(_), Some(_)) => PassChoices { early: EarlyCounting::IfNecessary, ..all },
        (_, Some(_), None) => PassChoices::COUNTING_AT_PATH_ENDS,
        _ => all,
    }
}
