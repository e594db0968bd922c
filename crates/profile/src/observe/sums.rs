//! Decodes the counters of units that count hardware or software events. Each counter has several cells: the number of executions, the sum
//! of the events, and the sum of their squares ([`trodden_unit::events`]).

use crate::events::PathEvents;
use trodden_unit::events::EVENT_CELLS_PER_COUNTER;

pub type CountsAndEvents = (Vec<(u64, u64)>, Vec<(u64, PathEvents)>);

/// Converts cells to counts and events. Cells are sums over all threads; where a sum saturated, `overflow` has the excess.
pub fn split_cells_into_counts_and_events(cells: &[(u64, u64)], overflow: &[(u64, u128)]) -> CountsAndEvents {
    let excess = |at: u64| overflow.binary_search_by_key(&at, |o| o.0).map_or(0, |index| overflow[index].1);
    let wide = cells.iter().map(|&(at, value)| (at, u128::from(value) + excess(at)));
    let (mut counts, mut events) = (Vec::new(), Vec::new());
    let mut cells = wide.peekable();
    while let Some(&(first, _)) = cells.peek() {
        let counter = first / EVENT_CELLS_PER_COUNTER;
        let mut path = [0u128; EVENT_CELLS_PER_COUNTER as usize];
        while let Some((at, value)) = cells.next_if(|(at, _)| at / EVENT_CELLS_PER_COUNTER == counter) {
            path[(at % EVENT_CELLS_PER_COUNTER) as usize] = value;
        }
        let [count, sum, low, high] = path;
        if count > 0 {
            counts.push((counter, u64::try_from(count).unwrap_or(u64::MAX)));
        }
        // Threads compute their sums modulo 2^64, so the total is modulo 2^64, too.
        let sum = i128::from(sum as u64 as i64);
        let squares = u64::try_from(high).ok().and_then(|high| (u128::from(high) << 64).checked_add(low)).unwrap_or(u128::MAX);
        if sum != 0 || squares != 0 {
            events.push((counter, PathEvents { sum, squares }));
        }
    }
    (counts, events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_split_with_their_overflow() {
        // Two threads, whose sums are -5 and 2, and whose low halves of the squares overflow when they are added.
        let mut sums = crate::sum::CountSums::default();
        for (at, value) in [(4, 1), (5, -5i64 as u64), (6, u64::MAX), (7, 3), (8, 9), (4, 2), (5, 2), (6, 5), (7, 4)] {
            sums.add(at, value);
        }
        let (counts, overflow) = sums.into_sparse_sums();
        let (counts, events) = split_cells_into_counts_and_events(&counts, &overflow);
        assert_eq!(counts, [(1, 3), (2, 9)]);
        assert_eq!(events, [(1, PathEvents { sum: -3, squares: (8 << 64) + 4 })]);
    }
}
