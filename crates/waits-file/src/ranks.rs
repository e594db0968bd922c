//! Ranks of a group, as ranges: memory is that of the text that says them, whatever numbers it has.

/// World ranks in the order of a group; `None`: a process outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankList {
    ranges: Vec<RankRange>,
    length: usize,
}

/// Members that follow each other, in the group and in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankRange {
    /// Place of the first in the group.
    begin: usize,
    /// Its world rank.
    first: Option<u32>,
    count: usize,
}

/// Maximum number of ranks: MPI counts them in `int`.
const MAX_RANKS: usize = i32::MAX as usize;

impl RankList {
    /// Adds members: `?`, a rank, or a range of ranks.
    ///
    /// # Errors
    /// The text is none of these, or there are too many.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let rank = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is not a rank"));
        let (first, count) = match first {
            "?" => (None, 1),
            _ => {
                let (first, last) = (rank(first)?, rank(last)?);
                let beyond = last.checked_sub(first).ok_or_else(|| format!("`{text}` is no range of ranks"))?;
                (Some(first), beyond as usize + 1)
            }
        };
        let length = Some(self.length + count).filter(|length| *length <= MAX_RANKS);
        let length = length.ok_or_else(|| format!("more than {MAX_RANKS} members of a communicator"))?;
        self.ranges.push(RankRange { begin: self.length, first, count });
        self.length = length;
        Ok(())
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The world rank of the member at a place. The outer `None`: there is no such place.
    pub fn get(&self, place: usize) -> Option<Option<u32>> {
        let index = self.ranges.partition_point(|range| range.begin <= place).checked_sub(1)?;
        let range = self.ranges[index];
        let beyond = place - range.begin;
        (beyond < range.count).then_some(range.first.map(|first| first + beyond as u32))
    }

    /// The place of a world rank.
    pub fn position(&self, rank: u32) -> Option<usize> {
        self.ranges.iter().find_map(|range| {
            let beyond = rank.checked_sub(range.first?)? as usize;
            (beyond < range.count).then_some(range.begin + beyond)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_place_and_by_rank() {
        let mut list = RankList::default();
        ["4-6", "?", "1", "9-2147483600"].iter().for_each(|text| list.add(text).unwrap());
        let places = [0, 1, 2, 3, 4, 5, 6, 2_147_483_596, 2_147_483_597];
        let ranks = [Some(4), Some(5), Some(6), None, Some(1), Some(9), Some(10), Some(2_147_483_600)];
        assert_eq!(places.map(|place| list.get(place))[..8], ranks.map(Some));
        assert_eq!((list.get(2_147_483_597), list.len()), (None, 2_147_483_597));
        assert_eq!(
            [4, 6, 7, 1, 9, 2_147_483_600].map(|rank| list.position(rank)),
            [Some(0), Some(2), None, Some(4), Some(5), Some(2_147_483_596)]
        );
        for wrong in ["5-4", "x", "-1", "0-99999999999", "0-60", ""] {
            assert!(list.add(wrong).is_err(), "{wrong}");
        }
    }
}
