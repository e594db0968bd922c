//! Counts reporting users by the set of copies that they use. Memory is bounded for any number of users: pairs of a user and a copy are
//! sorted externally, by user, and there are few sets, because most users have one copy.

use super::FieldUserHash;
use super::external::{UserPathRow, UserPathRowSorter};
use std::collections::BTreeMap;
use std::io;

/// Accumulates pairs of a user and a copy.
pub struct ReportingUsersCounter {
    sorter: UserPathRowSorter,
}

/// Reporting users by the copies that they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportingUsers {
    /// Number of users by set of copies. The copies of a set are in ascending order.
    users: BTreeMap<Vec<u32>, u64>,
    reports: BTreeMap<u32, u64>,
}

impl ReportingUsersCounter {
    /// Creates a counter that uses at most `memory` bytes for rows.
    pub fn new(memory: usize) -> ReportingUsersCounter {
        ReportingUsersCounter { sorter: UserPathRowSorter::new(memory) }
    }

    /// Adds a report.
    pub fn add(&mut self, user: &FieldUserHash, copy: u32) -> io::Result<()> {
        self.sorter.add(encode_row(user, copy))
    }

    /// Counts the users of each set of copies.
    pub fn count_reporting_users(self) -> io::Result<ReportingUsers> {
        let mut reporting = ReportingUsers::default();
        let mut open: Option<(FieldUserHash, Vec<u32>)> = None;
        self.sorter.visit_sorted_rows(&mut |row| {
            let (user, copy) = decode_row(row);
            *reporting.reports.entry(copy).or_default() += row.reports;
            match &mut open {
                Some((same, copies)) if *same == user => copies.push(copy),
                _ => reporting.count_user(open.replace((user, vec![copy]))),
            }
            Ok(())
        })?;
        reporting.count_user(open);
        Ok(reporting)
    }
}

impl ReportingUsers {
    fn count_user(&mut self, user: Option<(FieldUserHash, Vec<u32>)>) {
        user.into_iter().for_each(|(_, copies)| *self.users.entry(copies).or_default() += 1);
    }

    /// Returns the number of all users.
    pub fn reporting_user_count(&self) -> u64 {
        self.users.values().sum()
    }

    /// Returns the number of users with at least one of the copies.
    pub fn users_with_any(&self, copies: &[u32]) -> u64 {
        self.users.iter().filter(|(own, _)| own.iter().any(|c| copies.contains(c))).map(|(_, users)| users).sum()
    }

    /// Returns the number of reports of a copy.
    pub fn reports(&self, copy: u32) -> u64 {
        self.reports.get(&copy).copied().unwrap_or(0)
    }
}

/// Encodes a pair of a user and a copy as a row. Rows are sorted by user, then by copy.
fn encode_row(user: &FieldUserHash, copy: u32) -> UserPathRow {
    let user = u128::from_be_bytes(*user);
    let rest = u128::from(user as u32) << 96 | u128::from(copy) << 64;
    UserPathRow { unit: (user >> 96) as u32, counter: (user >> 32) as u64, user: rest.to_be_bytes(), reports: 1, count: 0 }
}

fn decode_row(row: &UserPathRow) -> (FieldUserHash, u32) {
    let rest = u128::from_be_bytes(row.user);
    let user = u128::from(row.unit) << 96 | u128::from(row.counter) << 32 | rest >> 96;
    (user.to_be_bytes(), (rest >> 64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn user_numbers_match_counting_in_memory() {
        let (mut counter, mut expected) = (ReportingUsersCounter::new(0), BTreeMap::<FieldUserHash, BTreeSet<u32>>::new());
        let mut state = 5u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut user = [0; 16];
            user[state as usize >> 8 & 15] = (state >> 40) as u8;
            user[15] = (state >> 50) as u8 & 3;
            let copy = (state >> 60) as u32 & 7;
            counter.add(&user, copy).unwrap();
            expected.entry(user).or_default().insert(copy);
        }
        let reporting = counter.count_reporting_users().unwrap();
        assert_eq!(reporting.reporting_user_count(), expected.len() as u64);
        for copies in [&[0u32][..], &[1, 5], &[7, 2, 3], &[9]] {
            let users = expected.values().filter(|own| copies.iter().any(|c| own.contains(c))).count() as u64;
            assert_eq!(reporting.users_with_any(copies), users);
        }
        assert_eq!((0..8).map(|c| reporting.reports(c)).sum::<u64>(), 20_000);
    }
}
