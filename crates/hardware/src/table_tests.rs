//! Compares hot path tables with a map as long as nothing is replaced, and each policy with a sequence worked out by hand.

use super::*;
use crate::stream::Address;

fn path(start: u64) -> PathDescriptor {
    PathDescriptor { start: Address(start), length: 1, outcomes: 1 }
}

fn table_with_one_set(replacement: ReplacementPolicy, ways: usize) -> HotPathTable {
    HotPathTable::new(TableParameters { entries: ways, associativity: ways, index: IndexFunction::Xor, replacement }).unwrap()
}

fn sorted_contents(table: &HotPathTable) -> Vec<(u64, u64)> {
    let mut sorted: Vec<(u64, u64)> = table.profile().iter().map(|(p, c)| (p.start.0, c)).collect();
    sorted.sort_unstable();
    sorted
}

fn table_fed_with(replacement: ReplacementPolicy, starts: &[u64]) -> HotPathTable {
    let mut table = table_with_one_set(replacement, 2);
    starts.iter().for_each(|s| {
        table.update(&path(*s), 1);
    });
    table
}

#[test]
fn table_with_room_for_all_paths_equals_a_map() {
    let mut generator = XorshiftGenerator::default();
    for replacement in ReplacementPolicy::ALL {
        let mut table = table_with_one_set(replacement, 256);
        let mut map = std::collections::BTreeMap::<u64, u64>::new();
        for _ in 0..5000 {
            let (start, count) = (generator.below(256), generator.below(9) as u32);
            table.update(&path(start), count);
            *map.entry(start).or_default() += u64::from(count);
        }
        assert_eq!(sorted_contents(&table), map.into_iter().collect::<Vec<_>>(), "{replacement:?}");
        assert_eq!(table.counts().replacements, 0);
    }
}

#[test]
fn lfu_replaces_the_least_frequently_used_entry() {
    let table = table_fed_with(ReplacementPolicy::Lfu, &[1, 1, 2, 3, 4]);
    assert_eq!(sorted_contents(&table), [(1, 2), (4, 1)]);
    assert_eq!(table.counts(), TableCounts { hits: 1, misses: 4, replacements: 2, saturated: 0 });
}

#[test]
fn lru_replaces_the_least_recently_used_entry() {
    assert_eq!(sorted_contents(&table_fed_with(ReplacementPolicy::Lru, &[1, 1, 2, 3])), [(2, 1), (3, 1)]);
    assert_eq!(sorted_contents(&table_fed_with(ReplacementPolicy::Lru, &[1, 2, 1, 3])), [(1, 2), (3, 1)]);
}

#[test]
fn space_saving_inherits_counts() {
    assert_eq!(sorted_contents(&table_fed_with(ReplacementPolicy::SpaceSaving, &[1, 1, 2, 3, 4])), [(3, 2), (4, 3)]);
}

#[test]
fn hot_path_is_not_displaced_by_many_cold_ones() {
    for replacement in [ReplacementPolicy::Lfu, ReplacementPolicy::RandomizedAdmission, ReplacementPolicy::Decay] {
        let mut table = table_with_one_set(replacement, 4);
        for at in 0..20_000u64 {
            table.update(&path(if at % 2 == 0 { 7 } else { 1000 + at }), 1);
        }
        assert!(table.profile().count(&path(7)) >= 10_000, "{replacement:?}");
    }
}

#[test]
fn accumulators_saturate() {
    let mut table = table_with_one_set(ReplacementPolicy::Lfu, 1);
    table.update(&path(1), u32::MAX - 1);
    table.update(&path(1), 5);
    assert_eq!(sorted_contents(&table), [(1, u64::from(u32::MAX))]);
    assert_eq!(table.counts().saturated, 1);
}

#[test]
fn configurations_are_parsed_and_checked() {
    assert_eq!(TableParameters::parse("512x4").unwrap(), TableParameters::PUBLISHED);
    let table = TableParameters::parse("128x2,start,rap").unwrap();
    assert_eq!(TableParameters::parse(&table.name()).unwrap(), table);
    for (text, word) in [("512", "512x4"), ("500x4", "power of two"), ("512x1024", "associativity"), ("512x4,best", "space-saving")] {
        assert!(TableParameters::parse(text).unwrap_err().to_string().contains(word), "{text}");
    }
}
