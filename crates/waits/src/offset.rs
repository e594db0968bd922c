//! Estimates the offset between two clocks from messages.
//!
//! A message that is sent at `s` on one clock and received at `r` on the other bounds the second clock's offset by `r - s` from above. A
//! message in the other direction bounds it from below. If the clocks have different rates, the offset is a line between the bounds
//! (Duda, Harrus, Haddad, Bernard: Estimating global time in distributed systems, ICDCS 1987). The preferred slope follows from the
//! smallest delays in each half of the run. If the bounds admit no line of that slope, the slope with the widest gap between the bounds
//! is used. If they admit no line of any slope, the rate has changed, and the run is split in two.

/// Maximum difference of two clocks' rates. The kernel adjusts a clock by at most 500 ppm.
const MAX_DRIFT: f64 = 1e-3;
/// Maximum number of times that a part of the run is halved.
const MAX_HALVINGS: u32 = 6;
/// Number of steps in a search for a slope. Each step shrinks the interval by a third or more.
const SEARCH_STEPS: usize = 100;

/// A clock's offset as a function of time: piecewise linear, and 0 if there are no knots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCurve {
    /// Times in ascending order, and the offset at each, in ns.
    knots: Vec<(i128, i128)>,
}

impl OffsetCurve {
    /// Creates a curve from the offsets at ascending times. Before the first and after the last time, the nearest two knots are
    /// extrapolated.
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

/// A time on the clock, and a bound on the clock's offset at that time, in ns.
pub type Bound = (i128, i128);

/// Bounds on a clock's offset.
#[derive(Clone, Debug, Default)]
pub struct OffsetBounds {
    /// Bounds from below, from messages that the clock's host sent.
    pub lower: Vec<Bound>,
    /// Bounds from above, from messages that the clock's host received.
    pub upper: Vec<Bound>,
}

/// An estimate of a clock's offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetEstimate {
    /// The estimated offset as a function of time.
    pub curve: OffsetCurve,
    /// Uncertainty in ns: the largest distance, at either end of a piece, from the estimate to any line that the bounds admit.
    pub error_ns: i128,
    /// Number of bounds that the estimate violates. Nonzero if the clock's rate changes faster than the pieces can follow.
    pub violated: usize,
}

impl OffsetBounds {
    /// Estimates the offset. Returns `None` unless there are messages in both directions.
    pub fn estimate(&self) -> Option<OffsetEstimate> {
        let mut pieces = Vec::new();
        OffsetPiece::solve(self, MAX_HALVINGS, &mut pieces)?;
        let mut knots = Vec::new();
        let mut error: f64 = 0.0;
        for (index, piece) in pieces.iter().enumerate() {
            error = error.max(piece.error);
            match index.checked_sub(1).map(|previous| &pieces[previous]) {
                // Adjacent pieces are joined at the mean of their values.
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

    /// Splits the bounds into those before a time and the rest.
    fn split_at(&self, middle: i128) -> [OffsetBounds; 2] {
        let part = |bounds: &[Bound], is_first: bool| bounds.iter().copied().filter(|(at, _)| (*at < middle) == is_first).collect();
        [true, false].map(|is_first| OffsetBounds { lower: part(&self.lower, is_first), upper: part(&self.upper, is_first) })
    }

    /// Returns the mean of the tightest lower and the tightest upper bound; `None` unless there are bounds on both sides.
    fn tightest_middle(&self) -> Option<i128> {
        let (low, high) = (self.lower.iter().map(|b| b.1).max()?, self.upper.iter().map(|b| b.1).min()?);
        Some((low + high) / 2)
    }
}

/// A linear estimate of the offset over a part of the run.
#[derive(Debug)]
struct OffsetPiece {
    begin: i128,
    end: i128,
    /// Value in ns that is subtracted from `start_offset`, so that floating point is precise enough.
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

    /// Appends lines that respect the bounds to `pieces`, in chronological order.
    fn solve(bounds: &OffsetBounds, halvings: u32, pieces: &mut Vec<OffsetPiece>) -> Option<()> {
        let (begin, end) = bounds.time_range()?;
        let middle = begin + (end - begin) / 2;
        let halves = bounds.split_at(middle);
        let band = Band::new(bounds, begin)?;
        let guess = match (halves[0].tightest_middle(), halves[1].tightest_middle()) {
            (Some(first), Some(second)) if end > begin => {
                ((second - first) as f64 / ((end - begin) as f64 / 2.0)).clamp(-MAX_DRIFT, MAX_DRIFT)
            }
            _ => 0.0,
        };
        let best = find_maximum((-MAX_DRIFT, MAX_DRIFT), |slope| band.width(slope));
        if band.width(best) < 0.0 && halvings > 0 && halves.iter().all(|half| half.tightest_middle().is_some()) {
            OffsetPiece::solve(&halves[0], halvings - 1, pieces)?;
            return OffsetPiece::solve(&halves[1], halvings - 1, pieces);
        }
        let slope = if band.width(guess) >= 0.0 { guess } else { best };
        let start_offset = (band.low(slope) + band.high(slope)) / 2.0;
        let run = (end - begin) as f64;
        let error = band.error(best, (start_offset, slope), run);
        pieces.push(OffsetPiece { begin, end, base: band.base, start_offset, slope, error });
        Some(())
    }
}

/// The region between the bounds, relative to a start time and to the offset `base`. Contains only the bounds that a line can touch.
struct Band {
    base: i128,
    lower: Vec<(f64, f64)>,
    upper: Vec<(f64, f64)>,
}

impl Band {
    fn new(bounds: &OffsetBounds, begin: i128) -> Option<Band> {
        let base = bounds.tightest_middle()?;
        let relative = |bounds: &[Bound], sign: f64| {
            let mut points: Vec<(f64, f64)> = bounds.iter().map(|(at, ns)| ((at - begin) as f64, sign * (ns - base) as f64)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let hull = compute_lower_hull(&points);
            hull.into_iter().map(|(at, ns)| (at, sign * ns)).collect()
        };
        Some(Band { base, lower: relative(&bounds.lower, -1.0), upper: relative(&bounds.upper, 1.0) })
    }

    /// Returns the smallest admissible offset at the start of a line with this slope.
    fn low(&self, slope: f64) -> f64 {
        self.lower.iter().map(|(at, ns)| ns - slope * at).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the largest admissible offset at the start of a line with this slope.
    fn high(&self, slope: f64) -> f64 {
        self.upper.iter().map(|(at, ns)| ns - slope * at).fold(f64::INFINITY, f64::min)
    }

    /// Returns `high - low`, which is negative if no line of this slope is admissible.
    fn width(&self, slope: f64) -> f64 {
        self.high(slope) - self.low(slope)
    }

    /// Returns the largest distance of any admissible line from the given line, at either end. `best` is an admissible slope. If no slope
    /// is admissible, returns half of the contradiction between the bounds.
    fn error(&self, best: f64, (start_offset, slope): (f64, f64), run: f64) -> f64 {
        if self.width(best) < 0.0 {
            return -self.width(slope) / 2.0;
        }
        let edge = |outside: f64| {
            let (mut possible, mut impossible) = (best, outside);
            if self.width(outside) >= 0.0 {
                return outside;
            }
            for _ in 0..SEARCH_STEPS {
                let between = (possible + impossible) / 2.0;
                *if self.width(between) >= 0.0 { &mut possible } else { &mut impossible } = between;
            }
            possible
        };
        let slopes = (edge(-MAX_DRIFT), edge(MAX_DRIFT));
        let largest_distance_at = |at: f64| {
            let here = start_offset + slope * at;
            let highest = find_maximum(slopes, |s| self.high(s) + s * at);
            let lowest = find_maximum(slopes, |s| -self.low(s) - s * at);
            (self.high(highest) + highest * at - here).max(here - self.low(lowest) - lowest * at)
        };
        largest_distance_at(0.0).max(largest_distance_at(run))
    }
}

/// Finds the argument at which a concave function has its maximum, by ternary search.
fn find_maximum((mut from, mut to): (f64, f64), function: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..SEARCH_STEPS {
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

    /// Returns the bounds from messages in both directions, with delays of up to 2 ms, between an exact clock and one that is ahead of it
    /// by `ahead`.
    fn messages(random: &mut SmallRandom, count: usize, ahead: impl Fn(i128) -> i128) -> OffsetBounds {
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
            let bounds = messages(&mut random, count, ahead);
            let Some(found) = bounds.estimate() else {
                assert!(bounds.lower.is_empty() || bounds.upper.is_empty());
                continue;
            };
            assert_eq!(found.violated, 0, "seed {seed}: {found:?}");
            for (at, _) in bounds.lower.iter().chain(&bounds.upper) {
                // `at - ahead(at)` approximates the true time well enough for a drift of 1e-4.
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
        let bounds = messages(&mut SmallRandom(7), 20_000, ahead);
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
    fn shift_interpolates_between_knots_and_extrapolates_beyond_them() {
        let curve = OffsetCurve::new(vec![(0, 10), (10, 20), (20, 0)]);
        assert_eq!([-10, 0, 5, 10, 15, 20, 30].map(|at| curve.at(at)), [0, 10, 15, 20, 10, 0, -20]);
        assert_eq!([OffsetCurve::new(vec![(5, 7)]), OffsetCurve::new(vec![(5, 7), (5, 7)])].map(|s| s.at(100)), [7, 7]);
        assert_eq!(OffsetCurve::default().at(3), 0);
    }
}
