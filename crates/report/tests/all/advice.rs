//! Tests advice in each format, for a function with a finding of each kind.

use crate::support::{FunctionBuilder, UnitBuilder, compare_with_golden, profile};
use serde_json::Value;
use trodden_analysis::advise::{AdviceKind, AdviseOptions};
use trodden_flow::Node;
use trodden_profile::Profile;
use trodden_report::advice::{AdviceSelection, json, sarif, text};
use trodden_report::text::TextOptions;
use trodden_report::{ProfileView, SourceCache};
use trodden_unit::properties::*;
use trodden_unit::{EdgeKind, SourcePosition};

const SOURCE: &str = "\
int scan(const char *at, struct state *s)
{
    for (; *at; at++) {
        if (*at == ' ')
            s->blanks++;
        else
            s->letters++;
        if (s->quoted)
            keep(s);
        else if (s->blanks > s->limit)
            drop(s);
        else
            note(s);
        if (s->word)
            push(s);
    }
    return s->letters;
}
";

/// A function with a loop that has four branches. The first branch decides the second one, and no iteration executes both `note` and
/// `push`.
fn loop_profile() -> Profile {
    let mut unit = UnitBuilder::new("scan.c", &["/src/scan.c"]);
    let scope = unit.add_scope("scan", 0, 1, None);
    let at = |line: u32| SourcePosition { scope, file: 0, line, column: 9 };
    let block = |f: FunctionBuilder, line: u32, branch: bool| f.block(3, &[at(line)], branch.then(|| at(line)));
    let mut function = FunctionBuilder::new("scan", Some(at(1)));
    for (line, branch) in [
        (3, true),
        (4, true),
        (5, false),
        (7, false),
        (8, true),
        (9, false),
        (10, true),
        (11, false),
        (13, false),
        (14, true),
        (15, false),
        (17, false),
    ] {
        function = block(function, line, branch);
    }
    let function = function
        .branch(0, 1, 11)
        .branch(1, 2, 3)
        .edge(2, 4, EdgeKind::Always)
        .edge(3, 4, EdgeKind::Always)
        .branch(4, 5, 6)
        .edge(5, 9, EdgeKind::Always)
        .branch(6, 7, 8)
        .edge(7, 9, EdgeKind::Always)
        .edge(8, 9, EdgeKind::Always)
        .branch(9, 10, 0)
        .edge(10, 0, EdgeKind::Always)
        .edge(11, None, EdgeKind::Return);
    let walker = unit.add(function);
    let iterations: [(&[u32], u64); 5] = [
        (&[0, 1, 2, 4, 5, 9], 4),
        (&[0, 1, 3, 4, 6, 7, 9, 10], 4),
        (&[0, 1, 3, 4, 6, 8, 9], 1),
        (&[0, 1, 2, 4, 5, 9, 10], 2),
        (&[0, 1, 3, 4, 6, 7, 9], 3),
    ];
    let mut walk: Vec<u32> = iterations.iter().flat_map(|(blocks, times)| blocks.repeat(*times as usize)).collect();
    walk.extend([0, 11]);
    unit.walk(&walker, &walk, true, 1000);
    profile(vec![("/usr/bin/scan", vec![unit.build_unit_profile()])])
}

/// The function's memory accesses. Line 8 loads the same value as line 4. Line 14 loads it too, but in half of the executions a write
/// intervenes.
fn properties() -> UnitProperties {
    let access = AccessedMemory { address: ValueId(0), size: 4, class: None };
    let load = |result: u32, line: u32| {
        let what = BlockAction::Load { result: ValueId(result), operation: OperationId(0), access, constant: false };
        BlockStep { what, position: Some(SourcePosition { scope: 0, file: 0, line, column: 9 }) }
    };
    let mut blocks = vec![InstructionProperties::default(); 12];
    blocks[1].steps.push(load(1, 4));
    blocks[4].steps.push(load(2, 8));
    blocks[7].steps.push(BlockStep { what: BlockAction::Clobber, position: None });
    blocks[9].steps.push(load(3, 14));
    let values = vec![ValueProperties { kind: ValueKind::Other, object: None }; 4];
    let functions = vec![FunctionProperties { name: "scan".into(), values, blocks }];
    UnitProperties {
        version: PROPERTIES_VERSION,
        files: Vec::new(),
        scopes: Vec::new(),
        operations: vec!["load i32".into()],
        classes: Vec::new(),
        functions,
    }
}

fn sources(path: &str) -> Option<String> {
    (path == "/src/scan.c").then(|| SOURCE.to_string())
}

fn wanted() -> AdviceSelection {
    AdviceSelection { min_share: 0.0, options: AdviseOptions { decided: 0.99, min_count: 100 }, ..AdviceSelection::default() }
}

fn render(options: &TextOptions) -> String {
    let (profile, properties) = (loop_profile(), properties());
    let view = ProfileView::from_profile(&profile);
    let advice = wanted().advise(&view, &|_| Some((&properties, &properties.functions[0]))).unwrap();
    text::write_advice(&view, &wanted(), &advice, &SourceCache::new(&sources), options)
}

#[test]
fn terminal_output_has_the_same_text_with_and_without_colour() {
    let plain = render(&TextOptions::default());
    compare_with_golden("advice.txt", &plain);
    let coloured = render(&TextOptions { color: true, ..TextOptions::default() });
    compare_with_golden("advice-colour.txt", &coloured);
    let stripped = regex_lite::Regex::new("\u{1b}\\[[0-9;]*m").unwrap().replace_all(&coloured, "").into_owned();
    let trimmed = |text: &str| text.lines().map(|l| l.trim_end().to_string()).collect::<Vec<_>>();
    assert_eq!(trimmed(&stripped), trimmed(&plain));
    assert!(render(&TextOptions { width: 60, ..TextOptions::default() }).lines().all(|l| l.chars().count() <= 60));
}

#[test]
fn json_and_sarif_have_the_same_findings() {
    let (profile, properties) = (loop_profile(), properties());
    let view = ProfileView::from_profile(&profile);
    let advice = wanted().advise(&view, &|_| Some((&properties, &properties.functions[0]))).unwrap();
    let value = json::advice_json(&view, &advice, &SourceCache::new(&sources));
    compare_with_golden("advice.json", &format!("{}\n", serde_json::to_string_pretty(&value).unwrap()));
    let log = sarif::write_advice(&advice, &SourceCache::new(&sources));
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), value["findings"].as_array().unwrap().len());
    assert!(results.iter().all(|r| r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///src/scan.c"));
    let kinds = |v: &Value, key: &str| v.as_array().unwrap().iter().map(|f| f[key].as_str().unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(kinds(&log["runs"][0]["results"], "ruleId"), kinds(&value["findings"], "kind"));
}

#[test]
fn selection_limits_the_findings() {
    let (profile, properties) = (loop_profile(), properties());
    let view = ProfileView::from_profile(&profile);
    let count = |wanted: AdviceSelection| {
        let advice = wanted.advise(&view, &|_| Some((&properties, &properties.functions[0]))).unwrap();
        (advice.savings.len(), advice.others.len(), advice.found)
    };
    let (savings, others, found) = count(wanted());
    assert!(savings >= 3 && others >= 1 && found == (savings, others));
    assert_eq!(count(AdviceSelection { kinds: vec![AdviceKind::Redundant], ..wanted() }), (1, 0, (1, 0)));
    assert_eq!(count(AdviceSelection { top: 1, ..wanted() }), (1, 1, found));
    assert_eq!(count(AdviceSelection { min_share: 0.99, ..wanted() }).0, 0);
    let without = wanted().advise(&view, &|_| None).unwrap();
    assert_eq!((without.without_bitcode.len(), without.savings.len()), (1, savings - 1));
    assert!(AdviceSelection { function: Some("other".into()), ..wanted() }.advise(&view, &|_| None).is_err());
    assert_eq!(view.functions[0].map.blocks.len() as u32, Node(12).0);
}
