//! Estimates the offset between two clocks from messages.
//!
//! A message that is sent at the time `s` of one clock and received at the time `r` of the other is an upper bound on the second clock's
//! offset: `r - s`. A message in the other direction is a lower bound. If the clocks have different rates, the offset changes over time,
//! and the estimate is a line between the bounds (Duda, Harrus, Haddad, Bernard: Estimating global time in distributed systems, ICDCS
//! 1987).
//!
//! The slope of the line follows from the smallest delays in each half of the run. If there is no line with this slope between the bounds,
//! the slope that leaves most room between them is used. If there is no such line with any slope, the rate has changed, and each half of
//! the run gets a line of its own.

/// Maximum difference between the rates of two clocks. The kernel adjusts a clock by at most 500 ppm.
const MAX_RATE_DIFFERENCE: f64 = 1e-3;
/// Maximum number of times that the run is divided into halves.
const MAX_RUN_HALVINGS: u32 = 6;
/// Number of steps in a search for a slope. Each step reduces the interval by at least a third.
const SLOPE_SEARCH_STEPS: usize = 100;

/// The offset of a clock as a piecewise linear function of time. It is 0 if there are no knots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCurve {
    /// Pairs of a time and the offset at that time, both in ns, in ascending order of time.
    knots: Vec<(i128, i128)>,
}

impl OffsetCurve {
    /// Creates a curve from pairs of a time and an offset, in ascending order of time. Before the first and after the last pair, the
    /// nearest piece of the curve is extended.
    pub fn new(knots: Vec<(i128, i128)>) -> OffsetCurve {
        OffsetCurve { knots }
    }

    /// Returns the offset at a time, in ns.
    pub fn at(&self, ns: i128) -> i128 {
        let last = self.knots.len().saturating_sub(1);
        let next = self.knots.partition_point(|(time, _)| *time <= ns).clamp(last.min(1), last);
        let Some((to_ns, to)) = self.knots.get(next) else { return 0 };
        let (from_ns, from) = self.knots[next.saturating_sub(1)];
        if *to_ns <= from_ns { from } else { from + (to - from) * (ns - from_ns) / (to_ns - from_ns) }
    }

    /// Returns the offset at the first knot, in ns.
    pub fn at_start(&self) -> i128 {
        self.knots.first().map_or(0, |knot| knot.1)
    }

    /// Returns the offset at the last knot, in ns.
    pub fn at_end(&self) -> i128 {
        self.knots.last().map_or(0, |knot| knot.1)
    }
}

/// A bound on the offset of a clock: the time on the clock at which it applies, and the bound, both in ns.
pub type OffsetBound = (i128, i128);

/// Lower and upper bounds on the offset of a clock.
#[derive(Clone, Debug, Default)]
pub struct OffsetBounds {
    /// Lower bounds, from messages that were sent on the host of the clock.
    pub lower: Vec<OffsetBound>,
    /// Upper bounds, from messages that were received on the host of the clock.
    pub upper: Vec<OffsetBound>,
}

/// An estimate of a clock's offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetEstimate {
    /// The estimated offset as a function of time.
    pub curve: OffsetCurve,
    /// Uncertainty of the estimate in ns: its largest distance from any line between the bounds, at the ends of a piece.
    pub error_ns: i128,
    /// Number of bounds that the estimate violates. It is not 0 if the rate of the clock changes too often for the number of pieces.
    pub violated: usize,
}

impl OffsetBounds {
    /// Estimates the offset. Returns `None` if there are no messages in one of the directions.
    pub fn estimate(&self) -> Option<OffsetEstimate> {
        let mut pieces = Vec::new();
        OffsetPiece::fit_lines(self, MAX_RUN_HALVINGS, &mut pieces)?;
        let mut knots = Vec::new();
        let mut error: f64 = 0.0;
        for (index, piece) in pieces.iter().enumerate() {
            error = error.max(piece.error);
            match index.checked_sub(1).map(|previous| &pieces[previous]) {
                // Where two pieces meet, the curve takes the mean of their values.
                Some(previous) => knots.push((piece.begin, (previous.at(piece.begin) + piece.at(piece.begin)) / 2)),
                None => knots.push((piece.begin, piece.at(piece.begin))),
            }
        }
        let last = pieces.last()?;
        knots.push((last.end, last.at(last.end)));
        let curve = OffsetCurve::new(knots);
        let low = self.lower.iter().filter(|(at, ns)| curve.at(*at) < *ns).count();
        let high = self.upper.iter().filter(|(at, ns)| curve.at(*at) > *ns).count();
        Some(OffsetEstimate { curve, error_ns: error.ceil() as i128, violated: low + high })
    }

    fn time_range(&self) -> Option<(i128, i128)> {
        let times = || self.lower.iter().chain(&self.upper).map(|(at, _)| *at);
        Some((times().min()?, times().max()?))
    }

    /// Splits the bounds into those before the time `middle` and those at or after it.
    fn split_at(&self, middle: i128) -> [OffsetBounds; 2] {
        let part = |bounds: &[OffsetBound], is_first: bool| bounds.iter().copied().filter(|(at, _)| (*at < middle) == is_first).collect();
        [true, false].map(|is_first| OffsetBounds { lower: part(&self.lower, is_first), upper: part(&self.upper, is_first) })
    }

    /// Returns the mean of the highest lower bound and the lowest upper bound; `None` if there are no bounds on one of the sides.
    fn middle_of_tightest_bounds(&self) -> Option<i128> {
        let (low, high) = (self.lower.iter().map(|b| b.1).max()?, self.upper.iter().map(|b| b.1).min()?);
        Some((low + high) / 2)
    }
}

/// A line that estimates the offset in a part of the run.
#[derive(Debug)]
struct OffsetPiece {
    begin: i128,
    end: i128,
    /// Value in ns from which `start_offset` is measured, so that it is small enough for floating-point arithmetic.
    base: i128,
    /// Offset at `begin` minus `base`, in ns.
    start_offset: f64,
    slope: f64,
    /// Uncertainty in ns.
    error: f64,
}

impl OffsetPiece {
    fn at(&self, time: i128) -> i128 {
        self.base + (self.start_offset + self.slope * (time - self.begin) as f64).round() as i128
    }

    /// Appends lines between the bounds to `pieces`, in chronological order. Divides the run up to `halvings` times if one line is not
    /// enough. Returns `None` if there are no bounds on one of the sides.
    fn fit_lines(bounds: &OffsetBounds, halvings: u32, pieces: &mut Vec<OffsetPiece>) -> Option<()> {
        let (begin, end) = bounds.time_range()?;
        let middle = begin + (end - begin) / 2;
        let halves = bounds.split_at(middle);
        let band = OffsetBand::new(bounds, begin)?;
        let guess = match (halves[0].middle_of_tightest_bounds(), halves[1].middle_of_tightest_bounds()) {
            (Some(first), Some(second)) if end > begin => {
                ((second - first) as f64 / ((end - begin) as f64 / 2.0)).clamp(-MAX_RATE_DIFFERENCE, MAX_RATE_DIFFERENCE)
            }
            _ => 0.0,
        };
        let best = find_maximum((-MAX_RATE_DIFFERENCE, MAX_RATE_DIFFERENCE), |slope| band.width(slope));
        if band.width(best) < 0.0 && halvings > 0 && halves.iter().all(|half| half.middle_of_tightest_bounds().is_some()) {
            OffsetPiece::fit_lines(&halves[0], halvings - 1, pieces)?;
            return OffsetPiece::fit_lines(&halves[1], halvings - 1, pieces);
        }
        let slope = if band.width(guess) >= 0.0 { guess } else { best };
        let start_offset = (band.lowest_start(slope) + band.highest_start(slope)) / 2.0;
        let run = (end - begin) as f64;
        let error = band.largest_error(best, (start_offset, slope), run);
        pieces.push(OffsetPiece { begin, end, base: band.base, start_offset, slope, error });
        Some(())
    }
}

/// The region between the bounds. Times are relative to the start, and offsets to `base`. Bounds that no line between the others can touch
/// are left out.
struct OffsetBand {
    base: i128,
    lower: Vec<(f64, f64)>,
    upper: Vec<(f64, f64)>,
}

impl OffsetBand {
    fn new(bounds: &OffsetBounds, begin: i128) -> Option<OffsetBand> {
        let base = bounds.middle_of_tightest_bounds()?;
        let relative = |bounds: &[OffsetBound], sign: f64| {
            let mut points: Vec<(f64, f64)> = bounds.iter().map(|(at, ns)| ((at - begin) as f64, sign * (ns - base) as f64)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let hull = compute_lower_hull(&points);
            hull.into_iter().map(|(at, ns)| (at, sign * ns)).collect()
        };
        Some(OffsetBand { base, lower: relative(&bounds.lower, -1.0), upper: relative(&bounds.upper, 1.0) })
    }

    /// Returns the lowest offset at which a line with this slope may start without violating a lower bound.
    fn lowest_start(&self, slope: f64) -> f64 {
        self.lower.iter().map(|(at, ns)| ns - slope * at).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the highest offset at which a line with this slope may start without violating an upper bound.
    fn highest_start(&self, slope: f64) -> f64 {
        self.upper.iter().map(|(at, ns)| ns - slope * at).fold(f64::INFINITY, f64::min)
    }

    /// Returns the difference between these two offsets. It is negative if no line with this slope fits between the bounds.
    fn width(&self, slope: f64) -> f64 {
        self.highest_start(slope) - self.lowest_start(slope)
    }

    /// Returns the largest distance of the given line from any line between the bounds, at the start or at the end of the run. `best` is a
    /// slope with which a line fits between them. If there is none, returns half of the amount by which the bounds contradict each other.
    fn largest_error(&self, best: f64, (start_offset, slope): (f64, f64), run: f64) -> f64 {
        if self.width(best) < 0.0 {
            return -self.width(slope) / 2.0;
        }
        let edge = |outside: f64| {
            let (mut possible, mut impossible) = (best, outside);
            if self.width(outside) >= 0.0 {
                return outside;
            }
            for _ in 0..SLOPE_SEARCH_STEPS {
                let between = (possible + impossible) / 2.0;
                *if self.width(between) >= 0.0 { &mut possible } else { &mut impossible } = between;
            }
            possible
        };
        let slopes = (edge(-MAX_RATE_DIFFERENCE), edge(MAX_RATE_DIFFERENCE));
        let largest_distance_at = |at: f64| {
            let here = start_offset + slope * at;
            let highest = find_maximum(slopes, |s| self.highest_start(s) + s * at);
            let lowest = find_maximum(slopes, |s| -self.lowest_start(s) - s * at);
            (self.highest_start(highest) + highest * at - here).max(here - self.lowest_start(lowest) - lowest * at)
        };
        largest_distance_at(0.0).max(largest_distance_at(run))
    }
}

/// Finds the argument with the largest value of a concave function, by ternary search.
fn find_maximum((mut from, mut to): (f64, f64), function: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..SLOPE_SEARCH_STEPS {
        let third = (to - from) / 3.0;
        let (left, right) = (from + third, to - third);
        if function(left) < function(right) { from = left } else { to = right }
    }
    (from + to) / 2.0
}

/// Returns the lower convex hull of sorted points (A. M. Andrew 1979).
fn compute_lower_hull(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in points {
        while let [.., (x1, y1), (x2, y2)] = hull[..] {
            if (x2 - x1) * (y - y1) > (y2 - y1) * (x - x1) {
                break;
            }
            hull.pop();
        }
        hull.push((x, y));
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SmallRandom(u64);

    impl SmallRandom {
        fn below(&mut self, limit: u64) -> i128 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i128::from((self.0 >> 33) % limit)
        }
    }

    /// Returns bounds from random messages in both directions, with delays of up to 2 ms. One of the clocks is exact, and the other is
    /// ahead of it by `ahead`.
    fn random_message_bounds(random: &mut SmallRandom, count: usize, ahead: impl Fn(i128) -> i128) -> OffsetBounds {
        let mut bounds = OffsetBounds::default();
        for _ in 0..count {
            let sent = 1_700_000_000_000_000_000 + random.below(1_000_000_000);
            let received = sent + 300 + random.below(2_000) * random.below(1_000);
            match random.below(2) {
                0 => bounds.upper.push((received + ahead(received), received + ahead(received) - sent)),
                _ => bounds.lower.push((sent + ahead(sent), sent + ahead(sent) - received)),
            }
        }
        bounds
    }

    #[test]
    fn estimate_violates_no_bound_and_is_within_its_error() {
        for seed in 0..300 {
            let mut random = SmallRandom(seed);
            let (offset, drift) = (random.below(1 << 40) - (1 << 39), random.below(200) - 100);
            let ahead = |time: i128| offset + (time - 1_700_000_000_000_000_000) * drift / 1_000_000;
            let count = 2 + random.below(60) as usize;
            let bounds = random_message_bounds(&mut random, count, ahead);
            let Some(found) = bounds.estimate() else {
                assert!(bounds.lower.is_empty() || bounds.upper.is_empty());
                continue;
            };
            assert_eq!(found.violated, 0, "seed {seed}: {found:?}");
            for (at, _) in bounds.lower.iter().chain(&bounds.upper) {
                // `ahead` expects the true time, but `at` is on the clock that is ahead. With a drift of 1e-4, `at - ahead(at)` is close
                // enough to the true time.
                let truth = ahead(at - ahead(*at));
                assert!((found.curve.at(*at) - truth).abs() <= found.error_ns + 2, "seed {seed}: {found:?}, {truth} at {at}");
            }
        }
    }

    #[test]
    fn clock_with_changing_rate_is_approximated_in_pieces() {
        let ahead = |time: i128| {
            let since = time - 1_700_000_000_000_000_000;
            since * since / 10_000_000_000_000
        };
        let bounds = random_message_bounds(&mut SmallRandom(7), 20_000, ahead);
        let found = bounds.estimate().unwrap();
        assert_eq!(found.violated, 0);
        assert!(found.error_ns < 3_000, "{found:?}");
    }

    #[test]
    fn messages_in_one_direction_give_no_offset() {
        assert_eq!(OffsetBounds { lower: Vec::new(), upper: vec![(1, 1)] }.estimate(), None);
        let one = OffsetBounds { lower: vec![(10, 4_000)], upper: vec![(10, 4_020)] }.estimate().unwrap();
        assert_eq!((one.curve.at(0), one.curve.at(10), one.error_ns, one.violated), (4_010, 4_010, 10, 0));
    }

    #[test]
    fn curve_interpolates_between_knots_and_extrapolates_beyond_them() {
        let curve = OffsetCurve::new(vec![(0, 10), (10, 20), (20, 0)]);
        assert_eq!([-10, 0, 5, 10, 15, 20, 30].map(|at| curve.at(at)), [0, 10, 15, 20, 10, 0, -20]);
        assert_eq!([OffsetCurve::new(vec![(5, 7)]), OffsetCurve::new(vec![(5, 7), (5, 7)])].map(|s| s.at(100)), [7, 7]);
        assert_eq!(OffsetCurve::default().at(3), 0);
    }
}
