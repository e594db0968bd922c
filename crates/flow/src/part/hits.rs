//! The cost of the probes of one copy of a program: the number of their executions, by two measures.

use super::Measure;

/// Numbers of executions of probes, by two measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeHits {
    /// Number of executions of increments of the path register ([`Measure::Labels`]).
    pub labels: u64,
    /// Number of executions of increments and counts ([`Measure::All`]).
    pub all: u64,
}

impl ProbeHits {
    /// Returns the number of executions by the given measure.
    pub fn of(self, measure: Measure) -> u64 {
        match measure {
            Measure::Labels => self.labels,
            Measure::All => self.all,
        }
    }
}

impl std::iter::Sum for ProbeHits {
    fn sum<I: Iterator<Item = ProbeHits>>(all: I) -> ProbeHits {
        all.fold(ProbeHits::default(), |a, b| ProbeHits { labels: a.labels + b.labels, all: a.all + b.all })
    }
}
