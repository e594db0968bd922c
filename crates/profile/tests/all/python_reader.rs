//! An independent reader, written in Python from the handbook's page on file formats, must read the same data from profiles and raw files.

use crate::common::{RawFile, identity, profile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use trodden_profile::Profile;

fn read_with_python(path: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_profile.py");
    let output = Command::new("python3").arg(script).arg(path).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn expected_output(profile: &Profile) -> Value {
    let (mut images, mut counts) = (Vec::new(), Vec::new());
    for (number, image) in profile.images.iter().enumerate() {
        let units: Vec<String> = image.units.iter().map(|u| u.unit.to_string()).collect();
        images.push(json!({ "number": number, "path": image.path, "build_id": image.build_id, "units": units }));
        for (place, unit) in image.units.iter().enumerate().filter(|(_, unit)| !unit.counts.executions.is_empty()) {
            counts.push(json!({ "image": number, "place": place, "counts": unit.counts.executions }));
        }
    }
    json!({ "images": images, "counts": counts })
}

#[test]
fn handbook_describes_profiles() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..8 {
        let path = folder.path().join(format!("{seed}.trodden"));
        let profile = profile(0, seed);
        profile.write(&path).unwrap();
        let (found, expected) = (read_with_python(&path), expected_output(&profile));
        for key in ["images", "counts"] {
            assert_eq!(found[key], expected[key], "seed {seed}");
        }
        assert_eq!(found["run"]["command"], json!(profile.run.command));
        assert_eq!(found["run"]["started_ns"], json!(profile.run.started_ns));
        assert_eq!(found["run"]["recorder"], json!(profile.run.recorder));
        assert!(!found["maps"].as_array().unwrap().is_empty());
    }
}

#[test]
fn handbook_describes_raw_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.raw");
    let mut file = RawFile::new(Path::new("/opt/prog"), &[(identity(1), 3), (identity(2), 2)]);
    let lost = trodden_wire::region_lost_offset(file.counters()) / 8;
    file.regions = vec![BTreeMap::from([(0, 1), (2, 1 << 40), (4, 7)]), BTreeMap::from([(0, 2), (5, 9), (lost, 4)]), BTreeMap::new()];
    std::fs::write(&path, file.bytes()).unwrap();
    let units = json!([[identity(1).to_string(), [3, 0, 1u64 << 40]], [identity(2).to_string(), [7, 9]]]);
    assert_eq!(read_with_python(&path), json!({ "path": "/opt/prog", "process": 4711, "units": units, "lost": 4 }));
}
