//! Lines whose optimised code was not executed, though they were: what the graph before the optimiser says of them.

mod support;

use support::{FunctionBuilder, UnitBuilder, profile};
use trodden_profile::Profile;
use trodden_report::lines::LineCounts;
use trodden_report::view::View;
use trodden_unit::{EdgeKind, LineBlock, LineGraph, Position};

fn block(lines: &[u32], next: &[u32]) -> LineBlock {
    LineBlock { lines: lines.to_vec(), next: next.to_vec(), may_end: true }
}

/// `f` of `f.c` is called ten times: lines 2 and 3, then either 4 (three times) or 6; 5 and 7 are behind both of them. Of lines 3, 6 and 7
/// code is left only in a branch to line 8, which is never executed.
fn example(graph: Vec<LineBlock>, returns: bool) -> Profile {
    let mut unit = UnitBuilder::new("f.c", &["f.c"]);
    let scope = unit.scope("f", 0, 1, None);
    let at = |line: u32| Position { scope, file: 0, line, column: 1 };
    let function = FunctionBuilder::new("f", Some(at(1)))
        .block(2, &[at(2)], Some(at(2)))
        .block(1, &[at(4)], None)
        .block(1, &[at(5)], None)
        .block(1, &[at(3), at(6), at(7), at(8)], None)
        .edge(0, 1, EdgeKind::Case(1))
        .edge(0, 2, EdgeKind::Case(2))
        .edge(0, 3, EdgeKind::Default)
        .edge(1, 2, EdgeKind::Always)
        .edge(2, None, EdgeKind::Return)
        .edge(2, None, EdgeKind::Reach)
        .edge(3, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 1, 2], true, 3);
    unit.walk(&walker, &[0, 2], true, 6);
    unit.walk(&walker, &[0, 2], returns, 1);
    unit.map.line_graphs.files = vec!["f.c".into()];
    unit.map.line_graphs.functions = vec![LineGraph { name: "f".into(), file: 0, line: 1, blocks: graph }];
    profile(vec![("f", vec![unit.finish()])])
}

fn lines(profile: &Profile) -> Vec<(u32, u64)> {
    let view = View::of(profile);
    let counts = LineCounts::of(&view.functions);
    counts.files["f.c"].lines.iter().map(|(line, count)| (*line, *count)).collect()
}

#[test]
fn lines_that_others_prove_to_be_executed_are_not_shown_as_0() {
    // Line 8 is an error's branch, at the end of line 6.
    let graph = || vec![block(&[2, 3], &[1, 2]), block(&[4], &[3]), block(&[6], &[3, 4]), block(&[5, 7], &[]), block(&[8], &[])];
    // Line 3 is in a block with line 2, line 7 with line 5; line 6 is where what did not go to line 4 went, so often is not known.
    assert_eq!(lines(&example(graph(), true)), [(1, 10), (2, 10), (3, 10), (4, 3), (5, 10), (7, 10), (8, 0)]);
    // Without the graph nothing is known of them.
    assert_eq!(lines(&example(Vec::new(), true)), [(1, 10), (2, 10), (3, 0), (4, 3), (5, 10), (6, 0), (7, 0), (8, 0)]);
}

#[test]
fn where_executions_end_in_calls_nothing_is_concluded_from_what_follows() {
    // The call may be in the block of line 2: then line 6 need not have been executed.
    let graph = vec![block(&[2, 3], &[1, 2]), block(&[4], &[3]), block(&[6], &[4]), block(&[5, 7], &[]), block(&[8], &[])];
    assert_eq!(lines(&example(graph.clone(), false)).iter().find(|(line, _)| *line == 6), Some(&(6, 0)));
    assert_eq!(lines(&example(graph, true)).iter().find(|(line, _)| *line == 6), None);
}

#[test]
fn functions_of_which_copies_differ_are_left_alone() {
    let mut profile = example(vec![block(&[2, 3, 4, 5, 6, 7], &[])], true);
    assert!(lines(&profile).iter().all(|(line, count)| *line == 8 || *count > 0));
    let map = std::sync::Arc::make_mut(&mut profile.images[0].units[0].map);
    map.line_graphs.functions.push(LineGraph { name: "f2".into(), file: 0, line: 1, blocks: vec![block(&[2], &[])] });
    assert!(lines(&profile).contains(&(3, 0)));
}
