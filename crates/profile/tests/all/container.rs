//! Tests of stored profiles: profiles are read as they were written, and corrupt bytes are reported and affect only the blocks that contain
//! them.

use crate::common;
use crate::common::{identity, profile};
use std::path::Path;
use trodden_container::{FILE_HEADER_BYTES, FileHeader, FileKind, SECTION_HEADER_BYTES, SECTION_MARKER};
use trodden_profile::{BranchSampling, BuildPolicy, ProfileMerger, SamplingSource};
use trodden_profile::{ObservedBranches, Profile, ProfileError, Sampling, UnattributedBranches, UnitMapsByIdentity};

fn encode_profile(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write_to(&mut bytes).unwrap();
    bytes
}

fn with_profile_file<T>(bytes: &[u8], test: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.trodden");
    std::fs::write(&path, bytes).unwrap();
    test(&path)
}

#[test]
fn sampling_data_survives_storing() {
    let mut profile = profile(0, 3);
    let observed = vec![ObservedBranches { image: 0, unit: 1, counts: vec![(3, 9), (70, 1)] }];
    let losses = UnattributedBranches { blocks: 100, blocks_counted: 75, incomplete: 4, ..UnattributedBranches::default() };
    let (source, samples, windows) = (SamplingSource::BranchRecords, 12, 11);
    profile.sampling =
        Some(Sampling::Branches(BranchSampling { source, samples, windows, records: 352, whole_paths: 31, losses, observed }));
    let again = with_profile_file(&encode_profile(&profile), |file| Profile::read(file).unwrap());
    assert_eq!(again, profile);
    let said = "sampled from branch records: 12 samples, 11 windows, 31 complete paths, 75.0% of the observed blocks are on these paths";
    assert_eq!(again.sampling.as_ref().unwrap().branches().unwrap().summary(), said);
    // Sampled profiles can be merged with each other, but not with one that was counted in full.
    let mut merger = ProfileMerger::new(BuildPolicy::Separate);
    merger.add("one", again.clone()).unwrap();
    merger.add("two", again.clone()).unwrap();
    let counted = merger.add("three", Profile { sampling: None, ..again }).unwrap_err().to_string();
    assert!(
        counted.starts_with("cannot merge three: it was counted in full, but the profiles before it were made from branch records"),
        "{counted}"
    );
    let sum = merger.into_merged_profile().unwrap().sampling.unwrap();
    let sum = sum.branches().unwrap();
    assert_eq!((sum.samples, sum.losses.incomplete, sum.observed.len()), (24, 8, 0));
}

/// Changes the layout version of the first block of a kind, and updates the block's checksum.
fn with_layout_version(bytes: &[u8], kind: u32, layout: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let is_header = |at: &usize| bytes[*at..].starts_with(&SECTION_MARKER) && bytes[*at + 8..*at + 12] == kind.to_le_bytes();
    let at = (0..bytes.len() - SECTION_HEADER_BYTES).find(is_header).unwrap();
    bytes[at + 12..at + 16].copy_from_slice(&layout.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[at..at + SECTION_HEADER_BYTES - 8]);
    bytes[at + SECTION_HEADER_BYTES - 8..at + SECTION_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn profiles_of_other_versions_are_rejected_but_not_called_corrupt() {
    const MAP_BLOCK: u32 = 2;
    const RUN_BLOCK: u32 = 1;
    let whole = encode_profile(&profile(0, 3));
    for kind in [MAP_BLOCK, RUN_BLOCK] {
        for (layout, said) in [(0, "written by an older version of trodden"), (999, "written by a newer version of trodden")] {
            let rejected = with_profile_file(&with_layout_version(&whole, kind, layout), |file| {
                [Profile::read(file).unwrap_err(), Profile::recover(file).unwrap_err()].map(|e| e.to_string())
            });
            for text in rejected {
                assert!(text.contains(said) && !text.contains("corrupt") && !text.contains("intact"), "{kind} {layout}: {text}");
                assert!(layout > 0 || text.contains("record again"), "{text}");
            }
        }
    }
}

#[test]
fn profiles_are_written_through_links_and_into_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let profile = profile(0, 3);
    std::fs::create_dir(at("far")).unwrap();
    // `link` leads to `middle`, which leads to a file that does not exist yet.
    std::os::unix::fs::symlink("middle", at("link")).unwrap();
    std::os::unix::fs::symlink("far/file", at("middle")).unwrap();
    for _ in 0..2 {
        profile.write(&at("link")).unwrap();
        assert_eq!(Profile::read(&at("far/file")).unwrap(), profile);
        assert!(at("link").is_symlink() && at("middle").is_symlink());
    }
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let pipe = at("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    profile.write(&at("pipe")).unwrap();
    assert!(reader.join().unwrap() == encode_profile(&profile));
    assert!(!std::fs::metadata(at("pipe")).unwrap().is_file());
}

#[test]
fn profiles_survive_storing() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..50 {
        let mut profile = profile(0, seed);
        profile.images[0].units[0].counts.executions.clear();
        if let Some(count) = profile.images[0].units[1].counts.executions.last_mut() {
            count.1 = u64::MAX;
        }
        let path = folder.path().join(format!("new/folder/{seed}.trodden"));
        profile.write(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), profile);
        let recovered = Profile::recover(&path).unwrap();
        assert_eq!((recovered.profile, recovered.lost), (profile, vec![]));
    }
    let left: Vec<_> = std::fs::read_dir(folder.path().join("new/folder")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 50, "no temporary file is left: {left:?}");
}

#[test]
fn writing_is_deterministic_and_replaces_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.trodden");
    let (one, other) = (profile(0, 1), profile(1, 2));
    one.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), encode_profile(&one));
    other.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), encode_profile(&other));
}

#[test]
fn maps_are_stored_once_and_shared_by_readers() {
    let profile = profile(0, 1);
    let bytes = encode_profile(&profile);
    let blocks = bytes.windows(8).filter(|w| *w == SECTION_MARKER).count();
    // The run, the end block, 2 images, 4 maps (one unit is linked twice), and the counts.
    let counts = profile.images.iter().flat_map(|i| &i.units).filter(|u| !u.counts.executions.is_empty()).count();
    assert_eq!(blocks, 2 + 2 + 4 + counts);
    with_profile_file(&bytes, |path| {
        let mut maps = UnitMapsByIdentity::new();
        let one = Profile::read_with_shared_maps(path, &mut maps).unwrap();
        let two = Profile::read_with_shared_maps(path, &mut maps).unwrap();
        assert_eq!(maps.len(), 4);
        assert!(std::sync::Arc::ptr_eq(&one.images[0].units[0].map, &two.images[0].units[2].map));
        assert_eq!(two, profile);
    });
}

#[test]
fn truncated_profile_is_an_error_and_its_intact_blocks_are_recovered() {
    let profile = profile(0, 5);
    let bytes = encode_profile(&profile);
    let mut recovered = 0;
    for length in 0..bytes.len() {
        with_profile_file(&bytes[..length], |path| {
            let error = Profile::read(path).unwrap_err().to_string();
            assert!(error.contains("p.trodden"), "{error}");
            if let Ok(part) = Profile::recover(path) {
                recovered += 1;
                assert!(!part.lost.is_empty());
                assert_is_part_of(&part.profile, &profile);
            }
        });
    }
    assert!(recovered > bytes.len() / 4, "{recovered} of {}", bytes.len());
}

#[test]
fn corrupt_byte_loses_one_block() {
    let profile = profile(0, 7);
    let bytes = encode_profile(&profile);
    for at in FILE_HEADER_BYTES..bytes.len() {
        let mut corrupt = bytes.clone();
        corrupt[at] ^= 0x40;
        with_profile_file(&corrupt, |path| {
            let error = Profile::read(path).expect_err("the changed byte is detected").to_string();
            assert!(error.contains("p.trodden is corrupt at byte"), "{error}");
            let part = Profile::recover(path).expect("most of it is intact");
            assert!(!part.lost.is_empty(), "byte {at}");
            assert_is_part_of(&part.profile, &profile);
        });
    }
    for at in 0..FILE_HEADER_BYTES {
        let mut corrupt = bytes.clone();
        corrupt[at] ^= 0x40;
        with_profile_file(&corrupt, |path| {
            let error = Profile::read(path).unwrap_err().to_string();
            assert!(
                ["p.trodden: ", "p.trodden is not a stored profile", "p.trodden is corrupt"].iter().any(|text| error.contains(text)),
                "byte {at}: {error}"
            );
            if let Ok(part) = Profile::recover(path) {
                assert!((part.lost.len(), part.profile) == (1, profile.clone()), "byte {at}");
            }
        });
    }
}

/// Asserts that `original` contains everything in `part`, which was recovered from a corrupt file.
fn assert_is_part_of(part: &Profile, original: &Profile) {
    assert!(part.run == original.run || part.run == Default::default());
    for image in &part.images {
        let all = original.images.iter().find(|i| i.identity == image.identity).expect("an image of the original");
        let mut rest = all.units.iter();
        for unit in &image.units {
            let before = rest.find(|u| u.unit == unit.unit).expect("units in order");
            assert!(
                unit.counts.executions.is_empty()
                    || unit.counts.executions == before.counts.executions
                    || all.units.iter().any(|u| u.counts.executions == unit.counts.executions)
            );
            assert_eq!(unit.map, before.map);
        }
    }
}

#[test]
fn other_kinds_of_files_are_named_in_the_error() {
    let mut bytes = encode_profile(&profile(0, 1));
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&FileHeader::new(FileKind::PROFILE, 9).to_bytes());
    let error = with_profile_file(&bytes, |p| Profile::read(p).unwrap_err());
    assert!(matches!(error, ProfileError::Version { found: 9, known: 2, .. }), "{error}");
    bytes[..FILE_HEADER_BYTES].copy_from_slice(&FileHeader::new(FileKind::TRACE, 2).to_bytes());
    let error = with_profile_file(&bytes, |p| Profile::read(p).unwrap_err());
    assert!(error.to_string().contains("it is a trace"), "{error}");
    let error = with_profile_file(b"TRODPROF\x01\0\0\0 and more", |p| Profile::read(p).unwrap_err());
    assert!(error.to_string().contains("by an earlier version of trodden. Use that version, or record again"), "{error}");
    let raw = common::RawFile::new(Path::new("/p"), &[(identity(1), 4)]).bytes();
    let error = with_profile_file(&raw, |p| Profile::read(p).unwrap_err());
    assert!(error.to_string().contains("it is a raw file"), "{error}");
    let error = with_profile_file(b"", |p| Profile::read(p).unwrap_err());
    assert!(matches!(error, ProfileError::Foreign { .. }), "{error}");
    let error = Profile::read(Path::new("/nowhere/p.trodden")).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /nowhere/p.trodden: "), "{error}");
}
