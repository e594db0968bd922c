//! Loss of bursts: time with the switch on in which the program makes no progress.
//!
//! The recorder has to be woken to flip the switch, on a busy machine in the place of the program; counted code is cold
//! where a burst begins; and a virtual machine is late at both ends. Each burst loses about the same time by that,
//! whatever its length, so that short bursts observe too little, and long ones nearly all. The loss differs from
//! machine to machine and from hour to hour. So some bursts are several times longer than others, and the loss is estimated from the
//! difference. With the work `W` that a reading observed (executions of paths times what they cost), its time `t` with the
//! switch on and its number `b` of bursts,
//!
//! ```text
//! W = speed * (t - loss * b)
//! ```
//!
//! is fitted by least squares with weights `1 / t`, as the variance of a sum grows with its time (Draper and Smith,
//! "Applied Regression Analysis", 3rd edition, sections 5.1 and 9.2). Which readings have long bursts is drawn at
//! random, so phases of the program are no bias. O(readings).

use super::busy::SampledClock;

/// The observations of a part of the run.
#[derive(Clone, Copy, Debug)]
pub struct SeenReading {
    /// Nanoseconds with the switch on.
    pub on_ns: f64,
    /// Bursts.
    pub bursts: f64,
    /// Executions of paths times their cost, in instructions, including the cost of counting.
    pub work: f64,
}

/// The time that a burst loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Nanoseconds for each burst.
    pub ns: f64,
    /// Their standard error.
    pub error_ns: f64,
}

/// If no loss can be estimated by wall time, it is taken as 0 with this standard error, in nanoseconds, and with [`EXPECTED`] of a burst
/// at most: how late recorders wake up in virtual machines.
const UNKNOWN_NS: f64 = 50_000.0;
/// The standard error of the loss before anything is known, as a part of a burst: two of them are a whole burst, and no loss is more.
const EXPECTED: f64 = 0.5;
/// By the program's own processor time a burst loses what cold code costs, and the calls that turn the switch: 16 to 40 us in six programs
/// (docs/benchmarks/constants.md). Of shorter bursts it is a part.
const PROCESSOR_NS: f64 = 30_000.0;
/// The standard error of that.
const PROCESSOR_ERROR_NS: f64 = 20_000.0;
/// The greatest part of a burst that either of the two is taken to be.
const MAX_PROCESSOR_SHARE: f64 = 0.25;
/// The least number of readings for an estimate. Two parameters are fitted: with ten degrees of freedom a margin of 1.96 standard errors
/// holds 92 % in the place of 95 %.
const FEWEST: usize = 12;
/// The greatest share of its time that a burst loses: what is left divides, and must not come near 0.
const MOST: f64 = 0.9;

impl Loss {
    /// Fits it to readings, whose times are of that clock.
    pub fn from_readings(readings: &[SeenReading], clock: SampledClock) -> Loss {
        let used: Vec<SeenReading> = readings.iter().copied().filter(|seen| seen.on_ns > 0.0 && seen.bursts > 0.0).collect();
        let sum = |of: &dyn Fn(&SeenReading) -> f64| used.iter().map(of).sum::<f64>();
        let (time, bursts, work) = (sum(&|s| s.on_ns), sum(&|s| s.bursts), sum(&|s| s.work));
        let squares = sum(&|s| s.bursts * s.bursts / s.on_ns);
        let products = sum(&|s| s.work * s.bursts / s.on_ns);
        // The variance of the lengths of bursts: 0 if all are equal.
        let spread = time * squares - bursts * bursts;
        if used.len() < FEWEST || work <= 0.0 || spread <= 1e-6 * bursts * bursts {
            return Loss::unknown(time / bursts, clock);
        }
        let lost = (bursts * work - time * products) / spread;
        let speed = (work + lost * bursts) / time;
        if speed <= 0.0 {
            return Loss::unknown(time / bursts, clock);
        }
        let residue = |s: &SeenReading| (s.work - speed * s.on_ns + lost * s.bursts).powi(2) / s.on_ns;
        let variance = sum(&residue) / (used.len() - 2) as f64;
        let error_ns = (variance * time / spread).sqrt() / speed;
        // A loss is not negative, and less than a burst.
        Loss { ns: (lost / speed).clamp(0.0, MOST * time / bursts), error_ns }.weighed(Loss::expected(time / bursts, clock))
    }

    /// The default loss for bursts of a mean length.
    fn unknown(length_ns: f64, clock: SampledClock) -> Loss {
        let Loss { ns, error_ns } = Loss::expected(length_ns, clock);
        Loss { ns, error_ns: error_ns.min(UNKNOWN_NS) }
    }

    /// What is known of the loss of bursts of a mean length before any is seen.
    fn expected(length_ns: f64, clock: SampledClock) -> Loss {
        // There may be no burst.
        let length_ns = if length_ns > 0.0 { length_ns } else { 0.0 };
        match clock {
            SampledClock::Wall { .. } => Loss { ns: 0.0, error_ns: EXPECTED * length_ns },
            SampledClock::Processor => {
                let bounded = |ns: f64| ns.min(MAX_PROCESSOR_SHARE * length_ns);
                Loss { ns: bounded(PROCESSOR_NS), error_ns: bounded(PROCESSOR_ERROR_NS) }
            }
        }
    }

    /// A fit is averaged with what was known before, weighted by the variances.
    fn weighed(self, known: Loss) -> Loss {
        let weight = |loss: &Loss| 1.0 / loss.error_ns.powi(2).max(1.0);
        let (own, before) = (weight(&self), weight(&known));
        Loss { ns: (self.ns * own + known.ns * before) / (own + before), error_ns: (1.0 / (own + before)).sqrt() }
    }

    /// The time in which the program made progress.
    pub fn effective_ns(self, on_ns: f64, bursts: f64) -> f64 {
        (on_ns - self.ns * bursts).max((1.0 - MOST) * on_ns)
    }

    /// Its relative standard error.
    pub fn relative_error(self, on_ns: f64, bursts: f64) -> f64 {
        let effective = self.effective_ns(on_ns, bursts);
        if effective > 0.0 { self.error_ns * bursts / effective } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_testkit::Random;

    const WALL: SampledClock = SampledClock::Wall { asked_ns: 0, waited: 0.0 };

    /// Readings of a program that goes on at a speed between a half and one and a half, seldom in long bursts.
    fn readings(random: &mut Random, loss_ns: f64, number: usize) -> Vec<SeenReading> {
        let reading = |_| {
            let length = if random.chance(25) { 200_000.0 } else { 50_000.0 };
            let bursts = 1.0 + random.below(10) as f64;
            let speed = 0.5 + random.below(1000) as f64 / 1000.0;
            SeenReading { on_ns: length * bursts, bursts, work: speed * (length - loss_ns) * bursts }
        };
        (0..number).map(reading).collect()
    }

    #[test]
    fn the_loss_of_bursts_is_found_with_its_error() {
        for loss_ns in [0.0, 10_000.0, 30_000.0] {
            let mut held = 0;
            for seed in 0..200 {
                let found = Loss::from_readings(&readings(&mut Random::new(seed), loss_ns, 200), WALL);
                assert!((found.ns - loss_ns).abs() < 15_000.0, "seed {seed}: {found:?} {loss_ns}");
                held += usize::from((found.ns - loss_ns).abs() <= 1.96 * found.error_ns);
            }
            assert!(held >= 180, "{loss_ns}: {held} of 200");
        }
    }

    #[test]
    fn bursts_of_one_length_and_few_readings_say_nothing() {
        let alike: Vec<SeenReading> = (1..100).map(|at| SeenReading { on_ns: 50_000.0, bursts: 1.0, work: f64::from(at) }).collect();
        assert_eq!(Loss::from_readings(&alike, WALL), Loss { ns: 0.0, error_ns: 25_000.0 });
        assert_eq!(Loss::from_readings(&readings(&mut Random::new(1), 0.0, FEWEST - 1), WALL).ns, 0.0);
        assert_eq!(Loss::from_readings(&[], WALL), Loss { ns: 0.0, error_ns: 0.0 });
        // Which matters to short bursts, and hardly to long ones.
        assert!(Loss::unknown(50_000.0, WALL).relative_error(50_000.0, 1.0) >= 0.5);
        assert!(Loss::unknown(5e6, WALL).relative_error(5e6, 1.0) <= 0.01);
        // By processor time it is about the same for all programs.
        let of_program = |length| Loss::from_readings(&[SeenReading { on_ns: length, bursts: 1.0, work: 1.0 }], SampledClock::Processor);
        assert_eq!(of_program(5e5), Loss { ns: 30_000.0, error_ns: 20_000.0 });
        assert_eq!(of_program(4e4), Loss { ns: 10_000.0, error_ns: 10_000.0 });
    }

    #[test]
    fn no_burst_loses_more_than_it_lasts() {
        let seen = |length: f64, work: f64| SeenReading { on_ns: length, bursts: 1.0, work };
        let all: Vec<SeenReading> = (0..100).map(|at| if at % 4 == 0 { seen(200_000.0, 1000.0) } else { seen(50_000.0, 0.0) }).collect();
        let found = Loss::from_readings(&all, WALL);
        assert!(found.ns > 40_000.0 && found.effective_ns(50_000.0, 1.0) > 0.0, "{found:?}");
    }
}
