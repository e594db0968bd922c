//! The sets W of a [`View`]: by search, for few states at a time.

use super::view::{END, View};

/// Which states a search has met; kept between searches, since most of them are short.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    met: Vec<u32>,
    search: u32,
    work: Vec<u32>,
}

impl Scratch {
    /// The marked states that can be the first ones met from `from` on, itself included, and [`END`]; ascending.
    pub fn first_of(&mut self, view: &View, member: &[bool], from: u32) -> Vec<u32> {
        self.first_from(view, member, &[from])
    }

    /// The same behind a state.
    pub fn first_behind(&mut self, view: &View, member: &[bool], state: u32) -> Vec<u32> {
        let mut found = self.first_from(view, member, &view.next[state as usize]);
        if view.ends[state as usize] && found.last() != Some(&END) {
            found.push(END);
        }
        found
    }

    fn first_from(&mut self, view: &View, member: &[bool], from: &[u32]) -> Vec<u32> {
        self.met.resize(view.len(), 0);
        self.search += 1;
        self.work.extend(from);
        let mut found = Vec::new();
        while let Some(state) = self.work.pop() {
            if std::mem::replace(&mut self.met[state as usize], self.search) == self.search {
                continue;
            }
            if member[state as usize] {
                found.push(state);
                continue;
            }
            if view.ends[state as usize] {
                found.push(END);
            }
            self.work.extend(&view.next[state as usize]);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// One search of [`Scratch::first_of`].
pub fn first_of(view: &View, member: &[bool], from: u32) -> Vec<u32> {
    Scratch::default().first_of(view, member, from)
}

/// Whether two ascending lists have nothing in common.
pub fn disjoint(a: &[u32], b: &[u32]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    !few.iter().any(|x| many.binary_search(x).is_ok())
}
