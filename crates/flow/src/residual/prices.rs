//! What a region costs, in instructions: those that are executed, and code.
//!
//! Code is not free. A copy of a block, or a path through the instrumented code now and then, is code that is fetched, and
//! pushes other code out of the caches. As long as the program's hot code fits into the first-level instruction cache
//! that hardly matters; where it does not, it is most of what a build costs: gnugo with many copies executed 3.5 % more
//! instructions than the plain build, had four times its misses in a cache of 32 KiB, and took 10 % longer. So the
//! price of code follows from the pressure on the cache, known from the known paths.

/// A look-up where a path ends.
const LOOK_UP: f64 = 2.0;
/// The register, at each node where edges with different values of it meet: it is set on each edge, and something else
/// loses its place in a register.
const REGISTER: f64 = 3.0;
/// A path through the instrumented code, in the place of one in the region.
const DETOUR: f64 = 12.0;
/// What it costs more in a cache under pressure, but no more often than the function is entered: while it runs, its code is there.
const COLD: f64 = 300.0;
/// A state more, as a part of all executions, and at least, in executions: code that hardly ever runs is not made for nothing.
const STATE: f64 = 3e-3;
const STATE_AT_LEAST: f64 = 200.0;
/// What it costs more in a cache under pressure, as a part of the function's entries.
const PRESSURE_STATE: f64 = 0.3;
/// Below so many instructions per execution there is nothing to be gained by copies.
const CHEAP: f64 = 0.02;

/// How much pressure a first-level instruction cache is under by the hot code of the program: 0 where that fits, 1 where hardly any
/// of it stays from one execution to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CachePressure(f64);

impl CachePressure {
    /// By the executions of all known paths of the program.
    ///
    /// The measure is how many paths it takes to make nine of ten executions. A path has a hundred bytes or so of its
    /// own, so that some 300 fill 32 KiB.
    pub fn of(executions: impl IntoIterator<Item = u64>) -> CachePressure {
        const MOST: f64 = 0.9;
        const FITS: f64 = 300.0;
        const FULL_PRESSURE: f64 = 900.0;
        let mut executions: Vec<u64> = executions.into_iter().collect();
        executions.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
        let all: f64 = executions.iter().map(|n| *n as f64).sum();
        let mut sum = 0.0;
        let before = |n: &&u64| {
            let more = sum < MOST * all;
            sum += **n as f64;
            more
        };
        let hot = executions.iter().take_while(before).count() as f64;
        CachePressure(((hot - FITS) / (FULL_PRESSURE - FITS)).clamp(0.0, 1.0))
    }
}

/// The prices of one function.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// Executions of its known paths.
    all: f64,
    /// Those that begin where the function is entered.
    entries: f64,
    cache_pressure: f64,
}

impl Prices {
    /// Of a function of which so many known paths are executed, so many of them from its entry.
    pub fn of(all: u64, entries: u64, CachePressure(cache_pressure): CachePressure) -> Prices {
        Prices { all: all as f64, entries: entries as f64, cache_pressure }
    }

    /// Of executions: that go through the instrumented code, that are looked up where they end, and that set the register where edges meet.
    pub fn executed(&self, detours: f64, lookups: f64, kept: f64) -> f64 {
        DETOUR * detours + self.cache_pressure * COLD * detours.min(self.entries) + LOOK_UP * lookups + REGISTER * kept
    }

    /// Of copies of nodes.
    pub fn copies(&self, states: usize) -> f64 {
        (STATE * self.all + self.cache_pressure * PRESSURE_STATE * self.entries).max(STATE_AT_LEAST) * states as f64
    }

    /// Whether there is nothing to be gained over a region of this cost.
    pub fn is_cheap(&self, cost: f64) -> bool {
        cost <= CHEAP * self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_hot_paths_put_caches_under_pressure() {
        let hot = |paths: usize| std::iter::repeat_n(1000, paths);
        for (executions, cache_pressure) in [
            (vec![], 0.0),
            (vec![0; 2000], 0.0),
            (vec![u64::MAX; 2000], 1.0),
            (hot(300).collect(), 0.0),
            (hot(1001).collect(), 1.0),
            // Of 667 equal ones, 601 make nine of ten executions.
            (hot(667).collect(), 301.0 / 600.0),
            // What is hardly ever executed does not matter.
            (hot(100).chain(std::iter::repeat_n(1, 10_000)).collect(), 0.0),
        ] {
            assert_eq!(CachePressure::of(executions.iter().copied()), CachePressure(cache_pressure), "{} paths", executions.len());
        }
    }

    #[test]
    fn code_is_expensive_under_cache_pressure_up_to_the_entries() {
        let of = |cache_pressure| Prices::of(1_000_000, 1000, CachePressure(cache_pressure));
        assert_eq!(of(1.0).executed(500.0, 0.0, 0.0) - of(0.0).executed(500.0, 0.0, 0.0), 500.0 * COLD);
        assert_eq!(of(1.0).executed(5000.0, 0.0, 0.0) - of(0.0).executed(5000.0, 0.0, 0.0), 1000.0 * COLD);
        assert_eq!(of(0.5).executed(500.0, 0.0, 0.0) - of(0.0).executed(500.0, 0.0, 0.0), 250.0 * COLD);
        assert!((of(1.0).copies(7) - of(0.0).copies(7) - 7.0 * 1000.0 * PRESSURE_STATE).abs() < 1e-6);
        assert_eq!(Prices::of(1, 1, CachePressure(1.0)).copies(3), 3.0 * STATE_AT_LEAST);
    }
}
