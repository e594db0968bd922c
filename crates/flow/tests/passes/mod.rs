//! The passes that apply to a program, by what it counts.

use trodden_flow::ProbeProgram;
use trodden_flow::program::{Cells, Choices, DominantCounting, EarlyCounting, TripCounting};

/// Returns the passes that the compiler plugin's observations run on such a program.
pub fn limit(program: &ProbeProgram) -> Choices {
    let all = Choices { trip_counts: TripCounting::On, early: EarlyCounting::IfProfitable, dominant: DominantCounting::Register };
    match (program.cells(), program.known(), program.places()) {
        (Cells::Interesting(_), ..) => Choices { early: EarlyCounting::IfProfitable, ..Choices::AT_PATH_ENDS },
        (Cells::Labels { .. }, ..) => Choices { early: EarlyCounting::Never, dominant: DominantCounting::Shared, ..all },
        (_, Some(_), Some(_)) => Choices { early: EarlyCounting::IfNecessary, ..all },
        (_, Some(_), None) => Choices::AT_PATH_ENDS,
        _ => all,
    }
}
