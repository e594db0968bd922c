//! Sums over reports: the users of each path, in bounded memory.
//!
//! Memory is the sum of three: the sorter's, which the caller sets; a few dozen bytes for each unit of each build; and the result's.

use super::distributed::DistributedCopies;
pub use super::distributed::UnitKey;
use super::external::{Sorter, UserPathRow};
use super::reporting::{ReportingUsers, ReportingUsersCounter};
use super::{Reports, User};
use crate::error::FieldError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use trodden_unit::Identity;

/// Bytes read at a time.
const BUFFER: usize = 1 << 20;
/// One over this number of the memory is for pairs of user and copy, which are few compared with paths.
const USERS_OF_COPIES: usize = 8;

/// A path and its users.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenPath {
    /// The unit.
    pub unit: UnitKey,
    /// The counter in it.
    pub counter: u64,
    /// Different users; all unknown users count as one.
    pub users: u64,
    /// Reports.
    pub reports: u64,
    /// Executions.
    pub count: u64,
    /// The sum of the squares of users' executions.
    pub squares: f64,
    /// For distributed copies: the number of reporting users whose copy counts the path.
    pub watching: Option<u64>,
    /// The users with the most executions of it, with their executions.
    pub most: Vec<(User, u64)>,
}

/// One path of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserPath {
    /// The unit.
    pub unit: UnitKey,
    /// The counter in it.
    pub counter: u64,
    /// The user.
    pub user: User,
    /// Reports.
    pub reports: u64,
    /// Executions.
    pub count: u64,
}

/// Limits of memory and of the result.
#[derive(Clone, Copy, Debug)]
pub struct AggregateLimits {
    /// Bytes for rows while they are sorted.
    pub memory: usize,
    /// Number of paths in the result: those of most users; for distributed copies, those of the greatest share of users who count them.
    pub paths: usize,
    /// Number of users in the result for each path.
    pub users: usize,
}

/// Sums.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aggregate {
    /// Reports read.
    pub reports: u64,
    /// Different paths.
    pub paths: u64,
    /// Paths by users (and then by executions), most first.
    pub top: Vec<SeenPath>,
    /// For distributed copies: the reporting users.
    pub reporting: Option<ReportingUsers>,
    /// For distributed copies: paths in reports that belong to none of them.
    pub foreign: u64,
}

/// Takes reports.
pub struct Aggregator {
    sorter: Sorter,
    limits: AggregateLimits,
    numbers: HashMap<UnitKey, u32>,
    reports: u64,
    copies: Option<(DistributedCopies, ReportingUsersCounter)>,
    foreign: u64,
}

impl Aggregator {
    /// An aggregator without reports.
    pub fn new(limits: AggregateLimits) -> Aggregator {
        let (sorter, numbers) = (Sorter::new(limits.memory), HashMap::new());
        Aggregator { sorter, limits, numbers, reports: 0, copies: None, foreign: 0 }
    }

    /// An aggregator without reports, for distributed copies. Each report of an unknown user counts as a user of its own.
    pub fn from_copies(limits: AggregateLimits, copies: DistributedCopies) -> Aggregator {
        let copies = Some((copies, ReportingUsersCounter::new(limits.memory / USERS_OF_COPIES)));
        Aggregator { copies, ..Aggregator::new(limits) }
    }

    /// How many reports were read so far.
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// Reads all reports of a file.
    ///
    /// # Errors
    /// It cannot be read, or a temporary file cannot be written; or it is damaged ([`FieldError::Damaged`]):
    /// what was read before it is counted.
    pub fn add_file(&mut self, path: &Path) -> Result<(), FieldError> {
        let file = File::open(path).map_err(FieldError::io(path, "read"))?;
        let mut reports = Reports::new(path, BufReader::with_capacity(BUFFER, file));
        let mut written = Ok(());
        // Most rows are of the unit of the row before.
        let mut last: Option<(UnitKey, u32)> = None;
        loop {
            let Aggregator { sorter, numbers, copies, foreign, reports: number, .. } = self;
            // Units of a copy follow each other.
            let mut noted = None;
            let more = reports.next(|user, image, unit, path| {
                let mut key = UnitKey { image, unit };
                let mut user = *user;
                let mut path = path;
                if let Some((copies, counter)) = copies {
                    if user == [0; 16] {
                        user = Identity::from_content(&number.to_le_bytes()).0;
                    }
                    match (path, copies.number(image)) {
                        (None, Some(copy)) if written.is_ok() && noted != Some(copy) => {
                            noted = Some(copy);
                            written = counter.add(&user, copy);
                        }
                        (None, _) => {}
                        (Some((counter, count)), _) => match copies.counter(key, counter) {
                            Some((whole, counter)) => (key, path) = (whole, Some((counter, count))),
                            None => (path, *foreign) = (None, *foreign + 1),
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
            // An error of the temporary file matters more than a damaged report.
            std::mem::replace(&mut written, Ok(())).map_err(FieldError::io(&std::env::temp_dir(), "write"))?;
            if !more? {
                break;
            }
            self.reports += 1;
        }
        Ok(())
    }

    /// The sums. `each` is also called with every path of every user, ordered by path.
    ///
    /// # Errors
    /// A temporary file cannot be written or read, or what `each` says.
    pub fn finish(self, each: &mut dyn FnMut(&UserPath) -> io::Result<()>) -> io::Result<Aggregate> {
        let mut units: Vec<(UnitKey, u32)> = self.numbers.into_iter().collect();
        units.sort_unstable_by_key(|u| u.1);
        let copies = match self.copies {
            Some((copies, counter)) => Some((copies, counter.finish()?)),
            None => None,
        };
        let mut ranking = Ranking { limits: self.limits, best: BTreeMap::new(), current: None, paths: 0, copies };
        self.sorter.finish(&mut |row| {
            let unit = units[row.unit as usize].0;
            let one = UserPath { unit, counter: row.counter, user: row.user, reports: row.reports, count: row.count };
            ranking.add(&one);
            each(&one)
        })?;
        ranking.close();
        let (reports, paths) = (self.reports, ranking.paths);
        let top = ranking.best.into_values().rev().collect();
        Ok(Aggregate { reports, paths, top, reporting: ranking.copies.map(|(_, reporting)| reporting), foreign: self.foreign })
    }
}

/// The order of paths: the greatest comes first in the result.
type Rank = (u128, u128, Reverse<(UnitKey, u64)>);

fn rank(path: &SeenPath) -> Rank {
    // The share of users corrects for paths that few copies count.
    let share = |n: u64| path.watching.map_or(n.into(), |watching| (u128::from(n) << 64) / u128::from(watching.max(1)));
    (share(path.users), share(path.count), Reverse((path.unit, path.counter)))
}

struct Ranking {
    limits: AggregateLimits,
    /// The best paths so far.
    best: BTreeMap<Rank, SeenPath>,
    current: Option<SeenPath>,
    paths: u64,
    copies: Option<(DistributedCopies, ReportingUsers)>,
}

impl Ranking {
    fn add(&mut self, one: &UserPath) {
        if self.current.as_ref().is_none_or(|c| (c.unit, c.counter) != (one.unit, one.counter)) {
            self.close();
            let (unit, counter) = (one.unit, one.counter);
            self.current = Some(SeenPath { unit, counter, users: 0, reports: 0, count: 0, squares: 0.0, watching: None, most: Vec::new() });
        }
        let Some(path) = &mut self.current else { return };
        path.users += 1;
        path.reports = path.reports.saturating_add(one.reports);
        path.count = path.count.saturating_add(one.count);
        path.squares += one.count as f64 * one.count as f64;
        let place = path.most.partition_point(|m| m.1 >= one.count);
        if place < self.limits.users {
            path.most.insert(place, (one.user, one.count));
            path.most.truncate(self.limits.users);
        }
    }

    fn close(&mut self) {
        let Some(mut path) = self.current.take() else { return };
        if let Some((copies, reporting)) = &mut self.copies {
            path.watching = Some(reporting.users_with_any(&copies.watching(path.unit, path.counter)));
        }
        self.paths += 1;
        self.best.insert(rank(&path), path);
        if self.best.len() > self.limits.paths {
            self.best.pop_first();
        }
    }
}
