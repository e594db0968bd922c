//! Tests of raw files: sums over regions, holes, and corrupt files.

use crate::common;
use crate::common::{RawFile, identity};
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_container::{FILE_HEADER_BYTES, FileHeader, FileKind};
use trodden_profile::{ProfileError, RawProblem, RawProfile};
use trodden_wire::layout::Layout;
use trodden_wire::{RawHeader, RawUnit};

fn example_file() -> RawFile {
    let mut file = RawFile::new(Path::new("/opt/prog"), &[(identity(1), 600), (identity(2), 3)]);
    file.regions = vec![BTreeMap::from([(0, 1), (599, u64::MAX), (601, 7)]), BTreeMap::from([(0, 2), (599, 5), (603, 9)]), BTreeMap::new()];
    file
}

fn write_file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn regions_are_summed_and_saturate() {
    let (_folder, path) = write_file("a.raw", &example_file().bytes());
    let raw = RawProfile::read(&path).unwrap();
    assert!(raw.problems.is_empty());
    assert_eq!((raw.regions, raw.pid), (3, 4711));
    assert_eq!(raw.image_path, Path::new("/opt/prog"));
    assert_eq!(raw.units[0].counts, [(0, 3), (599, u64::MAX)]);
    assert_eq!(raw.units[1].counts, [(0, 7), (2, 9)]);
}

#[test]
fn holes_of_terabytes_are_skipped() {
    // This file is too large to be read in full. The test is skipped if the file system does not support files of this size.
    let mut file = RawFile::new(Path::new("/opt/prog"), &[(identity(1), 1 << 36)]);
    file.regions.clear();
    let (header, stride) = file.header();
    let (_folder, path) = write_file("a.raw", &header);
    let out = File::options().write(true).open(&path).unwrap();
    if out.set_len(header.len() as u64 + 8 * stride).is_err() {
        eprintln!("no sparse files of this size here");
        return;
    }
    for (region, index, count) in [(0, 0, 1u64), (0, (1 << 36) - 1, 2), (3, 1 << 35, 3), (7, 0, 4), (7, (1 << 36) - 1, 5)] {
        out.write_at(&count.to_le_bytes(), header.len() as u64 + region * stride + 8 * index).unwrap();
    }
    let raw = RawProfile::read(&path).unwrap();
    assert_eq!(raw.units[0].counts, [(0, 5), (1 << 35, 3), ((1 << 36) - 1, 7)]);
    assert_eq!((raw.regions, raw.problems.len()), (8, 0));
}

#[test]
fn truncation_is_reported_and_the_rest_is_read() {
    let bytes = example_file().bytes();
    let (header, stride) = example_file().header();
    let (_folder, path) = write_file("a.raw", &bytes[..header.len() + stride as usize + 8]);
    let raw = RawProfile::read(&path).unwrap();
    let end = (header.len() + stride as usize + 8) as u64;
    assert_eq!(raw.problems, [RawProblem::Truncated { end, region: 1, expected: header.len() as u64 + 2 * stride }]);
    assert_eq!(raw.units[0].counts, [(0, 3), (599, u64::MAX)]);
    let (_folder, path) = write_file("a.raw", &header);
    let raw = RawProfile::read(&path).unwrap();
    assert_eq!((raw.problems, raw.regions), (vec![RawProblem::NoRegion], 0));
}

#[test]
fn every_truncation_is_an_error_or_is_reported() {
    let bytes = example_file().bytes();
    let header = example_file().header().0.len();
    let setup = RawHeader::BYTES + 2 * RawUnit::BYTES + example_file().image.len();
    for length in (0..header + 64).step_by(8) {
        let (_folder, path) = write_file("a.raw", &bytes[..length]);
        match RawProfile::read(&path) {
            // A file without a region is valid: the program has counted nothing yet.
            Ok(raw) => assert!(length >= setup && (!raw.problems.is_empty() || length >= header || raw.regions == 0), "{length}"),
            Err(error) => assert!(error.to_string().contains("a.raw") && length < header, "{length}: {error}"),
        }
    }
}

#[test]
fn counts_outside_units_are_reported() {
    let mut file = example_file();
    file.regions[0].insert(600, 4); // between the units
    let mut bytes = file.bytes();
    let end = bytes.len();
    bytes[end - 8] = 1; // after the region's tail
    let (_folder, path) = write_file("a.raw", &bytes);
    let raw = RawProfile::read(&path).unwrap();
    let first = file.header().0.len() as u64 + 8 * 600;
    assert_eq!(raw.problems, [RawProblem::Stray { words: 2, first }]);
    assert_eq!(raw.units[0].counts, [(0, 3), (599, u64::MAX)]);
}

#[test]
fn process_id_of_a_region_holder_is_not_a_count() {
    let mut file = example_file();
    let holder = trodden_wire::region_holder_offset(file.counters()) / 8;
    file.regions[1].insert(holder, 4711);
    let (_folder, path) = write_file("a.raw", &file.bytes());
    let raw = RawProfile::read(&path).unwrap();
    assert_eq!((raw.problems, raw.lost), (vec![], 0));
    assert_eq!(raw.units[0].counts, [(0, 3), (599, u64::MAX)]);
}

#[test]
fn lost_counts_are_reported() {
    use trodden_wire::{LostReason, LostThreads};
    let mut file = example_file();
    let lost = LostThreads::default().add_thread(LostReason::NoSpace).add_thread(LostReason::NoSpace);
    let index = trodden_wire::region_lost_offset(file.counters()) / 8;
    file.regions[1].insert(index, lost.0);
    let mut bytes = file.bytes();
    let offset = offset_of!(RawHeader, lost);
    bytes[offset..offset + 8].copy_from_slice(&LostThreads::default().add_thread(LostReason::SizeLimit).0.to_le_bytes());
    let (_folder, path) = write_file("a.raw", &bytes);
    let raw = RawProfile::read(&path).unwrap();
    assert_eq!(raw.problems, [RawProblem::Lost { threads: 3, reasons: vec![LostReason::NoSpace, LostReason::SizeLimit] }]);
    assert_eq!(raw.lost, 3);
    let collected = trodden_profile::collect([&path], trodden_profile::Run::default(), None);
    assert_eq!(collected.profile.run.lost, 3);
    assert!(
        collected.problems.iter().any(|p| p.loses_counts() && p.is_recorded_in_profile() && p.to_string().contains("3 threads are lost"))
    );
    assert!(matches!(&collected.profile.inexactness_reasons()[..], [trodden_profile::exactness::InexactnessReason::Lost(3)]));
}

#[test]
fn file_that_could_not_be_allocated_is_reported() {
    let (_folder, path) = write_file("a.raw", &[0]);
    assert!(matches!(RawProfile::read(&path), Err(ProfileError::GivenUp(_))));
    let collected = trodden_profile::collect([&path], trodden_profile::Run::default(), None);
    assert!(collected.profile.run.lost == 1 && collected.problems[0].loses_counts());
    // An empty file was just created, or its program ended while it created the file. Its counts are not reported as lost.
    let (_folder, path) = write_file("a.raw", &[]);
    assert!(matches!(RawProfile::read(&path), Err(ProfileError::NotReady(_))));
}

#[test]
fn files_of_other_kinds_and_versions_are_rejected() {
    let bytes = example_file().bytes();
    let read_with_header = |header: &[u8]| {
        let (_folder, path) = write_file("a.raw", &[header, &bytes[header.len()..]].concat());
        let error = RawProfile::read(&path).unwrap_err();
        assert!(error.to_string().contains("a.raw"), "{error}");
        error
    };
    for version in [1, 2, trodden_wire::RAW_VERSION + 1] {
        let error = read_with_header(&FileHeader::new(FileKind::RAW_COUNTS, version).to_bytes());
        assert!(matches!(error, ProfileError::Version { found, .. } if found == u64::from(version)), "{error}");
    }
    assert!(matches!(read_with_header(b"TRODRAW\0"), ProfileError::Earlier { .. }));
    assert!(matches!(read_with_header(&[1]), ProfileError::Foreign { .. }));
    for (kind, phrase) in FileKind::ALL.iter().filter(|(kind, _)| *kind != FileKind::RAW_COUNTS) {
        let error = read_with_header(&FileHeader::new(*kind, trodden_wire::RAW_VERSION).to_bytes());
        assert!(matches!(error, ProfileError::Foreign { .. }), "{phrase}: {error}");
    }
    let unfinished = FileHeader::new(FileKind::RAW_COUNTS, trodden_wire::RAW_VERSION).bytes_with_zero_checksum();
    assert!(matches!(read_with_header(&unfinished), ProfileError::NotReady(_)));
    assert!(matches!(RawProfile::read(&write_file("e.raw", &[0; 4096]).1), Err(ProfileError::NotReady(_))));
    assert!(matches!(RawProfile::read(Path::new("/nowhere/e.raw")), Err(ProfileError::Io { .. })));
}

/// Changes each byte that the program writes before it counts, except those of the word that counts lost threads.
#[test]
fn every_changed_byte_of_the_setup_is_detected() {
    let file = example_file();
    let bytes = file.bytes();
    let setup = RawHeader::BYTES + RawUnit::BYTES * file.units.len() + file.image.len();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.raw");
    for at in (0..setup).filter(|at| !(offset_of!(RawHeader, lost)..RawHeader::BYTES).contains(at)) {
        for change in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            std::fs::write(&path, &changed).unwrap();
            let error = RawProfile::read(&path).unwrap_err().to_string();
            assert!(error.contains("a.raw"), "byte {at} ^ {change}: {error}");
        }
    }
}

#[test]
fn impossible_values_in_the_header_are_rejected() {
    let bytes = example_file().bytes();
    let error_offset_with = |at: usize, value: u64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        common::seal_checksum(&mut bytes);
        let (_folder, path) = write_file("a.raw", &bytes);
        match RawProfile::read(&path).unwrap_err() {
            ProfileError::RawCorrupt { offset, .. } => offset as usize,
            other => panic!("{other}"),
        }
    };
    let counters = offset_of!(RawHeader, counters);
    for huge in [u64::MAX, 1 << 63, 1 << 61, 1 << 40] {
        assert_eq!(error_offset_with(counters, huge), counters);
        for field in [offset_of!(RawHeader, units), offset_of!(RawHeader, units_offset)] {
            assert_eq!(error_offset_with(field, huge), FILE_HEADER_BYTES, "units");
        }
        for field in [offset_of!(RawHeader, path_offset), offset_of!(RawHeader, path_len)] {
            assert_eq!(error_offset_with(field, huge), FILE_HEADER_BYTES, "path");
        }
    }
    assert_eq!(error_offset_with(offset_of!(RawHeader, region_stride), 0), counters);
    assert_eq!(error_offset_with(offset_of!(RawHeader, image), 1), RawHeader::BYTES, "identity");
}
