//! Tests exchange formats: JSON, folded stacks, pprof, LCOV and DOT.

use crate::support::compare_with_golden;
use crate::support::demo::{DEMO_SOURCE_FILE, UTIL_HEADER_FILE, demo, sources};
use prost::Message;
use serde_json::Value;
use std::io::Read;
use trodden_report::annotate::AnnotateRequest;
use trodden_report::view::MappedLines;
use trodden_report::{PathMeasure, PathSelection, ProfileView, SourceCache, dot, folded, json, lcov, pprof};

fn select_all() -> PathSelection {
    PathSelection { top: usize::MAX, ..PathSelection::default() }
}

#[test]
fn json_report_has_all_paths_and_executions() {
    let profile = demo();
    let report = json::report(&ProfileView::from_profile(&profile), &select_all(), &SourceCache::new(&sources)).unwrap();
    compare_with_golden("report.json", &format!("{}\n", serde_json::to_string_pretty(&report).unwrap()));
    let paths = report["paths"].as_array().unwrap();
    let function = |p: &Value| report["functions"][p["function"].as_u64().unwrap() as usize]["name"].clone();
    assert_eq!(function(&paths[0]), "classify");
    let executions: u64 = paths.iter().map(|p| p["count"].as_u64().unwrap()).sum();
    assert_eq!(report["totals"]["executions"], executions);
}

#[test]
fn json_annotation_has_the_counts_of_lines() {
    let profile = demo();
    let request = AnnotateRequest { function: "classify".into(), path: None, measure: PathMeasure::Instructions };
    let annotation = json::annotate(&ProfileView::from_profile(&profile), &request, &SourceCache::new(&sources)).unwrap();
    let line = |n: u64| annotation["source"]["lines"].as_array().unwrap().iter().find(|l| l["line"] == n).unwrap().clone();
    assert_eq!(line(15)["count"], 1_020_003, "every call returned");
    assert_eq!(line(11)["count"], 20_000);
    assert_eq!(line(16)["count"], Value::Null, "a brace has no code");
    assert_eq!(annotation["path"]["steps"][0]["source"], line(7)["text"]);
}

#[test]
fn json_numbers_above_2_to_the_53_are_strings() {
    assert_eq!(json::number(1u64 << 53), serde_json::json!(9_007_199_254_740_992u64));
    assert_eq!(json::number((1u64 << 53) + 1), serde_json::json!("9007199254740993"));
}

#[test]
fn folded_stacks_can_be_read_by_a_flame_graph_tool() {
    let profile = demo();
    let stacks =
        folded::write_folded_stacks(&ProfileView::from_profile(&profile), &PathSelection { measure: PathMeasure::Count, ..select_all() })
            .unwrap();
    compare_with_golden("stacks.folded", &stacks);
    assert!(stacks.contains("kind_of;path 0 (20-22-29) 7000\n"), "{stacks}");
    let mut svg = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, stacks.lines(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert!(svg.contains("kind_of (7,012 samples"), "counts of a function's paths add up");
}

#[test]
fn pprof_has_paths_as_callees_of_their_functions() {
    let profile = demo();
    let view = ProfileView::from_profile(&profile);
    let bytes = pprof::write_pprof(&view, &select_all()).unwrap();
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut raw).unwrap();
    let read = pprof::PprofProfile::decode(&raw[..]).unwrap();
    let text = |at: i64| read.string_table[at as usize].as_str();
    assert_eq!(text(0), "");
    assert_eq!(read.sample_type.iter().map(|t| text(t.kind)).collect::<Vec<_>>(), ["executions", "instructions"]);
    let name = |location: u64| {
        let location = read.location.iter().find(|l| l.id == location).unwrap();
        text(read.function.iter().find(|f| f.id == location.line[0].function_id).unwrap().name)
    };
    let sample = read.sample.iter().find(|s| name(s.location_id[0]) == "kind_of path 0 (20-22-29)").unwrap();
    assert_eq!((name(sample.location_id[1]), &sample.value[..]), ("kind_of", &[7000, 28_000][..]));
    let executions: i64 = read.sample.iter().map(|s| s.value[0]).sum();
    assert_eq!(executions as u128, view.totals.executions);
}

#[test]
fn lcov_counts_lines_branches_and_inlined_code() {
    let profile = demo();
    let trace =
        lcov::write_lcov(&ProfileView::from_profile(&profile).functions, &MappedLines::new(), "demo run", &|file| Some(file.to_owned()));
    compare_with_golden("demo.info", &trace);
    let record = |file: &str| trace.split("end_of_record\n").find(|r| r.contains(&format!("SF:{file}\n"))).unwrap().to_string();
    let (demo, util) = (record(DEMO_SOURCE_FILE), record(UTIL_HEADER_FILE));
    assert!(demo.starts_with("TN:demo_run\n"));
    assert!(demo.contains("\nFNDA:1020003,classify\n") && demo.contains("\nFNDA:0,never\n") && demo.contains("\nDA:33,0\n"));
    assert!(util.contains("\nDA:5,1040000\n"), "inlined code counts at its own lines: {util}");
    assert!(demo.contains("\nBRDA:38,0,0,9\nBRDA:38,0,1,500\n"), "{demo}");
}

#[test]
fn dot_and_json_have_the_same_graph() {
    let profile = demo();
    let view = ProfileView::from_profile(&profile);
    let function = view.functions.iter().find(|f| f.name.full == "kind_of").unwrap();
    let counts = dot::ExecutionCountLabels { blocks: &function.paths.blocks, edges: &function.paths.edges };
    compare_with_golden("kind_of.dot", &dot::write_dot(function.unit_map(), function.map, Some(counts)));
    let graph = dot::graph_json(function.unit_map(), function.map, None);
    assert_eq!((graph["entry"].as_str(), graph["exit"].as_str()), (Some("b0"), Some("exit")));
    assert_eq!(graph["edges"][5], serde_json::json!(["b3", "exit"]));
    assert_eq!(graph["kinds"][0]["kind"], "case 97 'a', 98 'b'");
    let looping = view.functions.iter().find(|f| f.name.full == "classify").unwrap();
    assert!(dot::write_dot(looping.unit_map(), looping.map, None).contains("b7 -> b1 [label=\"T\", style=dashed];"));
}

#[test]
fn corrupt_functions_are_listed_and_the_others_are_reported() {
    let mut profile = demo();
    let unit = &mut profile.images[0].units[0];
    let map = std::sync::Arc::make_mut(&mut unit.map);
    map.functions[0].values[1] += 1;
    map.functions[1].dag[0] = trodden_flow::Origin::Real(trodden_flow::Edge(1000));
    let view = ProfileView::from_profile(&profile);
    let named = |name: &str| view.corrupt.iter().any(|d| d.contains(name));
    assert!(view.corrupt.len() == 2 && named("`classify`") && named("`kind_of`"), "{:?}", view.corrupt);
    let report = json::report(&view, &select_all(), &SourceCache::new(&sources)).unwrap();
    assert_eq!(report["damaged"].as_array().unwrap().len(), 2);
    assert_eq!(report["totals"]["functions_executed"], 4);
}
