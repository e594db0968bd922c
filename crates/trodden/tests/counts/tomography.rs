//! Copies of a program that are distributed to users, each of whom has a different input. The users' reports, and estimates made from them,
//! are compared with full profiles of the same runs.

use crate::place::{Place, must, trodden, with_choices};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use trodden_flow::Numbering;
use trodden_profile::Profile;
use trodden_unit::{FunctionMap, Identity, InstrumentedImage};

/// A program that counts words of different kinds, and does arithmetic with the numbers among its arguments.
const PROGRAM: &str = r#"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) int kind(const char *s) {
  int digits = 0, upper = 0, other = 0;
  for (; *s; s++) { if (isdigit((unsigned char)*s)) digits++; else if (isupper((unsigned char)*s)) upper++; else other++; }
  if (digits && !other) return upper ? 1 : 0;
  return upper > other ? 2 : 3;
}
__attribute__((noinline)) long collatz(long n) { long k = 0; while (n > 1) { if (n & 1) n = 3 * n + 1; else n /= 2; if (++k > 500) break;
  } return k; }
__attribute__((noinline)) int rare(int n) { if (n % 5 == 0) return n / 5; if (n % 7 == 0) { puts("seven"); return 7; } return -1; }
__attribute__((noinline)) void leave(int n) { if (n > 3) exit(n); }
int main(int argc, char **argv) {
  long sum = 0;
  for (int i = 1; i < argc; i++) {
    int k = kind(argv[i]);
    if (k == 0) { sum += collatz(atol(argv[i])); if (sum % 3 == 0) sum += rare((int)sum); }
    else if (k == 2) sum -= (long)strlen(argv[i]);
  }
  printf("%ld\n", sum);
  leave(argc);
  return 0;
}
"#;

/// The users' inputs, of which the first one is profiled to divide the counting.
const USER_INPUTS: [&str; 7] = ["27 97 ABC word 30 x9", "1", "A B C", "871 6171", "35 70 105 21", "one two", "97 ABc 12a 64"];

/// Path counts, by linkage name and path number.
type Counts = BTreeMap<(String, u64), u64>;

fn count_paths(profile: &Profile) -> Counts {
    profile.functions().flat_map(|(_, unit, f)| unit.counts_of(f).map(move |(path, n)| ((f.name.clone(), path), n))).collect()
}

fn read_functions(program: &Path) -> Vec<FunctionMap> {
    let image = InstrumentedImage::read(&fs::read(program).unwrap()).unwrap();
    image.frames.iter().flat_map(|frame| frame.map().unwrap().functions).collect()
}

/// Returns true if a copy counts a path, that is, if the graph of the function in the copy contains all edges of the path.
fn counts_path(whole: &[FunctionMap], copy: &[FunctionMap], path: &(String, u64)) -> bool {
    let function = whole.iter().find(|f| f.name == path.0).unwrap();
    let dag = function.dag().unwrap();
    let edges = Numbering::from_values(&dag, &function.values).unwrap().path(&dag, path.1).unwrap();
    copy.iter().any(|own| own.name == path.0 && edges.iter().all(|e| own.dag.contains(&dag.edge(*e).origin)))
}

fn make_copies(place: &Place, arguments: &str) {
    must(with_choices(place.command(trodden()).args(["fleet", "copies", "./prog"]), arguments.split(' ')));
}

/// Runs a copy as a user would, writes a report of the run, and appends it to `all.field`.
fn pack_report(place: &Place, copy: usize, user: &str, input: &str) {
    let program = place.path(&format!("parts/copy-{copy:04}/prog"));
    let raw = format!("raw-{user}-{copy}");
    fs::create_dir(place.path(&raw)).unwrap();
    let pattern = place.path(&raw).join("%m.raw");
    place.command(&program).args(input.split(' ')).env("TRODDEN_OUTPUT", pattern).output().unwrap();
    must(place.command(trodden()).args(["fleet", "pack", &raw, "--user", user, "--copy"]).arg(&program).args(["-o", "one.field"]));
    let mut all = File::options().append(true).create(true).open(place.path("all.field")).unwrap();
    all.write_all(&fs::read(place.path("one.field")).unwrap()).unwrap();
}

fn run_aggregate(place: &Place, arguments: &str) -> Value {
    let arguments = format!("fleet aggregate all.field --copies parts --json --top 10000 {arguments}");
    serde_json::from_slice(&place.trodden(&arguments).stdout).unwrap()
}

/// Returns a JSON number, which may be written as a string.
fn parse_number(of: &Value) -> u64 {
    of.as_u64().or_else(|| of.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{of}"))
}

/// Reads the rows that `--rows` wrote, by user.
fn read_rows(place: &Place) -> BTreeMap<String, Counts> {
    let mut out = BTreeMap::<String, Counts>::new();
    for line in fs::read_to_string(place.path("rows.csv")).unwrap().lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        out.entry(row[5].to_owned()).or_default().insert((row[2].to_owned(), row[3].parse().unwrap()), row[7].parse().unwrap());
    }
    out
}

/// Checks the estimates that are reported for a path against the rows of all users, for a population of 70 users. Returns the number of
/// users whose copy counts the path.
fn check_estimates(reported: &Value, rows: &BTreeMap<String, Counts>, watching: &dyn Fn(&(String, u64)) -> u64) -> u64 {
    let path = (reported["function"].as_str().unwrap().to_owned(), parse_number(&reported["id"]));
    let watching = watching(&path);
    let saw = rows.values().filter(|counts| counts.contains_key(&path)).count() as u64;
    assert_eq!((parse_number(&reported["watching"]), parse_number(&reported["users"])), (watching, saw), "{reported}");
    let estimate = reported["estimated_users"].as_f64().unwrap();
    assert!((estimate - 70.0 * saw as f64 / watching as f64).abs() < 1e-9, "{reported}");
    let sum: u64 = rows.values().filter_map(|counts| counts.get(&path)).sum();
    assert!((reported["estimated_count"].as_f64().unwrap() - 70.0 * sum as f64 / watching as f64).abs() < 1e-6, "{reported}");
    let [low, high] = ["estimated_users_low", "estimated_users_high"].map(|name| reported[name].as_f64().unwrap());
    assert!(saw as f64 <= low && low <= estimate && estimate <= high && high <= 70.0, "{reported}");
    watching
}

/// Checks the number of users of each copy, and the message about the copy that nobody uses.
fn check_copies(place: &Place, sums: &Value) {
    let users: Vec<u64> = sums["copies"].as_array().unwrap().iter().map(|c| parse_number(&c["users"])).collect();
    assert_eq!(users, [3, 3, 2, 0]);
    let text = String::from_utf8(place.trodden("fleet aggregate all.field --copies parts").stdout).unwrap();
    let missing = sums["copies"][3]["functions"].as_array().unwrap();
    assert!(!missing.is_empty() && text.contains("no user reported for copy 3, which counts paths of "), "{text}");
    assert!(missing.iter().take(8).all(|name| text.contains(name.as_str().unwrap())), "{text}");
}

/// Reports from copies of a different build must be rejected.
fn check_foreign_reports(place: &Place) {
    make_copies(place, "-k 2 --strategy pbl -o others");
    let output = place.command(trodden()).args(["fleet", "aggregate", "all.field", "--copies", "others"]).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && reported.contains("none of the users' reports comes from these copies"), "{reported}");
}

fn format_user_name(strategy: &str, user: usize) -> String {
    format!("{}-{user}", &strategy[..1])
}

#[test]
fn estimates_from_partial_reports_hold_for_all_users() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    let full = USER_INPUTS.map(|input| {
        // The program may end with a status other than 0.
        place
            .command(trodden())
            .args(["record", "--no-store", "-o", "full.trodden", "--", "./prog"])
            .args(input.split(' '))
            .output()
            .unwrap();
        fs::copy(place.path("full.trodden"), place.path("first.trodden")).map(drop).unwrap();
        count_paths(&Profile::read(&place.path("full.trodden")).unwrap())
    });
    for strategy in ["weighted", "p3 --all-procedures"] {
        let _ = fs::remove_dir_all(place.path("parts"));
        let _ = fs::remove_file(place.path("all.field"));
        make_copies(&place, &format!("-k 4 --strategy {strategy} --weights first.trodden -o parts"));
        let whole = read_functions(&place.path("prog"));
        let copies: Vec<Vec<FunctionMap>> = (0..4).map(|n| read_functions(&place.path(&format!("parts/copy-{n:04}/prog")))).collect();
        // The last copy has no user, and one user has two copies.
        let having = |user: usize| if user == 6 { vec![0, 1] } else { vec![user % 3] };
        for (user, input) in USER_INPUTS.iter().enumerate() {
            having(user).into_iter().for_each(|copy| pack_report(&place, copy, &format_user_name(strategy, user), input));
        }
        let sums = run_aggregate(&place, "--rows rows.csv --population 70");
        let rows = read_rows(&place);
        let own = |user: usize| rows.get(&Identity::from_content(format_user_name(strategy, user).as_bytes()).to_string());
        let mut seen = BTreeSet::new();
        for (user, counts) in full.iter().enumerate() {
            let mut expected = Counts::new();
            for (path, count) in counts {
                let times = having(user).iter().filter(|copy| counts_path(&whole, &copies[**copy], path)).count() as u64;
                if times > 0 {
                    expected.insert(path.clone(), times * count);
                    seen.insert(path.clone());
                }
            }
            assert_eq!(own(user).cloned().unwrap_or_default(), expected, "{strategy}, user {user}");
        }
        let paths = sums["paths"].as_array().unwrap();
        assert_eq!((parse_number(&sums["users"]), parse_number(&sums["reports"]), paths.len()), (7, 8, seen.len()), "{sums}");
        let watching =
            |path: &(String, u64)| (0..7).filter(|u| having(*u).iter().any(|c| counts_path(&whole, &copies[*c], path))).count() as u64;
        let partly = paths.iter().filter(|reported| check_estimates(reported, &rows, &watching) < 7).count();
        assert!(partly > 5, "{strategy}: only {partly} paths are not watched by all");
        // Paths are sorted by estimated users, in descending order.
        let shares: Vec<f64> = paths.iter().map(|p| p["estimated_users"].as_f64().unwrap()).collect();
        assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
        check_copies(&place, &sums);
    }
    check_foreign_reports(&place);
}

#[test]
fn copies_that_executed_nothing_are_reported_too() {
    let place = Place::with(&[(
        "prog.c",
        "#include <stdlib.h>\n__attribute__((noinline)) int f(int n) { return n % 3 ? n / 3 : abs(n) * 5; }\nint main(int c, char **v) { \
            return c > 1 ? f(c) : 0; }\n",
    )]);
    place.cc("-O1 prog.c -o prog");
    let pattern = place.path("written-%p.raw");
    make_copies(&place, &format!("-k 2 --strategy pbl -o parts --writes {}", pattern.display()));
    // One copy counts the paths of `f`, the other those of `main`.
    let of_f = (0..2).find(|n| read_functions(&place.path(&format!("parts/copy-{n:04}/prog"))).iter().any(|f| f.name == "f")).unwrap();
    pack_report(&place, of_f, "quiet", "");
    assert!(fs::read_dir(place.path(&format!("raw-quiet-{of_f}"))).unwrap().next().is_none() || place.path("all.field").is_file());
    let sums = run_aggregate(&place, "");
    assert_eq!((parse_number(&sums["users"]), parse_number(&sums["copies"][of_f]["users"])), (1, 1), "{sums}");
    // Without `TRODDEN_OUTPUT`, a copy writes to the file that was given when it was made.
    place.command(place.path(&format!("parts/copy-{of_f:04}/prog"))).args(["x", "y"]).output().unwrap();
    let raws: Vec<_> = fs::read_dir(place.path(""))
        .unwrap()
        .filter_map(Result::ok)
        .filter(|e| e.file_name().to_string_lossy().starts_with("written-"))
        .collect();
    assert_eq!(raws.len(), 1);
    let reported = place.command(trodden()).args(["fleet", "pack", "--copy", "./prog", "-o", "x.field"]).output().unwrap();
    assert!(String::from_utf8_lossy(&reported.stderr).contains("is not a copy of a program"), "{reported:?}");
}
