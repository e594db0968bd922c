//! Random units and profiles for the tests of this crate.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use trodden_profile::{Counts, ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
use trodden_testkit::{Random, functions};
use trodden_unit::{Identity, UnitMap};
use trodden_wire::image_identity;

pub fn identity(number: u8) -> Identity {
    Identity([number; 16])
}

pub fn unit_map(seed: u64, source: &str) -> Arc<UnitMap> {
    Arc::new(functions::unit(&mut Random::new(seed), source, 4, 8).0)
}

pub fn counts(random: &mut Random, map: &UnitMap) -> Vec<(u64, u64)> {
    let mut counts = BTreeMap::new();
    for _ in 0..random.below(30) {
        counts.insert(random.below(map.counters), 1 + random.below(1000));
    }
    counts.into_iter().collect()
}

pub fn run(command: &str) -> Run {
    Run {
        command: command.split(' ').map(str::to_owned).collect(),
        directory: "/home/user/project".into(),
        host: "box".into(),
        suite: None,
        started_ns: 1_700_000_000_000_000_000,
        duration_ns: 5_000_000,
        ending: Some(ProcessEnding::Exit(0)),
        runs: 1,
        recorder: "0.1.0".into(),
        test: None,
        diverged: 0,
        lost: 0,
        interrupted: 0,
    }
}

/// Builds a profile of a library and of a program with three units, one of which is linked twice. Different values of `build` give
/// different builds.
pub fn profile(build: u8, seed: u64) -> Profile {
    let mut random = Random::new(seed);
    let mut unit = |number: u8| {
        let map = unit_map(u64::from(number) + 1000 * u64::from(build), &format!("unit_{number}.c"));
        let counts = counts(&mut random, &map);
        UnitProfile { unit: Identity([number ^ (build << 4); 16]), map, counts: Counts::from_executions(counts) }
    };
    let program = vec![unit(1), unit(2), unit(1), unit(3)];
    let library = vec![unit(4)];
    let image = |units: Vec<UnitProfile>, path: &str, build_id: Option<&str>| ImageProfile {
        identity: Identity(image_identity(units.iter().map(|u| (u.unit.0, u.map.counters)))),
        path: path.into(),
        build_id: build_id.map(str::to_owned),
        units,
    };
    let images = vec![image(program, "/opt/prog", Some("abcdef")), image(library, "/opt/libfoo.so.1", None)];
    Profile { run: run("./prog --fast"), images, sampling: None }
}
