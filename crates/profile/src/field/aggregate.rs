//! Adding up reports: who took which path, in bounded memory.
//!
//! Memory is that of the sorter, which the caller sets; of the units seen (a few dozen bytes for each unit of each build); and of what is kept as the answer.

use super::external::{Row, Sorter};
use super::{Reports, User};
use crate::error::ProfileError;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use trodden_unit::Identity;

const BUFFER: usize = 1 << 20;

/// A unit of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitKey {
    /// The build.
    pub image: Identity,
    /// The unit.
    pub unit: Identity,
}

/// A path, and who took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPath {
    /// The unit.
    pub unit: UnitKey,
    /// The counter in it.
    pub counter: u64,
    /// Different users; those that do not say who they are count as one.
    pub users: u64,
    /// Reports.
    pub reports: u64,
    /// Executions.
    pub count: u64,
    /// Those who took it most, with executions.
    pub most: Vec<(User, u64)>,
}

/// One path of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserPath {
    /// The unit.
    pub unit: UnitKey,
    /// The counter in it.
    pub counter: u64,
    /// Who.
    pub user: User,
    /// Reports.
    pub reports: u64,
    /// Executions.
    pub count: u64,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes for rows while they are sorted.
    pub memory: usize,
    /// Paths of the answer: those taken by most users.
    pub paths: usize,
    /// Users of each.
    pub users: usize,
}

/// Sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// Reports read.
    pub reports: u64,
    /// Different paths.
    pub paths: u64,
    /// Paths by users (and then by executions), most first.
    pub top: Vec<SeenPath>,
}

/// Takes reports.
pub struct Aggregator {
    sorter: Sorter,
    limits: Limits,
    numbers: HashMap<UnitKey, u32>,
    reports: u64,
}

impl Aggregator {
    /// None yet.
    pub fn new(limits: Limits) -> Aggregator {
        Aggregator { sorter: Sorter::new(limits.memory), limits, numbers: HashMap::new(), reports: 0 }
    }

    /// How many reports were read so far.
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// Reads all reports of a file.
    ///
    /// # Errors
    /// It cannot be read, or a temporary file cannot be written; or it is damaged ([`ProfileError::ReportDamaged`]): what was read before is taken.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ProfileError> {
        let file = File::open(path).map_err(ProfileError::io(path, "read"))?;
        let mut reports = Reports::new(path, BufReader::with_capacity(BUFFER, file));
        let mut written = Ok(());
        // Most rows are of the unit of the row before.
        let mut last: Option<(UnitKey, u32)> = None;
        loop {
            let more = reports.next(|user, image, unit, counter, count| {
                let key = UnitKey { image, unit };
                let number = match last {
                    Some((known, number)) if known == key => number,
                    _ => {
                        let next = self.numbers.len() as u32;
                        *self.numbers.entry(key).or_insert(next)
                    }
                };
                last = Some((key, number));
                if written.is_ok() {
                    written = self.sorter.add(Row { unit: number, counter, user: *user, reports: 1, count });
                }
            });
            // Worse than a damaged report.
            std::mem::replace(&mut written, Ok(())).map_err(ProfileError::io(&std::env::temp_dir(), "write"))?;
            if !more? {
                break;
            }
            self.reports += 1;
        }
        Ok(())
    }

    /// The sums; `each` is called with every path of every user besides, ordered by path.
    ///
    /// # Errors
    /// A temporary file cannot be written or read, or what `each` says.
    pub fn finish(self, each: &mut dyn FnMut(&UserPath) -> io::Result<()>) -> io::Result<Aggregate> {
        let mut units: Vec<(UnitKey, u32)> = self.numbers.into_iter().collect();
        units.sort_unstable_by_key(|u| u.1);
        let mut ranking = Ranking { limits: self.limits, best: BinaryHeap::new(), current: None, paths: 0 };
        self.sorter.finish(&mut |row| {
            let unit = units[row.unit as usize].0;
            let one = UserPath { unit, counter: row.counter, user: row.user, reports: row.reports, count: row.count };
            ranking.add(&one);
            each(&one)
        })?;
        ranking.close();
        let (reports, paths) = (self.reports, ranking.paths);
        let top = ranking.best.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked.path).collect();
        Ok(Aggregate { reports, paths, top })
    }
}

/// A path in the order of the answer: the greatest is the first.
#[derive(Debug, PartialEq, Eq)]
struct Ranked {
    path: SeenPath,
}

impl Ranked {
    fn key(&self) -> (u64, u64, Reverse<(UnitKey, u64)>) {
        (self.path.users, self.path.count, Reverse((self.path.unit, self.path.counter)))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Ranking {
    limits: Limits,
    /// The best so far, the least of them on top.
    best: BinaryHeap<Reverse<Ranked>>,
    current: Option<SeenPath>,
    paths: u64,
}

impl Ranking {
    fn add(&mut self, one: &UserPath) {
        if self.current.as_ref().is_none_or(|c| (c.unit, c.counter) != (one.unit, one.counter)) {
            self.close();
            let (unit, counter) = (one.unit, one.counter);
            self.current = Some(SeenPath { unit, counter, users: 0, reports: 0, count: 0, most: Vec::new() });
        }
        let Some(path) = &mut self.current else { return };
        path.users += 1;
        path.reports = path.reports.saturating_add(one.reports);
        path.count = path.count.saturating_add(one.count);
        let place = path.most.partition_point(|m| m.1 >= one.count);
        if place < self.limits.users {
            path.most.insert(place, (one.user, one.count));
            path.most.truncate(self.limits.users);
        }
    }

    fn close(&mut self) {
        let Some(path) = self.current.take() else { return };
        self.paths += 1;
        self.best.push(Reverse(Ranked { path }));
        if self.best.len() > self.limits.paths {
            self.best.pop();
        }
    }
}
