//! Which users reported for which copies: as many users as there are, in bounded memory.
//!
//! Pairs of user and copy are sorted externally, user first; what is kept is how many users have each set of copies, mostly a single one.

use super::User;
use super::external::{Row, Sorter};
use std::collections::BTreeMap;
use std::io;

/// Takes pairs of user and copy.
pub struct Presence {
    sorter: Sorter,
}

/// How many users reported for which copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Users by the copies that they have, which ascend.
    users: BTreeMap<Vec<u32>, u64>,
    /// Reports by copy.
    reports: BTreeMap<u32, u64>,
}

impl Presence {
    /// With at most so many bytes for rows.
    pub fn new(memory: usize) -> Presence {
        Presence { sorter: Sorter::new(memory) }
    }

    /// Notes a report.
    ///
    /// # Errors
    /// A temporary file cannot be written.
    pub fn add(&mut self, user: &User, copy: u32) -> io::Result<()> {
        self.sorter.add(row(user, copy))
    }

    /// The sums.
    ///
    /// # Errors
    /// A temporary file cannot be written or read.
    pub fn finish(self) -> io::Result<Present> {
        let mut present = Present::default();
        let mut open: Option<(User, Vec<u32>)> = None;
        self.sorter.finish(&mut |row| {
            let (user, copy) = pair(row);
            *present.reports.entry(copy).or_default() += row.reports;
            match &mut open {
                Some((same, copies)) if *same == user => copies.push(copy),
                _ => present.enter(open.replace((user, vec![copy]))),
            }
            Ok(())
        })?;
        present.enter(open);
        Ok(present)
    }
}

impl Present {
    fn enter(&mut self, user: Option<(User, Vec<u32>)>) {
        user.into_iter().for_each(|(_, copies)| *self.users.entry(copies).or_default() += 1);
    }

    /// All users.
    pub fn users(&self) -> u64 {
        self.users.values().sum()
    }

    /// Users with one of the copies at least.
    pub fn users_with_any(&self, copies: &[u32]) -> u64 {
        self.users.iter().filter(|(own, _)| own.iter().any(|c| copies.contains(c))).map(|(_, users)| users).sum()
    }

    /// Reports of a copy.
    pub fn reports(&self, copy: u32) -> u64 {
        self.reports.get(&copy).copied().unwrap_or(0)
    }
}

/// A pair as a row whose key is in the order of users: their sixteen bytes come first, then the copy.
fn row(user: &User, copy: u32) -> Row {
    let user = u128::from_be_bytes(*user);
    let rest = u128::from(user as u32) << 96 | u128::from(copy) << 64;
    Row { unit: (user >> 96) as u32, counter: (user >> 32) as u64, user: rest.to_be_bytes(), reports: 1, count: 0 }
}

fn pair(row: &Row) -> (User, u32) {
    let rest = u128::from_be_bytes(row.user);
    let user = u128::from(row.unit) << 96 | u128::from(row.counter) << 32 | rest >> 96;
    (user.to_be_bytes(), (rest >> 64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn users_are_those_of_a_map() {
        let (mut presence, mut expected) = (Presence::new(0), BTreeMap::<User, BTreeSet<u32>>::new());
        let mut state = 5u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut user = [0; 16];
            user[state as usize >> 8 & 15] = (state >> 40) as u8;
            user[15] = (state >> 50) as u8 & 3;
            let copy = (state >> 60) as u32 & 7;
            presence.add(&user, copy).unwrap();
            expected.entry(user).or_default().insert(copy);
        }
        let present = presence.finish().unwrap();
        assert_eq!(present.users(), expected.len() as u64);
        for copies in [&[0u32][..], &[1, 5], &[7, 2, 3], &[9]] {
            let users = expected.values().filter(|own| copies.iter().any(|c| own.contains(c))).count() as u64;
            assert_eq!(present.users_with_any(copies), users);
        }
        assert_eq!((0..8).map(|c| present.reports(c)).sum::<u64>(), 20_000);
    }
}
