//! Aggregation of reports: sums over the users of each path, in bounded memory. Besides the sorter's memory, which the caller limits,
//! aggregation needs a few dozen bytes per unit of each build, and memory for the result.

use super::distributed::DistributedCopies;
pub use super::distributed::UnitKey;
use super::external::{UserPathRow, UserPathRowSorter};
use super::reporting::{ReportingUsers, ReportingUsersCounter};
use super::{FieldReportReader, FieldUserHash};
use crate::error::FieldError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use trodden_unit::Identity;

/// Buffer size for reading reports, in bytes.
const FILE_BUFFER_SIZE: usize = 1 << 20;
/// The memory limit is divided by this to get the memory for sorting pairs of a user and a copy. There are far fewer such pairs than paths.
const COPIES_MEMORY_DIVISOR: usize = 8;

/// A path, and the sums over its users.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregatedPath {
    /// The path's unit.
    pub unit: UnitKey,
    /// The path's counter in the unit.
    pub counter: u64,
    /// Number of users. All unknown users count as one.
    pub users: u64,
    /// Number of reports.
    pub reports: u64,
    /// Number of executions.
    pub count: u64,
    /// Sum of the squares of the users' executions.
    pub squares: f64,
    /// For distributed copies, the number of reporting users whose copy counts the path.
    pub counting_users: Option<u64>,
    /// The users with the most executions, and their executions.
    pub top_users: Vec<(FieldUserHash, u64)>,
}

/// The sums over one user's reports of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserPath {
    /// The path's unit.
    pub unit: UnitKey,
    /// The path's counter in the unit.
    pub counter: u64,
    /// The user.
    pub user: FieldUserHash,
    /// Number of reports.
    pub reports: u64,
    /// Number of executions.
    pub count: u64,
}

/// Limits of an aggregation.
#[derive(Clone, Copy, Debug)]
pub struct AggregateLimits {
    /// Memory for sorting rows, in bytes.
    pub memory: usize,
    /// Maximum number of paths in the result: those with the most users or, for distributed copies, with the greatest share of users.
    pub paths: usize,
    /// Maximum number of users listed for each path.
    pub users: usize,
}

/// The result of an aggregation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldAggregate {
    /// Number of reports.
    pub reports: u64,
    /// Number of distinct paths.
    pub paths: u64,
    /// The highest-ranking paths, ordered by number of users, then by executions.
    pub top: Vec<AggregatedPath>,
    /// For distributed copies, the reporting users.
    pub reporting: Option<ReportingUsers>,
    /// For distributed copies, the number of path entries in reports that belong to none of the copies.
    pub unmatched: u64,
}

/// Accumulates reports until their sums are computed.
pub struct FieldReportAggregator {
    sorter: UserPathRowSorter,
    limits: AggregateLimits,
    numbers: HashMap<UnitKey, u32>,
    reports: u64,
    copies: Option<(DistributedCopies, ReportingUsersCounter)>,
    unmatched: u64,
}

impl FieldReportAggregator {
    /// Creates an aggregator for reports of one program.
    pub fn new(limits: AggregateLimits) -> FieldReportAggregator {
        let (sorter, numbers) = (UserPathRowSorter::new(limits.memory), HashMap::new());
        FieldReportAggregator { sorter, limits, numbers, reports: 0, copies: None, unmatched: 0 }
    }

    /// Creates an aggregator for reports of distributed copies. Each report of an unknown user counts as a separate user.
    pub fn from_copies(limits: AggregateLimits, copies: DistributedCopies) -> FieldReportAggregator {
        let copies = Some((copies, ReportingUsersCounter::new(limits.memory / COPIES_MEMORY_DIVISOR)));
        FieldReportAggregator { copies, ..FieldReportAggregator::new(limits) }
    }

    /// Returns the number of reports read so far.
    pub fn report_count(&self) -> u64 {
        self.reports
    }

    /// Reads all reports of a file. If a report is corrupt, the reports before it are counted.
    pub fn add_file(&mut self, path: &Path) -> Result<(), FieldError> {
        let file = File::open(path).map_err(FieldError::io(path, "read"))?;
        let mut reports = FieldReportReader::new(path, BufReader::with_capacity(FILE_BUFFER_SIZE, file));
        let mut written = Ok(());
        // Cache for the common case that a report's unit is the same as the previous unit.
        let mut last: Option<(UnitKey, u32)> = None;
        loop {
            let FieldReportAggregator { sorter, numbers, copies, unmatched, reports: number, .. } = self;
            // The units of a copy are consecutive, so remembering the last copy is enough to record each copy once.
            let mut noted = None;
            let more = reports.next(|user, image, unit, path| {
                let mut key = UnitKey { image, unit };
                let mut user = *user;
                let mut path = path;
                if let Some((copies, counter)) = copies {
                    if user == [0; 16] {
                        user = Identity::from_content(&number.to_le_bytes()).0;
                    }
                    match (path, copies.copy_number_of_image(image)) {
                        (None, Some(copy)) if written.is_ok() && noted != Some(copy) => {
                            noted = Some(copy);
                            written = counter.add(&user, copy);
                        }
                        (None, _) => {}
                        (Some((counter, count)), _) => match copies.to_program_counter(key, counter) {
                            Some((whole, counter)) => (key, path) = (whole, Some((counter, count))),
                            None => (path, *unmatched) = (None, *unmatched + 1),
                        },
                    }
                }
                let Some((counter, count)) = path else { return };
                let unit = match last {
                    Some((known, number)) if known == key => number,
                    _ => {
                        let next = numbers.len() as u32;
                        *numbers.entry(key).or_insert(next)
                    }
                };
                last = Some((key, unit));
                if written.is_ok() {
                    written = sorter.add(UserPathRow { unit, counter, user, reports: 1, count });
                }
            });
            // A failure of the temporary file takes precedence over a corrupt report.
            std::mem::replace(&mut written, Ok(())).map_err(FieldError::io(&std::env::temp_dir(), "write"))?;
            if !more? {
                break;
            }
            self.reports += 1;
        }
        Ok(())
    }

    /// Computes the sums. `each` is called for every path of every user, in the order of the paths.
    pub fn finish_aggregation(self, each: &mut dyn FnMut(&UserPath) -> io::Result<()>) -> io::Result<FieldAggregate> {
        let mut units: Vec<(UnitKey, u32)> = self.numbers.into_iter().collect();
        units.sort_unstable_by_key(|u| u.1);
        let copies = match self.copies {
            Some((copies, counter)) => Some((copies, counter.count_reporting_users()?)),
            None => None,
        };
        let mut ranking = PathRanking { limits: self.limits, best: BTreeMap::new(), current: None, paths: 0, copies };
        self.sorter.visit_sorted_rows(&mut |row| {
            let unit = units[row.unit as usize].0;
            let user_path = UserPath { unit, counter: row.counter, user: row.user, reports: row.reports, count: row.count };
            ranking.add(&user_path);
            each(&user_path)
        })?;
        ranking.finish_path();
        let (reports, paths) = (self.reports, ranking.paths);
        let top = ranking.best.into_values().rev().collect();
        Ok(FieldAggregate { reports, paths, top, reporting: ranking.copies.map(|(_, reporting)| reporting), unmatched: self.unmatched })
    }
}

/// Sort key of paths. The path with the greatest key comes first in the result.
type PathSortKey = (u128, u128, Reverse<(UnitKey, u64)>);

fn path_sort_key(path: &AggregatedPath) -> PathSortKey {
    // Ranks by the share of the counting users who took the path. Their number would put paths that few copies count at a disadvantage.
    let share = |n: u64| path.counting_users.map_or(n.into(), |watching| (u128::from(n) << 64) / u128::from(watching.max(1)));
    (share(path.users), share(path.count), Reverse((path.unit, path.counter)))
}

struct PathRanking {
    limits: AggregateLimits,
    /// The best paths so far, at most `limits.paths`.
    best: BTreeMap<PathSortKey, AggregatedPath>,
    current: Option<AggregatedPath>,
    paths: u64,
    copies: Option<(DistributedCopies, ReportingUsers)>,
}

impl PathRanking {
    fn add(&mut self, user_path: &UserPath) {
        if self.current.as_ref().is_none_or(|c| (c.unit, c.counter) != (user_path.unit, user_path.counter)) {
            self.finish_path();
            let (unit, counter) = (user_path.unit, user_path.counter);
            self.current = Some(AggregatedPath {
                unit,
                counter,
                users: 0,
                reports: 0,
                count: 0,
                squares: 0.0,
                counting_users: None,
                top_users: Vec::new(),
            });
        }
        let Some(path) = &mut self.current else { return };
        path.users += 1;
        path.reports = path.reports.saturating_add(user_path.reports);
        path.count = path.count.saturating_add(user_path.count);
        path.squares += user_path.count as f64 * user_path.count as f64;
        let place = path.top_users.partition_point(|m| m.1 >= user_path.count);
        if place < self.limits.users {
            path.top_users.insert(place, (user_path.user, user_path.count));
            path.top_users.truncate(self.limits.users);
        }
    }

    fn finish_path(&mut self) {
        let Some(mut path) = self.current.take() else { return };
        if let Some((copies, reporting)) = &mut self.copies {
            path.counting_users = Some(reporting.users_with_any(&copies.copies_counting(path.unit, path.counter)));
        }
        self.paths += 1;
        self.best.insert(path_sort_key(&path), path);
        if self.best.len() > self.limits.paths {
            self.best.pop_first();
        }
    }
}
