//! Value profiles (targets of indirect calls, sizes of memory operations), decoded from the unit's counters ([`ProfiledValueKind`]).
//!
//! Sizes are exact. For call targets, a pair of counters holds the number of calls and the sum of the callees' offsets in the image. One or
//! two callees can be recovered from them if the solution is unique. Otherwise the calls are attributed to an unknown function, like calls
//! to other images. The number of calls is exact in all cases.

use super::{EdgeError, ProfileFunctions};
use crate::model::{ImageProfile, UnitProfile};
use std::collections::{BTreeMap, HashSet};
use trodden_unit::edge_profile::{SIZE_CLASS_COUNT, TARGET_BUCKET_COUNT, size_of_class, target_bucket_index};
use trodden_unit::{ProfiledValueKind, ValueCounters};

/// A profiled value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProfiledValue {
    /// A size in bytes. Large sizes are counted in classes, which are represented by their smallest size.
    Number(u64),
    /// A called function, by its name in LLVM's profiles.
    Function(String),
    /// A called function that is unknown or has no profile.
    Elsewhere,
}

/// Profiled values at one site, with the number of times each occurred.
pub type CountsByValue = BTreeMap<ProfiledValue, u64>;

/// A function that indirect calls may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTarget {
    /// Its linkage name.
    pub symbol: String,
    /// Name in LLVM's profiles.
    pub name: String,
}

/// An image's functions, by their offset from the start of the image.
pub type CallTargetsByOffset = BTreeMap<u64, CallTarget>;

/// Sorts the values of each site by descending count, then by value.
pub(crate) fn sort_sites(places: Vec<CountsByValue>) -> Vec<Vec<(ProfiledValue, u64)>> {
    let sort = |values: CountsByValue| {
        let mut list: Vec<_> = values.into_iter().collect();
        list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        list
    };
    places.into_iter().map(sort).collect()
}

pub(crate) fn add_values(all: &mut ProfileFunctions, image: &ImageProfile, targets: CallTargetsByOffset) -> Result<(), EdgeError> {
    let executed: HashSet<&str> = image
        .units
        .iter()
        .flat_map(|u| u.map.functions.iter().filter(|f| u.counts_of(f).next().is_some()).map(|f| f.name.as_str()))
        .collect();
    let candidates: Vec<u64> = targets.iter().filter(|(_, t)| executed.contains(t.symbol.as_str())).map(|(at, _)| *at).collect();
    for unit in &image.units {
        let Some(edges) = &unit.map.edge_profile else { continue };
        for site in &edges.values {
            let corrupt = || EdgeError::Corrupt { unit: unit.map.source.clone(), what: "a value site out of range" };
            let function = edges.functions.get(site.function as usize).ok_or_else(corrupt)?;
            let known = all.get_mut(&(function.name, function.hash)).ok_or_else(corrupt)?;
            let kind = if site.kind == ProfiledValueKind::Target { 0 } else { 1 };
            let values = known.values[kind].get_mut(usize::from(site.site)).ok_or_else(corrupt)?;
            let counts = site_counts(unit, site);
            match site.kind {
                ProfiledValueKind::Size => add_size_classes(values, &counts),
                ProfiledValueKind::Target => add_call_targets(values, &counts, &targets, &candidates),
            }
        }
    }
    Ok(())
}

fn site_counts(unit: &UnitProfile, site: &ValueCounters) -> Vec<u64> {
    let size = u64::from(site.kind.counters());
    let mut counts = vec![0; size as usize];
    for (at, count) in unit.counts.counters_in_range(site.first..site.first.saturating_add(size)) {
        counts[(at - site.first) as usize] = count;
    }
    counts
}

fn add(values: &mut CountsByValue, value: ProfiledValue, count: u64) {
    if count > 0 {
        let sum = values.entry(value).or_default();
        *sum = sum.saturating_add(count);
    }
}

fn add_size_classes(values: &mut CountsByValue, counts: &[u64]) {
    for class in 0..SIZE_CLASS_COUNT {
        add(values, ProfiledValue::Number(size_of_class(class)), counts[class as usize]);
    }
}

fn add_call_targets(values: &mut CountsByValue, counts: &[u64], targets: &CallTargetsByOffset, candidates: &[u64]) {
    for bucket in (0..TARGET_BUCKET_COUNT).filter(|b| counts[2 * *b as usize] > 0) {
        let (calls, sum) = (counts[2 * bucket as usize], counts[2 * bucket as usize + 1]);
        let of_bucket: Vec<u64> = candidates.iter().copied().filter(|c| target_bucket_index(*c) == bucket).collect();
        for (distance, count) in solve_for_callees(calls, sum, bucket, targets, &of_bucket) {
            let name = targets.get(&distance).map_or(ProfiledValue::Elsewhere, |t| ProfiledValue::Function(t.name.clone()));
            add(values, name, count);
        }
    }
}

/// Offset under which calls to unknown functions are counted.
const UNKNOWN_OFFSET: u64 = 0;

/// Solves for the callees and their numbers of calls, given the total number of calls and the sum of the callees' offsets. Returns pairs of
/// offset and calls; if the solution is not unique, all calls are attributed to `UNKNOWN_OFFSET`.
fn solve_for_callees(calls: u64, sum: u64, bucket: u32, targets: &CallTargetsByOffset, candidates: &[u64]) -> Vec<(u64, u64)> {
    let mean = sum / calls;
    if sum.is_multiple_of(calls) && target_bucket_index(mean) == bucket && (mean == UNKNOWN_OFFSET || targets.contains_key(&mean)) {
        return vec![(mean, calls)];
    }
    let elsewhere = (target_bucket_index(UNKNOWN_OFFSET) == bucket).then_some(UNKNOWN_OFFSET);
    let all: Vec<u64> = candidates.iter().copied().chain(elsewhere).collect();
    let pairs = all.iter().enumerate().flat_map(|(i, a)| all[i + 1..].iter().map(move |b| (*a.min(b), *a.max(b))));
    let answers: Vec<_> =
        pairs.filter_map(|(low, high)| Some(((low, high), calls_of_higher_callee(calls, sum, low, high)?))).take(2).collect();
    match answers[..] {
        [((low, high), of_high)] => vec![(low, calls - of_high), (high, of_high)],
        _ => vec![(UNKNOWN_OFFSET, calls)],
    }
}

/// Returns the number of calls to the function with the higher offset (`high`); `None` if calls to both functions cannot have the given
/// sum.
fn calls_of_higher_callee(calls: u64, sum: u64, low: u64, high: u64) -> Option<u64> {
    let above = u128::from(sum).checked_sub(u128::from(calls) * u128::from(low))?;
    let between = u128::from(high - low);
    let of_high = above / between;
    (above % between == 0 && of_high > 0 && of_high < u128::from(calls)).then_some(of_high as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(distances: &[u64]) -> CallTargetsByOffset {
        distances.iter().map(|d| (*d, CallTarget { symbol: format!("f{d}"), name: format!("f{d}") })).collect()
    }

    #[test]
    fn callees_are_determined_if_there_are_at_most_two() {
        let bucket = target_bucket_index(0x1230);
        let other = (0x1240..).step_by(16).find(|d| target_bucket_index(*d) == bucket).unwrap();
        let third = (other + 16..).step_by(16).find(|d| target_bucket_index(*d) == bucket).unwrap();
        let (all, known) = ([0x1230, other, third], targets(&[0x1230, other, third]));
        assert_eq!(solve_for_callees(7, 7 * 0x1230, bucket, &known, &all), [(0x1230, 7)]);
        let sum = 1_000_003 * 0x1230 + 77 * third;
        assert_eq!(solve_for_callees(1_000_080, sum, bucket, &known, &all), [(0x1230, 1_000_003), (third, 77)]);
        // With calls to three functions, no two of the functions can explain the sum.
        let sum = 5 * 0x1230 + 3 * other + 1_000 * third + 1;
        assert_eq!(solve_for_callees(1_008, sum, bucket, &known, &all), [(UNKNOWN_OFFSET, 1_008)]);
    }

    #[test]
    fn size_classes_match_llvm() {
        let all: Vec<u64> = (0..SIZE_CLASS_COUNT).map(size_of_class).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513]);
    }
}
