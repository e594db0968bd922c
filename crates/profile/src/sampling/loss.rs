//! Estimates the loss of bursts: time in which the switch is on but the program makes no progress, because the recorder is woken up late or
//! the counting code is not in the cache yet.
//!
//! Each burst loses about the same time regardless of its length, but this time varies between machines and over time. Therefore the
//! recorder makes random bursts longer, and `W = speed * (t - loss * b)` is fitted to the readings, where `W` is the observed work, `t` the
//! time with the switch on and `b` the number of bursts. The least-squares fit has weights `1 / t`, since the variance of a sum grows with
//! its time (Draper and Smith, "Applied Regression Analysis", 3rd edition, sections 5.1 and 9.2).

use super::busy::SampledClock;

/// What was observed between two consecutive readings of the counters.
#[derive(Clone, Copy, Debug)]
pub struct CounterReading {
    pub on_ns: f64,
    pub bursts: f64,
    /// Observed work in instructions, including the cost of counting.
    pub work: f64,
}

/// Estimated time that each burst loses without progress of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoss {
    /// Nanoseconds per burst.
    pub ns: f64,
    pub error_ns: f64,
}

/// Maximum standard error, in nanoseconds, of a loss that cannot be fitted to readings. It is the usual delay with which recorders wake up
/// in virtual machines.
const MAX_UNKNOWN_ERROR_NS: f64 = 50_000.0;
/// Standard error of the expected loss before any reading, as a share of the burst's length. A burst cannot lose more than its whole
/// length, which this makes two standard errors.
const EXPECTED_LOSS_ERROR_SHARE: f64 = 0.5;
/// Expected loss, in nanoseconds, if times are processor time: the cost of code that is not in the cache, and of the calls that turn the
/// switch on and off. It was 16 to 40 µs in six programs (docs/benchmarks/constants.md).
const PROCESSOR_NS: f64 = 30_000.0;
const PROCESSOR_ERROR_NS: f64 = 20_000.0;
/// Upper bound for the expected loss and for its error, as a share of the mean length of a burst.
const MAX_PROCESSOR_SHARE: f64 = 0.25;
/// Minimum number of readings for a fit. The two fitted parameters leave ten degrees of freedom, with which 1.96 standard errors cover 92%
/// instead of 95%.
const MIN_READINGS_FOR_FIT: usize = 12;
/// Maximum share of its time that a burst is assumed to lose. Estimates are divided by the rest of the time, which must not be close to 0.
const MAX_LOSS_SHARE: f64 = 0.9;

impl BurstLoss {
    /// Fits the loss to readings, whose times were measured by `clock`.
    pub fn from_readings(readings: &[CounterReading], clock: SampledClock) -> BurstLoss {
        let used: Vec<CounterReading> = readings.iter().copied().filter(|seen| seen.on_ns > 0.0 && seen.bursts > 0.0).collect();
        let sum = |of: &dyn Fn(&CounterReading) -> f64| used.iter().map(of).sum::<f64>();
        let (time, bursts, work) = (sum(&|s| s.on_ns), sum(&|s| s.bursts), sum(&|s| s.work));
        let squares = sum(&|s| s.bursts * s.bursts / s.on_ns);
        let products = sum(&|s| s.work * s.bursts / s.on_ns);
        // A measure of how much the lengths of the bursts vary; 0 if all are equal. Equal lengths do not determine the loss.
        let spread = time * squares - bursts * bursts;
        if used.len() < MIN_READINGS_FOR_FIT || work <= 0.0 || spread <= 1e-6 * bursts * bursts {
            return BurstLoss::default_loss(time / bursts, clock);
        }
        let lost = (bursts * work - time * products) / spread;
        let speed = (work + lost * bursts) / time;
        if speed <= 0.0 {
            return BurstLoss::default_loss(time / bursts, clock);
        }
        let residue = |s: &CounterReading| (s.work - speed * s.on_ns + lost * s.bursts).powi(2) / s.on_ns;
        let variance = sum(&residue) / (used.len() - 2) as f64;
        let error_ns = (variance * time / spread).sqrt() / speed;
        // A loss cannot be negative, and a burst cannot lose all of its time.
        BurstLoss { ns: (lost / speed).clamp(0.0, MAX_LOSS_SHARE * time / bursts), error_ns }
            .average_with_expected_loss(BurstLoss::expected_loss(time / bursts, clock))
    }

    /// Returns the loss that is assumed if it cannot be fitted. `length_ns` is the mean length of the bursts.
    fn default_loss(length_ns: f64, clock: SampledClock) -> BurstLoss {
        let BurstLoss { ns, error_ns } = BurstLoss::expected_loss(length_ns, clock);
        BurstLoss { ns, error_ns: error_ns.min(MAX_UNKNOWN_ERROR_NS) }
    }

    /// Returns the expected loss if nothing is known from readings. `length_ns` is the mean length of the bursts.
    fn expected_loss(length_ns: f64, clock: SampledClock) -> BurstLoss {
        // Without bursts the mean length is NaN.
        let length_ns = if length_ns > 0.0 { length_ns } else { 0.0 };
        match clock {
            SampledClock::Wall { .. } => BurstLoss { ns: 0.0, error_ns: EXPECTED_LOSS_ERROR_SHARE * length_ns },
            SampledClock::Processor => {
                let bounded = |ns: f64| ns.min(MAX_PROCESSOR_SHARE * length_ns);
                BurstLoss { ns: bounded(PROCESSOR_NS), error_ns: bounded(PROCESSOR_ERROR_NS) }
            }
        }
    }

    /// Averages the fitted loss with the expected loss `known`, weighted by the inverse of their variances.
    fn average_with_expected_loss(self, known: BurstLoss) -> BurstLoss {
        let weight = |loss: &BurstLoss| 1.0 / loss.error_ns.powi(2).max(1.0);
        let (own, before) = (weight(&self), weight(&known));
        BurstLoss { ns: (self.ns * own + known.ns * before) / (own + before), error_ns: (1.0 / (own + before)).sqrt() }
    }

    /// Returns the time, in nanoseconds, in which the program made progress. `on_ns` is the time with the switch on.
    pub fn effective_burst_ns(self, on_ns: f64, bursts: f64) -> f64 {
        (on_ns - self.ns * bursts).max((1.0 - MAX_LOSS_SHARE) * on_ns)
    }

    /// Returns the relative standard error of the time that [`BurstLoss::effective_burst_ns`] returns.
    pub fn relative_error(self, on_ns: f64, bursts: f64) -> f64 {
        let effective = self.effective_burst_ns(on_ns, bursts);
        if effective > 0.0 { self.error_ns * bursts / effective } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_testkit::Random;

    const WALL: SampledClock = SampledClock::Wall { intended_ns: 0, waited: 0.0 };

    /// Simulates readings of a program whose speed varies between 0.5 and 1.5. A quarter of the readings have longer bursts.
    fn readings(random: &mut Random, loss_ns: f64, number: usize) -> Vec<CounterReading> {
        let reading = |_| {
            let length = if random.chance(25) { 200_000.0 } else { 50_000.0 };
            let bursts = 1.0 + random.below(10) as f64;
            let speed = 0.5 + random.below(1000) as f64 / 1000.0;
            CounterReading { on_ns: length * bursts, bursts, work: speed * (length - loss_ns) * bursts }
        };
        (0..number).map(reading).collect()
    }

    #[test]
    fn loss_of_bursts_is_estimated_with_its_error() {
        for loss_ns in [0.0, 10_000.0, 30_000.0] {
            let mut held = 0;
            for seed in 0..200 {
                let found = BurstLoss::from_readings(&readings(&mut Random::new(seed), loss_ns, 200), WALL);
                assert!((found.ns - loss_ns).abs() < 15_000.0, "seed {seed}: {found:?} {loss_ns}");
                held += usize::from((found.ns - loss_ns).abs() <= 1.96 * found.error_ns);
            }
            assert!(held >= 180, "{loss_ns}: {held} of 200");
        }
    }

    #[test]
    fn equal_bursts_or_few_readings_give_the_default_loss() {
        let equal: Vec<CounterReading> = (1..100).map(|at| CounterReading { on_ns: 50_000.0, bursts: 1.0, work: f64::from(at) }).collect();
        assert_eq!(BurstLoss::from_readings(&equal, WALL), BurstLoss { ns: 0.0, error_ns: 25_000.0 });
        assert_eq!(BurstLoss::from_readings(&readings(&mut Random::new(1), 0.0, MIN_READINGS_FOR_FIT - 1), WALL).ns, 0.0);
        assert_eq!(BurstLoss::from_readings(&[], WALL), BurstLoss { ns: 0.0, error_ns: 0.0 });
        // A loss that is not known matters for short bursts, but hardly for long ones.
        assert!(BurstLoss::default_loss(50_000.0, WALL).relative_error(50_000.0, 1.0) >= 0.5);
        assert!(BurstLoss::default_loss(5e6, WALL).relative_error(5e6, 1.0) <= 0.01);
        // Processor time: the expected loss is the same for all programs, unless their bursts are short.
        let of_program =
            |length| BurstLoss::from_readings(&[CounterReading { on_ns: length, bursts: 1.0, work: 1.0 }], SampledClock::Processor);
        assert_eq!(of_program(5e5), BurstLoss { ns: 30_000.0, error_ns: 20_000.0 });
        assert_eq!(of_program(4e4), BurstLoss { ns: 10_000.0, error_ns: 10_000.0 });
    }

    #[test]
    fn loss_is_less_than_a_burst() {
        let seen = |length: f64, work: f64| CounterReading { on_ns: length, bursts: 1.0, work };
        let all: Vec<CounterReading> = (0..100).map(|at| if at % 4 == 0 { seen(200_000.0, 1000.0) } else { seen(50_000.0, 0.0) }).collect();
        let found = BurstLoss::from_readings(&all, WALL);
        assert!(found.ns > 40_000.0 && found.effective_burst_ns(50_000.0, 1.0) > 0.0, "{found:?}");
    }
}
