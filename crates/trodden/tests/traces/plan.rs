//! `trodden trace record`: which run records which blocks ("witnesses"), given limits, weights, and plans by the user. Also tests runs in
//! fresh copies of the working folder.

use crate::traced::{Folder, errors, must};

#[test]
fn programs_that_change_files_are_repeated_in_fresh_folders() {
    let folder = Folder::new();
    let text = std::fs::read(folder.path("input")).unwrap();
    // gzip replaces its input by another file, so the second run would find a different folder.
    let diverged = folder.record(&["--runs", "2"], "t.trace", &["/usr/bin/gzip", "input"]);
    assert!(errors(&diverged).contains("diverged") && errors(&diverged).contains("--fresh-folder"), "{}", errors(&diverged));
    std::fs::remove_file(folder.path("input.gz")).ok();
    std::fs::write(folder.path("input"), &text).unwrap();
    must(folder.record(&["--runs", "3", "--fresh-folder"], "t.trace", &["/usr/bin/gzip", "input"]));
    // Afterwards, the folder must look as after a single run.
    assert!(folder.path("input.gz").exists() && !folder.path("input").exists());
    std::fs::remove_file(folder.path("input.gz")).unwrap();
    std::fs::write(folder.path("input"), &text).unwrap();
    must(folder.record(&["--collector", "single-step"], "s.trace", &["/usr/bin/gzip", "input"]));
    assert!(folder.addresses("t.trace") == folder.addresses("s.trace"));
}

const LOOPS_PROGRAM: &str = r#"
#include <stdio.h>
static volatile int n;
__attribute__((noinline)) static void often(int i) { for (int k = 0; k < 200; k++) n += k & i ? 1 : 2; }
__attribute__((noinline)) static void seldom(int i) { if (i & 1) n++; else n--; }
__attribute__((noinline)) static void both(int i) { seldom(i); often(i); puts("."); }
int main(int c, char **v) { for (int i = 0; i < 5; i++) both(i); return 0; }
"#;

/// Returns a program with loops, its plan for two runs as JSON, and the addresses that stepping records.
fn plan_looping_program() -> (Folder, serde_json::Value, Vec<String>) {
    let folder = Folder::new();
    folder.compile("cc", "loops.c", LOOPS_PROGRAM);
    must(folder.record(&["--collector", "single-step"], "stepped.trace", &["./app"]));
    let plan = must(folder.record(&["--plan=json", "--runs", "2"], "no.trace", &["./app"]));
    let stepped = folder.addresses("stepped.trace");
    (folder, serde_json::from_str(&plan).unwrap(), stepped)
}

#[test]
fn a_limit_makes_more_runs_for_fewer_machines() {
    let (folder, _, stepped) = plan_looping_program();
    let options = ["--limit", "9", "--machines", "2", "--runs", "2"];
    let output = folder.record(&options, "t.trace", &["./app"]);
    assert!(errors(&output).contains("witness hits in 3 runs"), "{}", errors(&output));
    must(output);
    assert!(folder.addresses("t.trace") == stepped);
    // A run must distinguish all functions that other code can call, which are more than there are debug registers.
    let hardware = folder.record_with("--collector hardware", &["--runs", "4"], "h.trace", &["./app"]);
    assert!(errors(&hardware).contains("no run distinguishes") && errors(&hardware).contains("more witnesses"), "{}", errors(&hardware));
    let small = folder.record(&["--runs", "4", "--limit", "1"], "t.trace", &["./app"]);
    assert_eq!(small.status.code(), Some(2));
    assert!(errors(&small).contains("Raise --limit from 1 to"), "{}", errors(&small));
    must(folder.record(&["--runs", "4", "--check", "paper", "--plan"], "t.trace", &["./app"]));
}

#[test]
fn plan_can_be_read_from_a_file() {
    let (folder, plan, stepped) = plan_looping_program();
    std::fs::write(folder.path("plan.json"), plan.to_string()).unwrap();
    must(folder.record(&["--runs", "2", "--distribution", "plan.json"], "t.trace", &["./app"]));
    assert!(folder.addresses("t.trace") == stepped);
    // If nothing is recorded in `seldom`, the two sides of its branch cannot be distinguished.
    let code = must(folder.laboratory(&["graph", "extract", "app", "--function", "seldom"]));
    let code: serde_json::Value = serde_json::from_str(&code).unwrap();
    let own: Vec<String> =
        code["functions"][0]["blocks"].as_array().unwrap().iter().map(|b| format!("{:#x}", b["address"].as_u64().unwrap())).collect();
    let without = |p: &serde_json::Value| {
        p.as_array().unwrap().iter().filter(|w| !own.contains(&w.as_str().unwrap().to_owned())).cloned().collect::<Vec<_>>()
    };
    let mut broken = plan.clone();
    broken["profiles"] = plan["profiles"].as_array().unwrap().iter().map(without).collect();
    std::fs::write(folder.path("broken.json"), broken.to_string()).unwrap();
    let refused = folder.record(&["--runs", "2", "--distribution", "broken.json"], "t.trace", &["./app"]);
    let text = errors(&refused);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains("no run distinguishes where") && text.contains("seldom") && text.contains("leave the same partial traces"),
        "{text}"
    );
    let mut other = plan;
    other["hash"] = "0x1".into();
    std::fs::write(folder.path("other.json"), other.to_string()).unwrap();
    let foreign = folder.record(&["--runs", "2", "--distribution", "other.json"], "t.trace", &["./app"]);
    assert!(errors(&foreign).contains("for a different build"), "{}", errors(&foreign));
}

#[test]
fn costs_predicted_from_measured_weights_are_close() {
    let (folder, _, stepped) = plan_looping_program();
    let most = |weights: &str| {
        let options = ["--runs", "2", "--witness-strategy", "weighted", "--witness-weights", weights];
        let plan = must(folder.record(&[&options[..], &["--plan=json"]].concat(), "no.trace", &["./app"]));
        must(folder.record(&options, "t.trace", &["./app"]));
        assert!(folder.addresses("t.trace") == stepped, "{weights}");
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        plan["predicted"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).fold(0.0, f64::max)
    };
    // The inner loop has 1,000 iterations in total, and costs predicted from a trace or a first run must be close to that.
    let (measured, first, guessed) = (most("stepped.trace"), most("first-run"), most("static"));
    assert!((900.0..4000.0).contains(&measured) && (900.0..4000.0).contains(&first), "{measured} {first} {guessed}");
    assert!(!(900.0..=4000.0).contains(&guessed), "{guessed}");
    let foreign = folder.record(&["--runs", "2", "--witness-weights", "input"], "t.trace", &["./app"]);
    assert!(errors(&foreign).contains("it is not a file of trodden. Record the trace again"), "{}", errors(&foreign));
}

/// The loop in figure 6(a) of "Distributed program tracing".
const DIAMONDS_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
volatile int a, b, c, d, e, f;
int main(int n, char **v) {
  int x = atoi(v[1]);
  do { if (x & 1) a++; else b++; if (x & 2) c++; else d++; if (x & 4) e++; else f++; } while (--x > 0);
  printf("%d %d %d\n", a, c, e);
  return 0;
}
"#;

/// Returns the highest predicted cost of all runs of one machine, according to the plan that would be carried out.
fn highest_machine_cost(folder: &Folder, strategy: &str, runs: &str, machines: Option<&str>) -> f64 {
    let machines = machines.map_or(Vec::new(), |count| vec!["--machines", count]);
    let options = [&["--plan=json", "--runs", runs, "--witness-strategy", strategy], &machines[..]].concat();
    let plan: serde_json::Value = serde_json::from_str(&must(folder.record(&options, "no.trace", &["./app", "3"]))).unwrap();
    let numbers = |name: &str| plan[name].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect::<Vec<f64>>();
    let mut of_machines = std::collections::BTreeMap::<u64, f64>::new();
    numbers("predicted").into_iter().zip(numbers("machine")).for_each(|(cost, at)| *of_machines.entry(at as u64).or_default() += cost);
    of_machines.into_values().fold(0.0, f64::max)
}

#[test]
fn weighted_plans_cost_no_more_than_published_ones_after_repair() {
    let folder = Folder::new();
    for text in [DIAMONDS_PROGRAM, LOOPS_PROGRAM] {
        folder.compile("cc", "program.c", text);
        for runs in ["2", "3", "4"] {
            for machines in [None, Some("1"), Some("2")] {
                let weighted = highest_machine_cost(&folder, "weighted", runs, machines);
                for published in ["fine", "function", "grouped"] {
                    let cost = highest_machine_cost(&folder, published, runs, machines);
                    assert!(weighted <= cost * (1.0 + 1e-9), "{runs} runs, {machines:?} machines: {weighted}, {published} {cost}");
                }
            }
        }
    }
}

#[test]
fn calls_are_nested_in_their_callers() {
    let (folder, ..) = plan_looping_program();
    must(folder.record(&["--runs", "2"], "two.trace", &["./app"]));
    let tree = must(folder.trodden(&["report", "two.trace"]));
    let depth = |name: &str, calls: &str| {
        let line =
            tree.lines().find(|l| l.ends_with(name) && l.trim_start().starts_with(calls)).unwrap_or_else(|| panic!("{name}: {tree}"));
        line.len() - name.len()
    };
    // The call to `often` is the last one traced in its caller, but it is not a tail call, so `often` must be as deep as `seldom`.
    assert!(depth(" main", "1 ") < depth(" both", "5 ") && depth(" both", "5 ") < depth(" seldom", "5 "), "{tree}");
    assert_eq!(depth(" seldom", "5 "), depth(" often", "5 "), "{tree}");
}

#[test]
fn plans_say_how_many_witnesses_repair_added() {
    let folder = Folder::new();
    let plan = |form: &str| must(folder.record(&["--runs", "4", form], "no.trace", &["/usr/bin/gzip", "-c", "input"]));
    let json: serde_json::Value = serde_json::from_str(&plan("--plan=json")).unwrap();
    let witnesses: usize = json["profiles"].as_array().unwrap().iter().map(|p| p.as_array().unwrap().len()).sum();
    let repaired = json["repaired"].as_u64().unwrap();
    // Witnesses that are placed for each function separately do not cover calls from outside the program or unwinding, so repair must add
    // some.
    assert!(repaired > 0 && (repaired as usize) < witnesses, "{repaired} of {witnesses}");
    let text = plan("--plan");
    assert!(text.contains(&format!("\n{repaired} witnesses were added by repair")), "{text}");
}
