//! The cost of the probes of one copy of a program: the number of their executions, by two measures.

use super::Measure;

/// Numbers of executions of probes, by two measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Number of executions of increments of the path register ([`Measure::Labels`]).
    pub labels: u64,
    /// Number of executions of increments and counts ([`Measure::All`]).
    pub all: u64,
}

impl Hits {
    /// Returns the number of executions by the given measure.
    pub fn of(self, measure: Measure) -> u64 {
        match measure {
            Measure::Labels => self.labels,
            Measure::All => self.all,
        }
    }
}

impl std::iter::Sum for Hits {
    fn sum<I: Iterator<Item = Hits>>(all: I) -> Hits {
        all.fold(Hits::default(), |a, b| Hits { labels: a.labels + b.labels, all: a.all + b.all })
    }
}
