//! Tests of merging and comparing profiles.

use crate::common::{profile, run};
use std::collections::BTreeMap;
use std::path::PathBuf;
use trodden_profile::{BuildPolicy, DiffOptions, PathChange, Profile, ProfileError, ProfileMerger, diff, merge_files};

type PathSums = BTreeMap<(String, usize, u64), u128>;

fn add_profile_to(sums: &mut PathSums, profile: &Profile) {
    for image in &profile.images {
        for (place, unit) in image.units.iter().enumerate() {
            for &(at, count) in &unit.counts.executions {
                *sums.entry((image.path.clone(), place, at)).or_default() += u128::from(count);
            }
        }
    }
}

#[test]
fn merging_adds_counts_and_leaves_out_bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut sums = PathSums::new();
    for seed in 0..200 {
        let path = folder.path().join(format!("{seed:03}.trodden"));
        let profile = profile(0, seed);
        profile.write(&path).unwrap();
        add_profile_to(&mut sums, &profile);
        paths.push(path);
    }
    let bad = folder.path().join("bad.trodden");
    let mut bytes = std::fs::read(&paths[0]).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&bad, bytes).unwrap();
    let other = folder.path().join("other.trodden");
    profile(1, 1).write(&other).unwrap();
    let gone = folder.path().join("gone.trodden");
    paths.insert(50, bad.clone());
    paths.insert(100, other.clone());
    paths.push(gone.clone());
    let mut progress = Vec::new();
    let merged = merge_files(&paths, BuildPolicy::Reject, |done| progress.push(done));
    assert_eq!(merged.files, 200);
    assert_eq!(progress, (1..=203).collect::<Vec<_>>());
    assert_eq!(merged.refused.iter().map(|r| &r.0).collect::<Vec<_>>(), [&bad, &other, &gone]);
    let text = merged.refused[1].1.to_string();
    let (one, two) = (profile(0, 0).images[0].identity.to_string(), profile(1, 0).images[0].identity.to_string());
    assert!(text.contains(&one) && text.contains(&two) && text.contains("other.trodden") && text.contains("000.trodden"), "{text}");
    let all = merged.profile.unwrap();
    let mut found = PathSums::new();
    add_profile_to(&mut found, &all);
    assert_eq!(found, sums);
    assert_eq!((all.run.runs, all.run.duration_ns), (200, 200 * 5_000_000));
    assert_eq!(all.run.command, ["./prog", "--fast"]);
}

#[test]
fn merging_does_not_depend_on_the_order_and_saturates() {
    let sum = |seeds: &[u64]| {
        let mut merger = ProfileMerger::new(BuildPolicy::Reject);
        for &seed in seeds {
            let mut profile = profile(0, seed);
            if let Some(count) = profile.images[0].units[3].counts.executions.first_mut() {
                count.1 = u64::MAX - 1;
            }
            merger.add("p", profile).unwrap();
        }
        merger.into_merged_profile().unwrap()
    };
    let (one, other) = (sum(&[1, 2, 3, 4]), sum(&[4, 2, 1, 3]));
    assert_eq!(one, other);
    assert!(sum(&[1, 1]).images[0].units[3].counts.executions.iter().any(|c| c.1 == u64::MAX));
}

#[test]
fn rejected_profiles_are_not_added() {
    let mut merger = ProfileMerger::new(BuildPolicy::Reject);
    merger.add("one", profile(0, 1)).unwrap();
    // A profile with the same library, but a different build of the program. It must be rejected as a whole, including the library's
    // counts.
    let mut mixed = profile(1, 2);
    mixed.images[1] = profile(0, 3).images[1].clone();
    mixed.images.swap(0, 1);
    assert!(matches!(merger.add("two", mixed), Err(ProfileError::OtherBuild { .. })));
    assert_eq!(merger.into_merged_profile().unwrap(), profile(0, 1));
}

#[test]
fn builds_are_kept_separate_on_request_and_programs_can_be_mixed() {
    let mut merger = ProfileMerger::new(BuildPolicy::Separate);
    merger.add("one", profile(0, 1)).unwrap();
    merger.add("two", profile(1, 2)).unwrap();
    merger.add("three", profile(1, 3)).unwrap();
    let all = merger.into_merged_profile().unwrap();
    assert_eq!(all.images.len(), 4);
    assert_eq!(all.images[0], profile(0, 1).images[0]);
    let mut merger = ProfileMerger::new(BuildPolicy::Reject);
    let mut other = profile(1, 2);
    other.images.iter_mut().for_each(|i| i.path += "-other");
    other.run = run("./other");
    merger.add("one", profile(0, 1)).unwrap();
    merger.add("two", other).unwrap();
    let all = merger.into_merged_profile().unwrap();
    assert_eq!((all.images.len(), all.run.command.len(), all.run.host.as_str()), (4, 0, "box"));
}

#[test]
fn profile_does_not_differ_from_itself_or_its_copy() {
    let one = profile(0, 1);
    let mut merger = ProfileMerger::new(BuildPolicy::Reject);
    merger.add("one", one.clone()).unwrap();
    merger.add("one", one.clone()).unwrap();
    let double = merger.into_merged_profile().unwrap();
    for other in [&one, &double] {
        let same = diff(("one", &one), ("other", other), &DiffOptions::default()).unwrap();
        assert!(same.functions.is_empty() && same.only_before.is_empty(), "{:?}", same.functions);
        assert!(same.compared > 4);
    }
    let counts = DiffOptions { report_counts: true, ..DiffOptions::default() };
    let doubled = diff(("one", &one), ("double", &double), &counts).unwrap();
    let paths: Vec<_> = doubled.functions.iter().flat_map(|f| &f.paths).collect();
    assert!(!paths.is_empty() && paths.iter().all(|p| p.change == PathChange::Count && p.counts.1 == 2 * p.counts.0));
}

#[test]
fn appeared_vanished_and_changed_paths_are_reported_with_their_shares() {
    for seed in 0..100 {
        let (before, after) = (profile(0, seed), profile(0, seed + 1000));
        let result = diff(("a", &before), ("b", &after), &DiffOptions::default()).unwrap();
        let decode = |p: &Profile, function: &str, unit: usize| {
            let unit = &p.images[0].units[unit];
            let map = unit.map.functions.iter().find(|f| f.name == function).unwrap();
            trodden_profile::FunctionPaths::decode(map, unit.counts_of(map)).unwrap()
        };
        for difference in result.functions.iter().filter(|f| f.unit.source == "unit_2.c") {
            let name = &difference.map().name;
            let (a, b) = (decode(&before, name, 1), decode(&after, name, 1));
            let count = |p: &trodden_profile::FunctionPaths, id| p.complete.iter().find(|c| c.id == id).map_or(0, |c| c.count);
            assert_eq!(difference.executions, (a.total(), b.total()));
            for path in &difference.paths {
                assert_eq!(path.counts, (count(&a, path.id), count(&b, path.id)));
                let expected = match path.counts {
                    (0, _) => PathChange::Appeared,
                    (_, 0) => PathChange::Vanished,
                    _ => PathChange::Share,
                };
                assert_eq!(path.change, expected);
                assert!((path.function_share.0 * a.total() as f64 - path.counts.0 as f64).abs() < 1e-6);
                assert!((0.0..=1.0).contains(&path.program_share.0) && (0.0..=1.0).contains(&path.program_share.1));
            }
            let gone = a.complete.iter().filter(|p| count(&b, p.id) == 0).count();
            assert_eq!(difference.paths.iter().filter(|p| p.change == PathChange::Vanished).count(), gone);
        }
        assert!(result.functions.is_sorted_by(|x, y| x.weight >= y.weight));
        let some = DiffOptions { min_function_share: 0.5, min_count: 100, ..DiffOptions::default() };
        let some = diff(("a", &before), ("b", &after), &some).unwrap();
        assert!(some.functions.iter().flat_map(|f| &f.paths).all(|p| p.function_change() >= 0.5 && p.counts.0.max(p.counts.1) >= 100));
    }
}

#[test]
fn different_builds_are_rejected_or_compared_by_function() {
    let (old, mut new) = (profile(0, 1), profile(1, 2));
    let error = diff(("old.trodden", &old), ("new.trodden", &new), &DiffOptions::default()).unwrap_err().to_string();
    for part in [&old.images[0].identity.to_string(), &new.images[0].identity.to_string(), "old.trodden", "new.trodden"] {
        assert!(error.contains(part), "{error}");
    }
    // One unit is unchanged.
    new.images[0].units[1] = profile(0, 9).images[0].units[1].clone();
    let across = DiffOptions { across_builds: true, ..DiffOptions::default() };
    let result = diff(("old", &old), ("new", &new), &across).unwrap();
    assert!(result.compared >= old.images[0].units[1].map.functions.len());
    assert!(result.functions.iter().any(|f| f.unit.source == "unit_2.c"));
    assert!(!result.only_before.is_empty() && !result.only_after.is_empty());
    new.images.iter_mut().for_each(|i| i.path = "/elsewhere".into());
    let error = diff(("old", &old), ("new", &new), &DiffOptions::default()).unwrap_err();
    assert!(matches!(error, ProfileError::NothingInCommon { .. }), "{error}");
}
