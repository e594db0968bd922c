//! Reports of untested paths from many users: what they contain, and how they are merged.

use crate::place::{Place, must, trodden};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

const SUBJECT_PROGRAM: &str = r#"#include <stdlib.h>
__attribute__((noinline)) int secret_function(int a, int b) {
    int r = 0;
    if (a > 10) { __asm__ volatile("nop"); r += 1; } else { __asm__ volatile("nop;nop"); r -= 1; }
    if (b > 10) { __asm__ volatile("nop;nop;nop"); r *= 3; } else { __asm__ volatile(""); r += 7; }
    return r;
}
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 1; i + 1 < argc; i += 2) sum += secret_function(atoi(argv[i]), atoi(argv[i + 1]));
    return sum > 1000000;
}
"#;

/// Creates reports from three machines, two of which belong to the same user.
fn create_reports() -> Place {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    place.trodden("record --suite tests -- ./prog 1 1 20 20");
    place.trodden("instrument ./prog --residual tests -o prog.field");
    fs::create_dir(place.path("inbox")).unwrap();
    for (machine, user, arguments) in [("a", "ann", "1 20 1 20"), ("b", "ann", "1 20"), ("c", "bob", "20 1 1 20")] {
        let raw = place.path(&format!("{machine}.raw"));
        must(place.command(place.path("prog.field")).args(arguments.split(' ')).env("TRODDEN_OUTPUT", &raw));
        place.trodden(&format!("fleet pack {machine}.raw --user {user} -o inbox/{machine}.field"));
    }
    place
}

/// Counts by image identity, unit identity and counter.
type Executions = BTreeMap<(Vec<u8>, Vec<u8>, u64), u64>;

/// Parses a report as the documentation of the format describes it, without trodden's own reader. Returns the user's hash and the counts.
/// Panics if the report contains anything else.
fn parse_report(bytes: &[u8]) -> (Vec<u8>, Executions) {
    assert_eq!(&bytes[..8], b"TRODFLD\x01");
    assert_eq!(u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize, bytes.len() - 16);
    let mut rest = bytes[16..].iter().copied();
    let mut counts = BTreeMap::new();
    let user: Vec<u8> = rest.by_ref().take(16).collect();
    fn parse_number(rest: &mut impl Iterator<Item = u8>) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = rest.next().unwrap();
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }
    for _ in 0..parse_number(&mut rest) {
        let (image, unit): (Vec<u8>, Vec<u8>) = (rest.by_ref().take(16).collect(), rest.by_ref().take(16).collect());
        let mut counter = 0;
        for _ in 0..parse_number(&mut rest) {
            counter += parse_number(&mut rest);
            counts.insert((image.clone(), unit.clone(), counter), parse_number(&mut rest));
        }
    }
    assert_eq!(rest.next(), None);
    (user, counts)
}

#[test]
fn reports_contain_only_path_identities_and_counts() {
    let place = create_reports();
    let bytes = fs::read(place.path("inbox/a.field")).unwrap();
    let (user, counts) = parse_report(&bytes);
    assert!(user != [0; 16] && user == parse_report(&fs::read(place.path("inbox/b.field")).unwrap()).0);
    let report: Value = serde_json::from_slice(&place.trodden("untested a.raw --json").stdout).unwrap();
    let paths = report["paths"].as_array().unwrap();
    assert_eq!(counts.len(), paths.len());
    let mut reported: Vec<u64> = paths.iter().map(|p| p["count"].as_u64().unwrap()).collect();
    reported.sort_unstable();
    let mut packed: Vec<u64> = counts.values().copied().collect();
    packed.sort_unstable();
    assert_eq!(packed, reported);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for word in ["secret_function", "prog", "main", "ann", host.trim(), place.path("").to_str().unwrap()] {
        assert!(!bytes.windows(word.len()).any(|w| w == word.as_bytes()), "{word} is in the report");
    }
}

#[test]
fn paths_are_ranked_by_users() {
    let place = create_reports();
    let sums: Value = serde_json::from_slice(&place.trodden("fleet aggregate inbox --json --rows rows.csv").stdout).unwrap();
    assert_eq!(sums["reports"], 3);
    let first = sums["paths"].as_array().unwrap().iter().find(|p| p["function"] == "secret_function").unwrap();
    assert_eq!((&first["users"], &first["reports"], &first["count"]), (&2.into(), &3.into(), &4.into()), "{sums}");
    assert_eq!(first["most"].as_array().unwrap().iter().map(|m| m["count"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 1]);
    let csv = fs::read_to_string(place.path("rows.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|l| l.split(',').collect()).collect();
    let id = first["id"].to_string();
    let of_path: Vec<_> = rows.iter().filter(|r| r[2] == "secret_function" && r[3] == id).collect();
    let mut executions: Vec<&str> = of_path.iter().map(|r| r[7]).collect();
    executions.sort_unstable();
    assert_eq!(executions, ["1", "3"], "{csv}");
    let text = String::from_utf8(place.trodden("fleet aggregate inbox").stdout).unwrap();
    assert!(text.contains("2 users, 3 reports, 4 executions") && text.contains("if (a > 10)"), "{text}");
    // Reports may be concatenated. A corrupt report hides the reports that follow it in the same file.
    let mut all = Vec::new();
    for machine in ["a", "b", "c"] {
        all.extend(fs::read(place.path(&format!("inbox/{machine}.field"))).unwrap());
    }
    fs::write(place.path("all.field"), &all).unwrap();
    assert_eq!(text, String::from_utf8(place.trodden("fleet aggregate all.field").stdout).unwrap());
    let last = all.len() - 1;
    all[last] ^= 1;
    fs::write(place.path("all.field"), &all).unwrap();
    let output = place.command(trodden()).args(["fleet", "aggregate", "all.field"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("in 2 reports") && err.contains("checksum"), "{out}{err}");
    // A missing file is an error, as is a file without a report.
    fs::write(place.path("none.field"), "").unwrap();
    for (file, message) in [("missing.field", "cannot read missing.field"), ("none.field", "contain no report")] {
        let output = place.command(trodden()).args(["fleet", "aggregate", file]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(message), "{err}");
    }
}
