//! Tests that collect profiles from raw files and from images on disk.

use crate::common::{RawFile, image_file, run, unit_map};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_profile::{CollectProblem, CollectedProfile, Profile, collect, raw_files};
use trodden_unit::{Frame, Identity, UnitCache, UnitMap};

struct BuiltProgram {
    folder: tempfile::TempDir,
    image: PathBuf,
    maps: Vec<Arc<UnitMap>>,
    units: Vec<(Identity, u64)>,
}

impl BuiltProgram {
    fn new() -> BuiltProgram {
        let folder = tempfile::tempdir().unwrap();
        let maps: Vec<_> = (1..=3).map(|n| unit_map(n, &format!("unit_{n}.c"))).collect();
        let units = maps.iter().map(|m| (Identity::from_content(m.source.as_bytes()), m.counters)).collect();
        BuiltProgram { image: folder.path().join("prog"), folder, maps, units }
    }

    fn frames(&self) -> Vec<Frame> {
        self.units.iter().zip(&self.maps).map(|(u, m)| Frame::compress(u.0, m, b"")).collect()
    }

    fn write_image(&self, frames: &[Frame]) {
        std::fs::write(&self.image, image_file(&self.units, frames)).unwrap();
    }

    fn raw(&self, regions: Vec<BTreeMap<u64, u64>>, name: &str) -> PathBuf {
        let mut raw = RawFile::new(&self.image, &self.units);
        raw.regions = regions;
        let path = self.folder.path().join(name);
        std::fs::write(&path, raw.bytes()).unwrap();
        path
    }

    /// Collects the profile of a run in which the first counter of each unit is 5.
    fn collect(&self, store: Option<&UnitCache>) -> CollectedProfile {
        let raw = RawFile::new(&self.image, &self.units);
        let firsts = raw.units.iter().map(|u| (u.1, 5)).collect();
        self.raw(vec![firsts], "a.raw");
        collect(raw_files(self.folder.path()).unwrap(), run("./prog"), store)
    }

    fn store(&self) -> UnitCache {
        UnitCache::new(self.folder.path().join("store"))
    }
}

fn units(profile: &Profile) -> Vec<Identity> {
    profile.images.iter().flat_map(|i| i.units.iter().map(|u| u.unit)).collect()
}

#[test]
fn maps_come_from_the_image() {
    let built = BuiltProgram::new();
    built.write_image(&built.frames());
    let CollectedProfile { profile, problems } = built.collect(None);
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(profile.images[0].path, built.image.display().to_string());
    assert_eq!(units(&profile), built.units.iter().map(|u| u.0).collect::<Vec<_>>());
    assert!(profile.images[0].units.iter().zip(&built.maps).all(|(u, m)| u.map == *m && u.counts.executions == [(0, 5)]));
    assert_eq!(profile.run, run("./prog"));
    let stored = built.folder.path().join("p.trodden");
    profile.write(&stored).unwrap();
    assert_eq!(Profile::read(&stored).unwrap(), profile);
}

#[test]
fn raw_files_of_one_image_are_summed() {
    let built = BuiltProgram::new();
    built.write_image(&built.frames());
    let files = [
        built.raw(vec![BTreeMap::from([(0, 1)]), BTreeMap::from([(0, 2)])], "1.raw"),
        built.raw(vec![BTreeMap::from([(0, u64::MAX)])], "2.raw"),
    ];
    let collected = collect(files, run("./prog"), None);
    assert!(collected.problems.is_empty());
    assert_eq!((collected.profile.images.len(), &collected.profile.images[0].units[0].counts.executions[..]), (1, &[(0, u64::MAX)][..]));
}

#[test]
fn maps_of_stripped_programs_come_from_the_unit_cache() {
    let built = BuiltProgram::new();
    built.write_image(&built.frames()[..1]);
    let CollectedProfile { profile, problems } = built.collect(Some(&built.store()));
    assert_eq!(units(&profile), [built.units[0].0]);
    let text = problems[0].to_string();
    assert!(problems.len() == 1 && problems[0].loses_counts());
    for part in [
        &built.image.display().to_string(),
        "the profile lacks 2 of its 3 compilation units",
        "stripped",
        "TRODDEN_CACHE",
        &built.units[1].0.to_string(),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    built.frames().iter().for_each(|f| drop(built.store().put(f).unwrap()));
    let CollectedProfile { profile, problems } = built.collect(Some(&built.store()));
    assert!(problems.is_empty() && profile.images[0].units.len() == 3);
}

#[test]
fn rebuilt_programs_are_reported_with_both_identities() {
    let built = BuiltProgram::new();
    let mut other = BuiltProgram::new();
    other.units[0].0 = Identity([9; 16]);
    std::fs::write(&built.image, image_file(&other.units, &other.frames())).unwrap();
    let CollectedProfile { profile, problems } = built.collect(Some(&built.store()));
    assert!(profile.images.is_empty());
    let identity = |units: &[(Identity, u64)]| RawFile::new(Path::new("/p"), units).identity().to_string();
    let text = problems[0].to_string();
    assert!(text.contains(&identity(&built.units)) && text.contains(&identity(&other.units)), "{text}");
    assert!(matches!(problems[0], CollectProblem::Rebuilt { missing: 3, .. }) && problems[0].loses_counts());
    // The unit cache gets the maps of the build that ran, so the image is in the profile.
    built.frames().iter().for_each(|f| drop(built.store().put(f).unwrap()));
    let CollectedProfile { profile, problems } = built.collect(Some(&built.store()));
    assert_eq!(profile.images[0].units.len(), 3);
    assert!(matches!(problems[0], CollectProblem::RebuiltButCached { .. }) && !problems[0].loses_counts());
}

#[test]
fn unreadable_files_and_images_do_not_affect_others() {
    let built = BuiltProgram::new();
    built.write_image(&built.frames());
    let good = built.raw(vec![BTreeMap::from([(0, 1)])], "good.raw");
    let empty = built.folder.path().join("empty.raw");
    std::fs::write(&empty, b"").unwrap();
    let foreign = built.folder.path().join("foreign.raw");
    std::fs::write(&foreign, b"not a raw file at all").unwrap();
    let mut gone = RawFile::new(Path::new("/nowhere/libgone.so"), &[(Identity([7; 16]), 5)]);
    gone.regions = vec![BTreeMap::from([(1, 1)])];
    let gone_file = built.folder.path().join("gone.raw");
    std::fs::write(&gone_file, gone.bytes()).unwrap();
    let collected = collect([empty, foreign, gone_file, good], run("./prog"), None);
    assert_eq!(collected.profile.images.len(), 1);
    let text: Vec<String> = collected.problems.iter().map(|p| p.to_string()).collect();
    assert_eq!(text.len(), 3);
    assert!(text[0].contains("empty.raw: this file of raw counts is empty") && !collected.problems[0].loses_counts(), "{}", text[0]);
    assert!(text[1].contains("foreign.raw is not a raw file"), "{}", text[1]);
    assert!(text[2].contains("/nowhere/libgone.so") && text[2].contains("cannot be read"), "{}", text[2]);
}

#[test]
fn wrong_maps_are_reported() {
    let mut built = BuiltProgram::new();
    let mut frames = built.frames();
    frames[1] = Frame::compress(built.units[1].0, &built.maps[2], b"");
    built.units[1].1 = built.maps[2].counters + 1;
    built.write_image(&frames);
    let CollectedProfile { profile, problems } = built.collect(None);
    assert_eq!(units(&profile), [built.units[0].0, built.units[2].0]);
    assert!(matches!(&problems[0], CollectProblem::BadMap { unit, .. } if *unit == built.units[1].0), "{problems:?}");
}

#[test]
fn cache_keeps_the_latest_map_and_any_bitcode() {
    let built = BuiltProgram::new();
    let (store, unit) = (built.store(), built.units[0].0);
    let frame = |map: &UnitMap, bitcode: &[u8]| Frame::compress(unit, map, bitcode);
    let kept = || {
        let frame = store.get(unit).unwrap().unwrap();
        (frame.map().unwrap(), frame.has_bitcode())
    };
    store.put(&frame(&built.maps[0], b"bitcode")).unwrap();
    store.put(&frame(&built.maps[0], b"")).unwrap();
    assert_eq!(kept(), ((*built.maps[0]).clone(), true));
    // The same unit has a different map, for instance after an update of the compiler plugin.
    store.put(&frame(&built.maps[1], b"")).unwrap();
    assert_eq!(kept(), ((*built.maps[1]).clone(), false));
    store.put(&frame(&built.maps[1], b"bitcode")).unwrap();
    assert_eq!(kept(), ((*built.maps[1]).clone(), true));
}
