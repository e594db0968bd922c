//! Equivalence classes of waits.
//!
//! Two waits of one site are equivalent if the code on their longer paths, and that on their shorter paths, takes about the same part
//! of the
//! path's time (Carnival, path equivalence). A new wait is compared with the representative of each class, its first wait, which never
//! changes; what the class is characterised by accumulates.
//!
//! Distance of two paths: the sum over all code blocks of the difference of their relative contributions, between 0 and 2. The paper
//! sums over
//! the blocks that *both* paths have, so that two paths without a common block are at distance 0; [`ClassRule::Paper`] is that rule.
//! Code is compared without the location: the same code on other processes is the same. Locations are kept with what accumulates.
//!
//! Time without a processor is no part of what is compared: the kernel's scheduling would split waits that the same code causes. It stays
//! in what accumulates, and so in every report.
//!
//! At most [`MOST`] classes are kept per site; further waits go to the nearest. A wait costs one pass over its paths per class.

use crate::call::WaitKind;
use crate::hash::Map;
use crate::step::{CodeId, LocationId, LocationState, StepId, Steps};
use crate::versions::{PathDifference, merge_equal};
use crate::wait::Wait;
use std::collections::BTreeSet;

/// Two paths are equivalent up to this distance: a quarter of the time is spent elsewhere. Of three recordings 0.25 makes 1.3 to 1.5 times
/// as many classes, and 1 between 0.6 and 0.9 times as many (docs/benchmarks/constants.md).
pub const DEFAULT_THRESHOLD: f64 = 0.5;
/// Classes of a site: bounds the time for each wait. With 16, one of three recordings has 16 % fewer; with 1,000, all have the same.
pub const MOST: usize = 64;

/// How the distance of two paths is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRule {
    /// Over the code that either path has.
    Union,
    /// Over the code that both have, as the paper says.
    Paper,
}

/// Where waits happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitSite {
    /// Code of the call.
    pub code: CodeId,
    /// Kind of wait.
    pub kind: WaitKind,
}

/// The relative contributions of code to a path, in order.
type Shares = Vec<((CodeId, LocationState), f64)>;

/// Those of the longer and of the shorter path of a wait.
#[derive(Clone, Debug)]
pub struct PathShares([Shares; 2]);

impl PathShares {
    /// Of a wait.
    pub fn new(steps: &Steps, wait: &Wait) -> Self {
        PathShares([shares(steps, &wait.paths.plus), shares(steps, &wait.paths.minus)])
    }
}

/// The first wait of a class, which all others are compared with.
#[derive(Clone, Debug)]
pub struct Representative {
    shares: [Shares; 2],
    /// Who waited.
    pub location: LocationId,
    /// When it began, ns since the origin.
    pub enter_ns: u64,
    /// How long it was, ns.
    pub wait_ns: u64,
    /// Its two paths.
    pub paths: PathDifference,
}

/// How far the waits of a class are from its representative: of each wait, the greater of the distances of its two paths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distances {
    /// Their sum, the representative's 0 included.
    pub sum: f64,
    /// The greatest.
    pub max: f64,
}

/// Where a wait was put: its class, by the representative, and its distance from that one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Who waited in the class's representative.
    pub location: LocationId,
    /// When the representative began, ns since the origin.
    pub enter_ns: u64,
    /// The greater of the distances of the two paths.
    pub distance: f64,
}

/// Equivalent waits.
#[derive(Clone, Debug)]
pub struct Class {
    /// The first.
    pub representative: Representative,
    /// Of all waits from the first.
    pub distances: Distances,
    /// Waits.
    pub occurrences: u64,
    /// The shortest, ns.
    pub min_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// All of them, ns.
    pub total_ns: u64,
    /// Steps of the longer paths, added up.
    pub plus: Map<StepId, u64>,
    /// Steps of the shorter paths, added up.
    pub minus: Map<StepId, u64>,
    /// Who waits.
    pub locations: BTreeSet<LocationId>,
    /// The longest.
    pub longest: Longest,
}

/// The longest wait of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// When it began, ns since the origin.
    pub enter_ns: u64,
    /// Who waited.
    pub location: LocationId,
    /// How long before it the two paths part, ns.
    pub since_ns: u64,
}

/// All waits of a site.
#[derive(Clone, Debug)]
pub struct SiteWaits {
    /// Where.
    pub site: WaitSite,
    /// Waits.
    pub occurrences: u64,
    /// All of them, ns.
    pub total_ns: u64,
    /// The class of the newest wait.
    newest: usize,
    /// The longest waits first, once the analysis is over.
    pub classes: Vec<Class>,
}

/// Classes of all sites.
#[derive(Clone, Debug)]
pub struct Classes {
    threshold: f64,
    rule: ClassRule,
    sites: Map<WaitSite, SiteWaits>,
}

impl Classes {
    /// None yet.
    pub fn new(threshold: f64, rule: ClassRule) -> Self {
        Classes { threshold, rule, sites: Map::default() }
    }

    /// Puts a wait into its class.
    pub fn add(&mut self, wait: &Wait, shares: &PathShares) -> Placement {
        let (class, distance) = self.find(wait, shares);
        class.add(wait);
        Placement { location: class.representative.location, enter_ns: class.representative.enter_ns, distance }
    }

    /// Counts a wait in its class, which gets no paths: where only the number of classes is asked for.
    pub fn tally(&mut self, wait: &Wait, shares: &PathShares) {
        self.find(wait, shares).0.occurrences += 1;
    }

    /// The class of a wait, which is made if there is none, and the wait's distance, which is added to the class's.
    fn find(&mut self, wait: &Wait, PathShares(shares): &PathShares) -> (&mut Class, f64) {
        let site = WaitSite { code: wait.site, kind: wait.kind };
        let waits =
            self.sites.entry(site).or_insert_with(|| SiteWaits { site, occurrences: 0, total_ns: 0, newest: 0, classes: Vec::new() });
        waits.occurrences += 1;
        waits.total_ns += wait.wait_ns;
        let (rule, threshold) = (self.rule, self.threshold);
        let near = |index: usize| {
            let class = waits.classes.get(index)?;
            let distance = class.representative.distance(rule, shares, threshold);
            (distance < threshold).then_some((index, distance))
        };
        // Waits of one class come in a row.
        let mut found = near(waits.newest).or_else(|| (0..waits.classes.len()).find_map(near));
        if found.is_none() && waits.classes.len() >= MOST {
            let far = |index: usize| (index, waits.classes[index].representative.distance(rule, shares, f64::INFINITY));
            found = (0..waits.classes.len()).map(far).min_by(|a, b| a.1.total_cmp(&b.1));
        }
        let (index, distance) = found.unwrap_or_else(|| {
            waits.classes.push(Class::new(wait, shares.clone()));
            (waits.classes.len() - 1, 0.0)
        });
        waits.newest = index;
        let class = &mut waits.classes[index];
        class.distances.sum += distance;
        class.distances.max = class.distances.max.max(distance);
        (class, distance)
    }

    /// Classes of all sites.
    pub fn count(&self) -> usize {
        self.sites.values().map(|site| site.classes.len()).sum()
    }

    /// The sites, the greatest wait first; their classes likewise.
    pub fn into_sites(self) -> Vec<SiteWaits> {
        let mut sites: Vec<SiteWaits> = self.sites.into_values().collect();
        for site in &mut sites {
            site.classes.sort_by_key(|class| std::cmp::Reverse(class.total_ns));
        }
        sites.sort_by_key(|site| (std::cmp::Reverse(site.total_ns), site.site));
        sites
    }
}

impl Representative {
    /// The greater distance of the two paths of a wait; any number that is not below `limit` if it is not.
    fn distance(&self, rule: ClassRule, shares: &[Shares; 2], limit: f64) -> f64 {
        (0..2).map(|side| distance(rule, &self.shares[side], &shares[side], limit)).fold(0.0, f64::max)
    }
}

impl Class {
    fn new(wait: &Wait, shares: [Shares; 2]) -> Self {
        let Wait { location, enter_ns, wait_ns, paths, .. } = wait;
        Class {
            representative: Representative { shares, location: *location, enter_ns: *enter_ns, wait_ns: *wait_ns, paths: paths.clone() },
            distances: Distances::default(),
            occurrences: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            total_ns: 0,
            plus: Map::default(),
            minus: Map::default(),
            locations: BTreeSet::new(),
            longest: Longest { enter_ns: 0, location: LocationId(0), since_ns: 0 },
        }
    }

    fn add(&mut self, wait: &Wait) {
        self.occurrences += 1;
        self.total_ns += wait.wait_ns;
        self.min_ns = self.min_ns.min(wait.wait_ns);
        if wait.wait_ns > self.max_ns {
            self.max_ns = wait.wait_ns;
            let since_ns = wait.paths.minus.iter().map(|(_, ns)| ns).sum();
            self.longest = Longest { enter_ns: wait.enter_ns, location: wait.location, since_ns };
        }
        wait.paths.plus.iter().for_each(|(step, ns)| *self.plus.entry(*step).or_default() += ns);
        wait.paths.minus.iter().for_each(|(step, ns)| *self.minus.entry(*step).or_default() += ns);
        self.locations.insert(wait.location);
    }
}

/// What code takes of the time that a path executes; nothing of a path that only waits for a processor.
fn shares(steps: &Steps, path: &[(StepId, u64)]) -> Shares {
    let executed = || path.iter().map(|(id, ns)| (steps.get(*id), *ns)).filter(|(step, _)| step.state != LocationState::Ready);
    let total: u64 = executed().map(|(_, ns)| ns).sum();
    let mut shares: Shares = executed().map(|(step, ns)| ((step.code, step.state), ns as f64 / total.max(1) as f64)).collect();
    shares.sort_by_key(|(key, _)| *key);
    merge_equal(&mut shares);
    shares
}

/// The distance of two paths, or any number that is not below `limit` if it is not.
fn distance(rule: ClassRule, one: &Shares, other: &Shares, limit: f64) -> f64 {
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
        if is_common || rule == ClassRule::Union {
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

    fn path(parts: &[(u32, f64)]) -> Shares {
        parts.iter().map(|(code, share)| ((CodeId(*code), LocationState::Computing), *share)).collect()
    }

    #[test]
    fn disjoint_paths_are_far_but_by_the_papers_rule() {
        let (a, b) = (path(&[(1, 1.0)]), path(&[(2, 1.0)]));
        assert_eq!(distance(ClassRule::Union, &a, &b, 3.0), 2.0);
        assert_eq!(distance(ClassRule::Paper, &a, &b, 3.0), 0.0);
    }

    #[test]
    fn a_distance_is_what_is_spent_elsewhere_twice() {
        let (a, b) = (path(&[(1, 0.5), (2, 0.5)]), path(&[(1, 0.75), (3, 0.25)]));
        assert_eq!(distance(ClassRule::Union, &a, &b, 3.0), 1.0);
        assert_eq!(distance(ClassRule::Paper, &a, &b, 3.0), 0.25);
        assert_eq!(distance(ClassRule::Union, &a, &Vec::new(), 3.0), 1.0);
    }
}
