//! How far a clock is ahead of another, from bounds that messages give: a line between them.
//!
//! A message that was sent at `s` on one clock and received at `r` on the other says that the second is ahead by at most `r - s`; one in
//! the other direction, that it is ahead by at least so much. Clocks that differ in rate are a line in time between the lower and the
//! upper bounds (A. Duda, G. Harrus, Y. Haddad, G. Bernard: Estimating global time in distributed systems, ICDCS 1987). Its slope is
//! that between the least delays of both halves of the run, if a line of that slope is possible, else the one that is furthest from all
//! bounds. Where none is possible, the rate has changed: the run is halved.

/// The greatest difference of rates: the system's clocks are adjusted by at most 500 ppm each.
const MOST_DRIFT: f64 = 1e-3;
/// So often are runs halved.
const MOST_HALVINGS: u32 = 6;
/// Steps of a search for a slope: each takes a third off the interval.
const STEPS: usize = 100;

/// What a clock is ahead of another, linear in time between knots. Without knots: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// Times, in order, and what the clock is ahead then, ns.
    knots: Vec<(i128, i128)>,
}

impl Shift {
    /// So much at these times, which are in order; before and behind them as between the next two.
    pub fn linear(knots: Vec<(i128, i128)>) -> Shift {
        Shift { knots }
    }

    /// At a time.
    pub fn at(&self, ns: i128) -> i128 {
        let last = self.knots.len().saturating_sub(1);
        let next = self.knots.partition_point(|(at, _)| *at <= ns).clamp(last.min(1), last);
        let Some((to_at, to)) = self.knots.get(next) else { return 0 };
        let (from_at, from) = self.knots[next.saturating_sub(1)];
        if *to_at <= from_at { from } else { from + (to - from) * (ns - from_at) / (to_at - from_at) }
    }

    /// At the first of its times.
    pub fn at_begin(&self) -> i128 {
        self.knots.first().map_or(0, |knot| knot.1)
    }

    /// At the last.
    pub fn at_end(&self) -> i128 {
        self.knots.last().map_or(0, |knot| knot.1)
    }
}

/// A time of the clock, and the bound on what it is ahead then, ns.
pub type Bound = (i128, i128);

/// What is known of a clock's offset.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// At least so much.
    pub lower: Vec<Bound>,
    /// At most so much.
    pub upper: Vec<Bound>,
}

/// An offset that is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    /// What the clock is ahead.
    pub shift: Shift,
    /// No line that the bounds allow is further from it than so much at either end of the run, ns.
    pub error_ns: i128,
    /// Bounds that it does not keep: the clock's rate changes faster than is followed.
    pub violated: usize,
}

impl Bounds {
    /// The offset; none if a direction has no message.
    pub fn offset(&self) -> Option<Offset> {
        let mut pieces = Vec::new();
        Piece::solve(self, MOST_HALVINGS, &mut pieces)?;
        let mut knots = Vec::new();
        let mut error: f64 = 0.0;
        for (index, piece) in pieces.iter().enumerate() {
            error = error.max(piece.error);
            match index.checked_sub(1).map(|before| &pieces[before]) {
                // Pieces meet between what both say.
                Some(before) => knots.push((piece.begin, (before.at(piece.begin) + piece.at(piece.begin)) / 2)),
                None => knots.push((piece.begin, piece.at(piece.begin))),
            }
        }
        let last = pieces.last()?;
        knots.push((last.end, last.at(last.end)));
        let shift = Shift::linear(knots);
        let low = self.lower.iter().filter(|(at, ns)| shift.at(*at) < *ns).count();
        let high = self.upper.iter().filter(|(at, ns)| shift.at(*at) > *ns).count();
        Some(Offset { shift, error_ns: error.ceil() as i128, violated: low + high })
    }

    /// The earliest and the latest time.
    fn range(&self) -> Option<(i128, i128)> {
        let times = || self.lower.iter().chain(&self.upper).map(|(at, _)| *at);
        Some((times().min()?, times().max()?))
    }

    /// Those before a time, and the others.
    fn halves(&self, middle: i128) -> [Bounds; 2] {
        let part = |bounds: &[Bound], is_first: bool| bounds.iter().copied().filter(|(at, _)| (*at < middle) == is_first).collect();
        [true, false].map(|is_first| Bounds { lower: part(&self.lower, is_first), upper: part(&self.upper, is_first) })
    }

    /// The middle between the closest bounds.
    fn middle(&self) -> Option<i128> {
        let (low, high) = (self.lower.iter().map(|b| b.1).max()?, self.upper.iter().map(|b| b.1).min()?);
        Some((low + high) / 2)
    }
}

/// A line over a piece of the run.
#[derive(Debug)]
struct Piece {
    begin: i128,
    end: i128,
    /// Offset to which `ahead` is relative: differences are small, and exact as floating point.
    base: i128,
    /// At `begin`, ns.
    ahead: f64,
    slope: f64,
    error: f64,
}

impl Piece {
    fn at(&self, time: i128) -> i128 {
        self.base + (self.ahead + self.slope * (time - self.begin) as f64).round() as i128
    }

    /// Lines that keep the bounds, in order of time.
    fn solve(bounds: &Bounds, halvings: u32, pieces: &mut Vec<Piece>) -> Option<()> {
        let (begin, end) = bounds.range()?;
        let middle = begin + (end - begin) / 2;
        let halves = bounds.halves(middle);
        let band = Band::new(bounds, begin)?;
        let guess = match (halves[0].middle(), halves[1].middle()) {
            (Some(first), Some(second)) if end > begin => {
                ((second - first) as f64 / ((end - begin) as f64 / 2.0)).clamp(-MOST_DRIFT, MOST_DRIFT)
            }
            _ => 0.0,
        };
        let best = greatest((-MOST_DRIFT, MOST_DRIFT), |slope| band.width(slope));
        if band.width(best) < 0.0 && halvings > 0 && halves.iter().all(|half| half.middle().is_some()) {
            Piece::solve(&halves[0], halvings - 1, pieces)?;
            return Piece::solve(&halves[1], halvings - 1, pieces);
        }
        let slope = if band.width(guess) >= 0.0 { guess } else { best };
        let ahead = (band.low(slope) + band.high(slope)) / 2.0;
        let run = (end - begin) as f64;
        let error = band.error(best, (ahead, slope), run);
        pieces.push(Piece { begin, end, base: band.base, ahead, slope, error });
        Some(())
    }
}

/// Bounds relative to a time and an offset; only those that some line touches.
struct Band {
    base: i128,
    lower: Vec<(f64, f64)>,
    upper: Vec<(f64, f64)>,
}

impl Band {
    fn new(bounds: &Bounds, begin: i128) -> Option<Band> {
        let base = bounds.middle()?;
        let relative = |bounds: &[Bound], sign: f64| {
            let mut points: Vec<(f64, f64)> = bounds.iter().map(|(at, ns)| ((at - begin) as f64, sign * (ns - base) as f64)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let hull = lower_hull(&points);
            hull.into_iter().map(|(at, ns)| (at, sign * ns)).collect()
        };
        Some(Band { base, lower: relative(&bounds.lower, -1.0), upper: relative(&bounds.upper, 1.0) })
    }

    /// The least offset at the beginning of a line of that slope.
    fn low(&self, slope: f64) -> f64 {
        self.lower.iter().map(|(at, ns)| ns - slope * at).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The greatest one.
    fn high(&self, slope: f64) -> f64 {
        self.upper.iter().map(|(at, ns)| ns - slope * at).fold(f64::INFINITY, f64::min)
    }

    /// The difference of both: below 0 if there is no line of that slope.
    fn width(&self, slope: f64) -> f64 {
        self.high(slope) - self.low(slope)
    }

    /// How far possible lines are from this one, at most. `best` is a slope that is possible, if any is.
    fn error(&self, best: f64, (ahead, slope): (f64, f64), run: f64) -> f64 {
        if self.width(best) < 0.0 {
            return -self.width(slope) / 2.0;
        }
        let edge = |outside: f64| {
            let (mut possible, mut impossible) = (best, outside);
            if self.width(outside) >= 0.0 {
                return outside;
            }
            for _ in 0..STEPS {
                let between = (possible + impossible) / 2.0;
                *if self.width(between) >= 0.0 { &mut possible } else { &mut impossible } = between;
            }
            possible
        };
        let slopes = (edge(-MOST_DRIFT), edge(MOST_DRIFT));
        let far = |at: f64| {
            let here = ahead + slope * at;
            let highest = greatest(slopes, |s| self.high(s) + s * at);
            let lowest = greatest(slopes, |s| -self.low(s) - s * at);
            (self.high(highest) + highest * at - here).max(here - self.low(lowest) - lowest * at)
        };
        far(0.0).max(far(run))
    }
}

/// Where a concave function is greatest.
fn greatest((mut from, mut to): (f64, f64), of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..STEPS {
        let third = (to - from) / 3.0;
        let (left, right) = (from + third, to - third);
        if of(left) < of(right) { from = left } else { to = right }
    }
    (from + to) / 2.0
}

/// The lower convex hull of points in order (A. M. Andrew 1979).
fn lower_hull(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
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

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> i128 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i128::from((self.0 >> 33) % limit)
        }
    }

    /// Messages both ways, most of them late by up to some milliseconds, over a clock that is ahead by `ahead` of the time.
    fn messages(random: &mut Random, count: usize, ahead: impl Fn(i128) -> i128) -> Bounds {
        let mut bounds = Bounds::default();
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
    fn a_line_keeps_all_bounds_and_is_as_close_as_it_says() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let (offset, drift) = (random.below(1 << 40) - (1 << 39), random.below(200) - 100);
            let ahead = |time: i128| offset + (time - 1_700_000_000_000_000_000) * drift / 1_000_000;
            let count = 2 + random.below(60) as usize;
            let bounds = messages(&mut random, count, ahead);
            let Some(found) = bounds.offset() else {
                assert!(bounds.lower.is_empty() || bounds.upper.is_empty());
                continue;
            };
            assert_eq!(found.violated, 0, "seed {seed}: {found:?}");
            for (at, _) in bounds.lower.iter().chain(&bounds.upper) {
                // The time of the clock is the time plus what it is ahead: near enough for a drift of 1e-4.
                let truth = ahead(at - ahead(*at));
                assert!((found.shift.at(*at) - truth).abs() <= found.error_ns + 2, "seed {seed}: {found:?}, {truth} at {at}");
            }
        }
    }

    #[test]
    fn a_clock_whose_rate_changes_is_followed_in_pieces() {
        let ahead = |time: i128| {
            let since = time - 1_700_000_000_000_000_000;
            since * since / 10_000_000_000_000
        };
        let bounds = messages(&mut Random(7), 20_000, ahead);
        let found = bounds.offset().unwrap();
        assert_eq!(found.violated, 0);
        assert!(found.error_ns < 3_000, "{found:?}");
    }

    #[test]
    fn one_direction_gives_no_offset() {
        assert_eq!(Bounds { lower: Vec::new(), upper: vec![(1, 1)] }.offset(), None);
        let one = Bounds { lower: vec![(10, 4_000)], upper: vec![(10, 4_020)] }.offset().unwrap();
        assert_eq!((one.shift.at(0), one.shift.at(10), one.error_ns, one.violated), (4_010, 4_010, 10, 0));
    }

    #[test]
    fn a_shift_is_linear_between_its_knots_and_beside_them() {
        let shift = Shift::linear(vec![(0, 10), (10, 20), (20, 0)]);
        assert_eq!([-10, 0, 5, 10, 15, 20, 30].map(|at| shift.at(at)), [0, 10, 15, 20, 10, 0, -20]);
        assert_eq!([Shift::linear(vec![(5, 7)]), Shift::linear(vec![(5, 7), (5, 7)])].map(|s| s.at(100)), [7, 7]);
        assert_eq!(Shift::default().at(3), 0);
    }
}
