//! Equivalence classes of waits, as in Carnival.
//!
//! Two waits at the same call site are equivalent if the shares of time that code blocks have in their longer paths are about the same, and
//! those in their shorter paths, too. A new wait is compared with the first wait of each class, the representative. The distance of two
//! paths is the sum of the differences between the shares of each code block, whichever location executed it. It is between 0 and 2.
//!
//! Time for which a location was ready to run but had no processor is not compared, because scheduling would otherwise put waits with the
//! same cause into different classes. Reports still show this time.

use crate::call::WaitKind;
use crate::hash::Map;
use crate::step::{CodeId, LocationId, LocationState, StepId, Steps};
use crate::versions::{PathDifference, merge_equal_neighbours};
use crate::wait::Wait;
use std::collections::BTreeSet;

/// Default for the distance below which two paths are equivalent. Equivalent paths may spend a quarter of their time in different code. On
/// three recordings, 0.25 gives 1.3 to 1.5 times as many classes, and 1 gives 0.6 to 0.9 times as many (docs/benchmarks/constants.md).
pub const DEFAULT_CLASS_THRESHOLD: f64 = 0.5;
/// Maximum number of classes at a call site, which limits the time to classify a wait. When it is reached, a wait that fits no class is
/// added to the nearest one. On three recordings, a limit of 16 costs one of them 16 % of its classes, and a limit of 1,000 changes
/// nothing.
pub const MAX_CLASSES_PER_SITE: usize = 64;

/// Which code is taken into account for the distance of two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathDistanceRule {
    /// Code that is on at least one of the paths.
    Union,
    /// Only code that is on both paths, as in the Carnival paper. Two paths without common code then have the distance 0.
    Paper,
}

/// A call site, and a kind of wait that occurs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitSite {
    /// The call site.
    pub code: CodeId,
    /// The kind of wait.
    pub kind: WaitKind,
}

/// For each code block and state in a path, its share of the path's time. Ordered by code and state.
type CodeTimeShares = Vec<((CodeId, LocationState), f64)>;

/// The shares of code blocks in the longer and in the shorter path of a wait.
#[derive(Clone, Debug)]
pub struct WaitPathShares([CodeTimeShares; 2]);

impl WaitPathShares {
    /// Computes the shares for the two paths of a wait.
    pub fn new(steps: &Steps, wait: &Wait) -> Self {
        WaitPathShares([compute_shares(steps, &wait.paths.plus), compute_shares(steps, &wait.paths.minus)])
    }
}

/// The first wait in a class. Other waits belong to the class if their paths are similar to those of this one.
#[derive(Clone, Debug)]
pub struct RepresentativeWait {
    shares: [CodeTimeShares; 2],
    /// The location that waited.
    pub location: LocationId,
    /// Start of the wait in ns since the start of the run.
    pub enter_ns: u64,
    /// Length of the wait in ns.
    pub wait_ns: u64,
    /// The wait's two paths.
    pub paths: PathDifference,
}

/// How similar the waits in a class are to the representative. The distance of a wait is the larger one of the distances of its two paths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassDistances {
    /// Sum of the distances of all waits, including the representative, whose distance is 0.
    pub sum: f64,
    /// The largest distance of any wait.
    pub max: f64,
}

/// A wait's class, identified by its representative, and the wait's distance from that representative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassMember {
    /// The location that waited in the representative wait.
    pub location: LocationId,
    /// Start of the representative wait, in ns since the start of the run.
    pub enter_ns: u64,
    /// Distance of the wait from the representative.
    pub distance: f64,
}

/// A class of equivalent waits.
#[derive(Clone, Debug)]
pub struct WaitClass {
    /// The first wait in the class.
    pub representative: RepresentativeWait,
    /// Distances of all waits from the first wait.
    pub distances: ClassDistances,
    /// Number of waits in the class.
    pub occurrences: u64,
    /// Length of the shortest wait in ns.
    pub min_ns: u64,
    /// Length of the longest wait in ns.
    pub max_ns: u64,
    /// Total length of all waits in ns.
    pub total_ns: u64,
    /// Total time of each step on the longer paths in ns.
    pub plus: Map<StepId, u64>,
    /// Total time of each step on the shorter paths in ns.
    pub minus: Map<StepId, u64>,
    /// The locations that waited.
    pub locations: BTreeSet<LocationId>,
    /// The longest wait in the class.
    pub longest: LongestWait,
}

/// The longest wait in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestWait {
    /// Start of the wait in ns since the start of the run.
    pub enter_ns: u64,
    /// The location that waited.
    pub location: LocationId,
    /// Time in ns from the point at which the two paths of the wait diverge to the start of the wait.
    pub since_ns: u64,
}

/// All waits at one site.
#[derive(Clone, Debug)]
pub struct SiteWaits {
    /// The call site, and the kind of the waits.
    pub site: WaitSite,
    /// Number of waits at the site.
    pub occurrences: u64,
    /// Total length of all waits in ns.
    pub total_ns: u64,
    /// Index in `classes` of the class to which the most recent wait belongs.
    newest: usize,
    /// The classes of waits at the site. After the analysis, the class with the largest total waiting time comes first.
    pub classes: Vec<WaitClass>,
}

/// The classes of all sites.
#[derive(Clone, Debug)]
pub struct WaitClasses {
    threshold: f64,
    rule: PathDistanceRule,
    sites: Map<WaitSite, SiteWaits>,
}

impl WaitClasses {
    /// Creates an empty set of classes.
    pub fn new(threshold: f64, rule: PathDistanceRule) -> Self {
        WaitClasses { threshold, rule, sites: Map::default() }
    }

    /// Adds a wait to the class to which it belongs, and returns that class.
    pub fn add(&mut self, wait: &Wait, shares: &WaitPathShares) -> ClassMember {
        let (class, distance) = self.find_or_create_class(wait, shares);
        class.add(wait);
        ClassMember { location: class.representative.location, enter_ns: class.representative.enter_ns, distance }
    }

    /// Counts a wait in its class without adding its paths. This is enough to determine the number of classes.
    pub fn count_wait(&mut self, wait: &Wait, shares: &WaitPathShares) {
        self.find_or_create_class(wait, shares).0.occurrences += 1;
    }

    /// Returns the class to which a wait belongs, and the wait's distance from its representative. Creates the class if necessary, and
    /// updates the distances of the class.
    fn find_or_create_class(&mut self, wait: &Wait, WaitPathShares(shares): &WaitPathShares) -> (&mut WaitClass, f64) {
        let site = WaitSite { code: wait.site, kind: wait.kind };
        let waits =
            self.sites.entry(site).or_insert_with(|| SiteWaits { site, occurrences: 0, total_ns: 0, newest: 0, classes: Vec::new() });
        waits.occurrences += 1;
        waits.total_ns += wait.wait_ns;
        let (rule, threshold) = (self.rule, self.threshold);
        let near = |index: usize| {
            let class = waits.classes.get(index)?;
            let distance = class.representative.distance_to(rule, shares, threshold);
            (distance < threshold).then_some((index, distance))
        };
        // The class of the previous wait is tried first, because consecutive waits tend to belong to the same class.
        let mut found = near(waits.newest).or_else(|| (0..waits.classes.len()).find_map(near));
        if found.is_none() && waits.classes.len() >= MAX_CLASSES_PER_SITE {
            let far = |index: usize| (index, waits.classes[index].representative.distance_to(rule, shares, f64::INFINITY));
            found = (0..waits.classes.len()).map(far).min_by(|a, b| a.1.total_cmp(&b.1));
        }
        let (index, distance) = found.unwrap_or_else(|| {
            waits.classes.push(WaitClass::new(wait, shares.clone()));
            (waits.classes.len() - 1, 0.0)
        });
        waits.newest = index;
        let class = &mut waits.classes[index];
        class.distances.sum += distance;
        class.distances.max = class.distances.max.max(distance);
        (class, distance)
    }

    /// Returns the total number of classes.
    pub fn count(&self) -> usize {
        self.sites.values().map(|site| site.classes.len()).sum()
    }

    /// Returns all sites and their classes. Both are in descending order of total waiting time.
    pub fn into_sites(self) -> Vec<SiteWaits> {
        let mut sites: Vec<SiteWaits> = self.sites.into_values().collect();
        for site in &mut sites {
            site.classes.sort_by_key(|class| std::cmp::Reverse(class.total_ns));
        }
        sites.sort_by_key(|site| (std::cmp::Reverse(site.total_ns), site.site));
        sites
    }
}

impl RepresentativeWait {
    /// Returns the distance of a wait, which is the larger one of the distances of its two paths. If the result is at least `limit`, the
    /// exact distance may be larger.
    fn distance_to(&self, rule: PathDistanceRule, shares: &[CodeTimeShares; 2], limit: f64) -> f64 {
        (0..2).map(|side| path_distance(rule, &self.shares[side], &shares[side], limit)).fold(0.0, f64::max)
    }
}

impl WaitClass {
    fn new(wait: &Wait, shares: [CodeTimeShares; 2]) -> Self {
        let Wait { location, enter_ns, wait_ns, paths, .. } = wait;
        WaitClass {
            representative: RepresentativeWait {
                shares,
                location: *location,
                enter_ns: *enter_ns,
                wait_ns: *wait_ns,
                paths: paths.clone(),
            },
            distances: ClassDistances::default(),
            occurrences: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            total_ns: 0,
            plus: Map::default(),
            minus: Map::default(),
            locations: BTreeSet::new(),
            longest: LongestWait { enter_ns: 0, location: LocationId(0), since_ns: 0 },
        }
    }

    fn add(&mut self, wait: &Wait) {
        self.occurrences += 1;
        self.total_ns += wait.wait_ns;
        self.min_ns = self.min_ns.min(wait.wait_ns);
        if wait.wait_ns > self.max_ns {
            self.max_ns = wait.wait_ns;
            let since_ns = wait.paths.minus.iter().map(|(_, ns)| ns).sum();
            self.longest = LongestWait { enter_ns: wait.enter_ns, location: wait.location, since_ns };
        }
        wait.paths.plus.iter().for_each(|(step, ns)| *self.plus.entry(*step).or_default() += ns);
        wait.paths.minus.iter().for_each(|(step, ns)| *self.minus.entry(*step).or_default() += ns);
        self.locations.insert(wait.location);
    }
}

/// Returns the share of each code block in a path. Time without a processor is ignored. If the path contains no other time, the result is
/// empty.
fn compute_shares(steps: &Steps, path: &[(StepId, u64)]) -> CodeTimeShares {
    let executed = || path.iter().map(|(id, ns)| (steps.get(*id), *ns)).filter(|(step, _)| step.state != LocationState::Ready);
    let total: u64 = executed().map(|(_, ns)| ns).sum();
    let mut shares: CodeTimeShares = executed().map(|(step, ns)| ((step.code, step.state), ns as f64 / total.max(1) as f64)).collect();
    shares.sort_by_key(|(key, _)| *key);
    merge_equal_neighbours(&mut shares);
    shares
}

/// Returns the distance of two paths. If the result is at least `limit`, the exact distance may be larger.
fn path_distance(rule: PathDistanceRule, one: &CodeTimeShares, other: &CodeTimeShares, limit: f64) -> f64 {
    let (mut i, mut j, mut sum) = (0, 0, 0.0);
    while (i < one.len() || j < other.len()) && sum < limit {
        let order = match (one.get(i), other.get(j)) {
            (Some(a), Some(b)) => a.0.cmp(&b.0),
            (Some(_), None) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        let (difference, is_common) = match order {
            std::cmp::Ordering::Equal => ((one[i].1 - other[j].1).abs(), true),
            std::cmp::Ordering::Less => (one[i].1, false),
            std::cmp::Ordering::Greater => (other[j].1, false),
        };
        if is_common || rule == PathDistanceRule::Union {
            sum += difference;
        }
        i += usize::from(order != std::cmp::Ordering::Greater);
        j += usize::from(order != std::cmp::Ordering::Less);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(parts: &[(u32, f64)]) -> CodeTimeShares {
        parts.iter().map(|(code, share)| ((CodeId(*code), LocationState::Computing), *share)).collect()
    }

    #[test]
    fn disjoint_paths_have_distance_2_but_0_by_the_papers_rule() {
        let (a, b) = (path(&[(1, 1.0)]), path(&[(2, 1.0)]));
        assert_eq!(path_distance(PathDistanceRule::Union, &a, &b, 3.0), 2.0);
        assert_eq!(path_distance(PathDistanceRule::Paper, &a, &b, 3.0), 0.0);
    }

    #[test]
    fn distance_is_twice_the_share_spent_in_other_code() {
        let (a, b) = (path(&[(1, 0.5), (2, 0.5)]), path(&[(1, 0.75), (3, 0.25)]));
        assert_eq!(path_distance(PathDistanceRule::Union, &a, &b, 3.0), 1.0);
        assert_eq!(path_distance(PathDistanceRule::Paper, &a, &b, 3.0), 0.25);
        assert_eq!(path_distance(PathDistanceRule::Union, &a, &Vec::new(), 3.0), 1.0);
    }
}
