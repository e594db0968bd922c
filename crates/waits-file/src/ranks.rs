//! Ranks of the members of an MPI group. They are stored as ranges, because a group may have very many members that a few characters in a
//! file describe.

/// World ranks of a group's members in the order of their ranks in the group. The rank of a process outside `MPI_COMM_WORLD` is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankList {
    ranges: Vec<RankRange>,
    length: usize,
}

/// Members with consecutive ranks both in the group and in `MPI_COMM_WORLD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankRange {
    /// Rank in the group of the first of these members.
    begin: usize,
    /// World rank of the first of these members; `None` if unknown.
    first: Option<u32>,
    count: usize,
}

/// Maximum number of ranks in a group, because MPI stores a rank as an `int`.
const MAX_RANKS_PER_GROUP: usize = i32::MAX as usize;

impl RankList {
    /// Appends the members that a text names: a world rank, a range of world ranks (`4-6`), or `?` for a member without a world rank.
    ///
    /// # Errors
    /// The text has none of these forms, or the group becomes too large.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let rank = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is not a rank"));
        let (first, count) = match first {
            "?" => (None, 1),
            _ => {
                let (first, last) = (rank(first)?, rank(last)?);
                let distance = last.checked_sub(first).ok_or_else(|| format!("`{text}` is not a range of ranks"))?;
                (Some(first), distance as usize + 1)
            }
        };
        let length = Some(self.length + count).filter(|length| *length <= MAX_RANKS_PER_GROUP);
        let length = length.ok_or_else(|| format!("a communicator has more than {MAX_RANKS_PER_GROUP} members"))?;
        self.ranges.push(RankRange { begin: self.length, first, count });
        self.length = length;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns the world rank of the member whose rank in the group is `position`. The outer `None` means that there is no such member, the
    /// inner `None` that its world rank is unknown.
    pub fn get(&self, position: usize) -> Option<Option<u32>> {
        let index = self.ranges.partition_point(|range| range.begin <= position).checked_sub(1)?;
        let range = self.ranges[index];
        let distance = position - range.begin;
        (distance < range.count).then_some(range.first.map(|first| first + distance as u32))
    }

    /// Returns the rank in the group of the member with this world rank; `None` if there is no such member.
    pub fn position(&self, rank: u32) -> Option<usize> {
        self.ranges.iter().find_map(|range| {
            let distance = rank.checked_sub(range.first?)? as usize;
            (distance < range.count).then_some(range.begin + distance)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_position_and_by_world_rank() {
        let mut list = RankList::default();
        ["4-6", "?", "1", "9-2147483600"].iter().for_each(|text| list.add(text).unwrap());
        let places = [0, 1, 2, 3, 4, 5, 6, 2_147_483_596, 2_147_483_597];
        let ranks = [Some(4), Some(5), Some(6), None, Some(1), Some(9), Some(10), Some(2_147_483_600)];
        assert_eq!(places.map(|position| list.get(position))[..8], ranks.map(Some));
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
