//! Statistics of path profiles: the cumulative distribution over the hottest paths (figure 5.2), and the rank correlation of two profiles
//! (section 5.5.2).

use crate::descriptor::PathDescriptor;
use crate::profile::PathProfile;
use std::collections::BTreeSet;

/// Returns the numbers of paths at which the cumulative distribution has a point: 1, 2, 5, 10, ..., and `paths`.
fn point_positions(paths: usize) -> impl Iterator<Item = usize> {
    let decades = (0..).map(|power| 10usize.saturating_pow(power));
    let steps = decades.flat_map(|decade| [1, 2, 5].map(|of| decade.saturating_mul(of)));
    steps.take_while(move |step| *step < paths).chain((paths > 0).then_some(paths))
}

/// Computes the cumulative distribution over the hottest paths. Each point is a number of paths and the percentage of the profile that
/// these paths account for. `hottest` must be in descending order.
pub fn compute_cumulative_shares(hottest: &[(PathDescriptor, u64)]) -> Vec<(usize, f64)> {
    let total: u64 = hottest.iter().map(|(_, count)| count).sum();
    let (mut sum, mut at) = (0u64, 0);
    let share = |number: usize| {
        sum += hottest[at..number].iter().map(|(_, count)| count).sum::<u64>();
        at = number;
        (number, 100.0 * sum as f64 / total.max(1) as f64)
    };
    point_positions(hottest.len()).map(share).collect()
}

/// Computes Spearman's rank correlation (-1 to 1) over the paths of both profiles. Paths with equal counts get their mean rank. Returns
/// `None` if there are fewer than two paths, or if all counts of a profile are equal.
pub fn rank_correlation(one: &PathProfile, other: &PathProfile) -> Option<f64> {
    let paths: BTreeSet<PathDescriptor> = one.iter().chain(other.iter()).map(|(path, _)| *path).collect();
    let ranks = |profile: &PathProfile| compute_ranks(&paths.iter().map(|path| profile.count(path)).collect::<Vec<_>>());
    let (one, other) = (ranks(one), ranks(other));
    let mean = (paths.len() as f64 + 1.0) / 2.0;
    let (mut both, mut of_one, mut of_other) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(&other) {
        both += (a - mean) * (b - mean);
        of_one += (a - mean).powi(2);
        of_other += (b - mean).powi(2);
    }
    (of_one > 0.0 && of_other > 0.0).then(|| both / (of_one * of_other).sqrt())
}

fn compute_ranks(counts: &[u64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|at| counts[*at]);
    let mut ranks = vec![0.0; counts.len()];
    for equal in order.chunk_by(|a, b| counts[*a] == counts[*b]) {
        let first = order.partition_point(|at| counts[*at] < counts[equal[0]]);
        let rank = first as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|at| ranks[*at] = rank);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Address;

    fn profile(counts: &[u64]) -> PathProfile {
        let mut profile = PathProfile::default();
        (0..).zip(counts).for_each(|(start, count)| profile.add(&PathDescriptor::start_at_address(Address(start)), *count));
        profile
    }

    #[test]
    fn cumulative_distribution_covers_hottest_paths_first() {
        let hottest = profile(&[50, 30, 10, 5, 3, 2]).hottest_paths();
        assert_eq!(compute_cumulative_shares(&hottest), [(1, 50.0), (2, 80.0), (5, 98.0), (6, 100.0)]);
        assert!(compute_cumulative_shares(&[]).is_empty());
    }

    #[test]
    fn ranks_of_ties_are_averaged() {
        assert_eq!(rank_correlation(&profile(&[1, 2, 3, 40]), &profile(&[10, 20, 30, 31])), Some(1.0));
        assert_eq!(rank_correlation(&profile(&[1, 2, 3]), &profile(&[3, 2, 1])), Some(-1.0));
        assert_eq!(rank_correlation(&profile(&[5, 5]), &profile(&[3, 2])), None);
        // The ranks are 1, 2.5, 2.5, 4 and 1, 2, 3, 4.
        let found = rank_correlation(&profile(&[1, 7, 7, 9]), &profile(&[1, 2, 3, 4])).unwrap();
        assert!((found - 4.5 / (4.5f64 * 5.0).sqrt()).abs() < 1e-12, "{found}");
    }

    #[test]
    fn paths_of_only_one_profile_are_included() {
        let mut more = profile(&[1, 2, 3]);
        more.add(&PathDescriptor::start_at_address(Address(99)), 50);
        assert!(rank_correlation(&profile(&[1, 2, 3]), &more).unwrap() < 0.0);
    }
}
