//! Tests that readers never panic, whatever a file contains. Valid files are corrupted in tens of thousands of random ways. `cargo xtask
//! fuzz` does the same for all readers.

use crate::common;
use crate::common::{RawFile, identity, profile, run};
use std::collections::BTreeMap;
use std::path::Path;
use trodden_profile::{DiffOptions, FunctionPaths, Profile, RawProfile, collect, diff};
use trodden_testkit::{Random, functions};
use trodden_unit::{Frame, InstrumentedImage, UnitMap};

/// Corrupts bytes at random: flips bits, overwrites bytes with special values, and deletes, truncates, inserts or copies parts.
fn corrupt(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.index(bytes.len());
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => {
                let value = random.pick(&[0, 1, u64::MAX, 1 << 63, 1 << 62, 1 << 32, u64::from(u32::MAX), 0x7fff_ffff, 4096]);
                let at = at / 8 * 8;
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..(at + 1 + random.index(16)).min(bytes.len()))),
            5 => {
                let end = (at + 1 + random.index(64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = random.index(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let from = random.index(bytes.len());
                let size = (1 + random.index(16)).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + size, at);
            }
        }
    }
}

#[test]
fn readers_of_corrupt_raw_files_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.raw");
    let mut file = RawFile::new(Path::new("/nowhere/prog"), &[(identity(1), 40), (identity(2), 3)]);
    file.regions = vec![BTreeMap::from([(0, 1), (39, u64::MAX)]), BTreeMap::from([(41, 2)])];
    let (bytes, header) = (file.bytes(), file.header().0.len());
    let mut read = 0;
    for seed in 0..12_000 {
        let mut random = Random::new(seed);
        let mut corrupted = bytes.clone();
        // Mostly, the bytes before the counters are corrupted.
        if random.chance(80) {
            let rest = corrupted.split_off(200.min(header));
            corrupt(&mut random, &mut corrupted);
            corrupted.extend(rest);
            // With a matching checksum, the reader does not reject the corrupt bytes at once.
            common::seal_checksum(&mut corrupted);
        } else {
            corrupt(&mut random, &mut corrupted);
        }
        std::fs::write(&path, &corrupted).unwrap();
        if let Ok(raw) = RawProfile::read(&path) {
            read += 1;
            assert!(raw.units.iter().all(|u| u.counts.iter().all(|c| c.0 < u.counters && c.1 != 0)));
        }
        collect([&path], run("x"), None);
    }
    assert!(read > 1000, "{read}");
}

#[test]
fn readers_of_corrupt_profiles_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trodden");
    let mut bytes = Vec::new();
    profile(0, 1).write_to(&mut bytes).unwrap();
    let mut recovered = 0;
    for seed in 0..8_000 {
        let mut corrupted = bytes.clone();
        corrupt(&mut Random::new(seed), &mut corrupted);
        std::fs::write(&path, &corrupted).unwrap();
        let _ = Profile::read(&path);
        if let Ok(part) = Profile::recover(&path) {
            recovered += 1;
            call_profile_readers(&part.profile);
        }
    }
    assert!(recovered > 4000, "{recovered}");
}

fn call_profile_readers(profile: &Profile) {
    for (_, unit, function) in profile.functions() {
        let _ = FunctionPaths::decode(function, unit.counts_of(function));
    }
    let _ = diff(("a", profile), ("b", profile), &DiffOptions { across_builds: true, ..DiffOptions::default() });
}

/// Stored maps have checksums, which reject almost all corrupt bytes. This test decodes corrupt maps directly, without a checksum.
#[test]
fn decoders_of_corrupt_maps_and_impossible_counts_do_not_panic() {
    let (mut parsed, mut decoded) = (0, 0);
    for seed in 0..90_000 {
        let mut random = Random::new(seed);
        let (map, _) = functions::unit(&mut random, "a.c", 3, 8);
        let mut bytes = postcard::to_allocvec(&map).unwrap();
        corrupt(&mut random, &mut bytes);
        let Ok(map) = postcard::from_bytes::<UnitMap>(&bytes) else { continue };
        parsed += 1;
        for function in &map.functions {
            let wild = [0, 1, 5, function.counters.wrapping_sub(1), function.counters, u64::MAX];
            let _ = FunctionPaths::decode(function, (0..6).map(|_| (random.pick(&wild), random.pick(&wild))));
            decoded += u64::from(FunctionPaths::decode(function, (0..function.counters.min(50)).map(|id| (id, u64::MAX))).is_ok());
            let _ = function.dag();
        }
    }
    assert!(parsed > 5000 && decoded > 1000, "{parsed} parsed, {decoded} decoded");
}

#[test]
fn readers_of_corrupt_frames_and_images_do_not_panic() {
    let (map, _) = functions::unit(&mut Random::new(1), "a.c", 4, 8);
    let frames = [Frame::compress(identity(1), &map, b"bitcode"), Frame::compress(identity(2), &map, b"")];
    let image = common::image_file(&[(identity(1), map.counters), (identity(2), map.counters)], &frames);
    assert_eq!(InstrumentedImage::read(&image).unwrap().frames, frames);
    let section: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
    for seed in 0..12_000 {
        let mut random = Random::new(seed);
        let mut corrupted = section.clone();
        corrupt(&mut random, &mut corrupted);
        for frame in Frame::read_all(&corrupted).0 {
            let _ = (frame.map(), frame.bitcode());
        }
        let mut corrupted = image.clone();
        corrupt(&mut random, &mut corrupted);
        let _ = InstrumentedImage::read(&corrupted);
    }
}
