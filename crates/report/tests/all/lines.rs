//! Tests line counts for executed lines whose remaining optimised code was not executed. The graph before optimisation proves some of them
//! executed.

use crate::support::{FunctionBuilder, UnitBuilder, profile};
use trodden_profile::{DiffOptions, PathChange, Profile, diff};
use trodden_report::difference::{self, lines as difference_lines};
use trodden_report::lines::LineCounts;
use trodden_report::view::ProfileView;
use trodden_unit::{EdgeKind, LineBlock, LineGraph, SourcePosition};

fn block(lines: &[u32], next: &[u32]) -> LineBlock {
    LineBlock { lines: lines.to_vec(), next: next.to_vec(), may_end: true, ..LineBlock::default() }
}

/// Returns a profile of `f`, which is called ten times. Each call executes lines 2 and 3, then line 4 (in three calls) or 6, then lines 5
/// and 7. After optimisation, lines 3, 6 and 7 have code only on a branch to line 8, which is never executed.
fn profile_of_f(graph: Vec<LineBlock>, returns: bool) -> Profile {
    let mut unit = UnitBuilder::new("f.c", &["f.c"]);
    let scope = unit.add_scope("f", 0, 1, None);
    let at = |line: u32| SourcePosition { scope, file: 0, line, column: 1 };
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
    unit.map.line_graphs.functions = vec![LineGraph { name: "f".into(), file: 0, line: 1, blocks: graph, calls: Vec::new() }];
    profile(vec![("f", vec![unit.build_unit_profile()])])
}

fn line_counts(profile: &Profile) -> Vec<(u32, u64)> {
    let view = ProfileView::from_profile(profile);
    let counts = LineCounts::from_functions(&view.functions);
    counts.files.values().next().expect("a file").lines.iter().map(|(line, count)| (*line, *count)).collect()
}

#[test]
fn lines_that_must_have_been_executed_do_not_have_count_0() {
    // Line 8 is an error branch at the end of line 6.
    let graph = || vec![block(&[2, 3], &[1, 2]), block(&[4], &[3]), block(&[6], &[3, 4]), block(&[5, 7], &[]), block(&[8], &[])];
    // Line 3 is in a block with line 2, and line 7 is in a block with line 5. Line 6 is executed whenever line 4 is not, but its count is
    // unknown.
    assert_eq!(line_counts(&profile_of_f(graph(), true)), [(1, 10), (2, 10), (3, 10), (4, 3), (5, 10), (7, 10), (8, 0)]);
    // Without the graph, these lines have count 0.
    assert_eq!(line_counts(&profile_of_f(Vec::new(), true)), [(1, 10), (2, 10), (3, 0), (4, 3), (5, 10), (6, 0), (7, 0), (8, 0)]);
}

#[test]
fn executions_that_end_in_calls_prove_nothing_about_later_lines() {
    // The execution may have ended in a call in the block of line 2, so line 6 need not have been executed.
    let graph = vec![block(&[2, 3], &[1, 2]), block(&[4], &[3]), block(&[6], &[4]), block(&[5, 7], &[]), block(&[8], &[])];
    assert_eq!(line_counts(&profile_of_f(graph.clone(), false)).iter().find(|(line, _)| *line == 6), Some(&(6, 0)));
    assert_eq!(line_counts(&profile_of_f(graph, true)).iter().find(|(line, _)| *line == 6), None);
}

#[test]
fn functions_whose_copies_differ_are_not_corrected() {
    let mut profile = profile_of_f(vec![block(&[2, 3, 4, 5, 6, 7], &[])], true);
    assert!(line_counts(&profile).iter().all(|(line, count)| *line == 8 || *count > 0));
    let map = std::sync::Arc::make_mut(&mut profile.images[0].units[0].map);
    map.line_graphs.functions.push(LineGraph { name: "f2".into(), file: 0, line: 1, blocks: vec![block(&[2], &[])], calls: Vec::new() });
    assert!(line_counts(&profile).contains(&(3, 0)));
}

/// Returns the lines from 3 to 8 that have count 0 in a profile of `f`, whose graph before optimisation is `graph`. `f` is called ten times
/// and executes lines 2 and 9. Lines 3 to 8 have code that is not executed.
fn lines_with_count_0(graph: Vec<LineBlock>) -> Vec<u32> {
    let mut unit = UnitBuilder::new("g.c", &["g.c"]);
    let scope = unit.add_scope("f", 0, 1, None);
    let at = |line: u32| SourcePosition { scope, file: 0, line, column: 1 };
    let others: Vec<SourcePosition> = (3..9).map(at).collect();
    let function = FunctionBuilder::new("f", Some(at(1)))
        .block(2, &[at(2)], Some(at(2)))
        .block(1, &others, None)
        .block(1, &[at(9)], None)
        .edge(0, 1, EdgeKind::True)
        .edge(0, 2, EdgeKind::False)
        .edge(1, 2, EdgeKind::Always)
        .edge(2, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 2], true, 10);
    unit.map.line_graphs.files = vec!["g.c".into()];
    unit.map.line_graphs.functions = vec![LineGraph { name: "f".into(), file: 0, line: 1, blocks: graph, calls: Vec::new() }];
    let found = line_counts(&profile(vec![("g", vec![unit.build_unit_profile()])]));
    assert!(found.iter().all(|(line, count)| (*count == 0) == (3..9).contains(line)), "{found:?}");
    found.into_iter().map(|(line, _)| line).filter(|line| (3..9).contains(line)).collect()
}

#[test]
fn conditions_and_jumps_have_count_0_only_if_other_lines_prove_it() {
    let end = || block(&[9], &[]);
    // Line 3 is a statement, so its code proves that it was not executed. Line 4 is the condition after it.
    assert_eq!(
        lines_with_count_0(vec![block(&[2], &[1, 3]), block(&[3, 4], &[2, 3]), block(&[5, 6, 7, 8], &[3]), end()]),
        [3, 4, 5, 6, 7, 8]
    );
    // Line 3 is a condition, and nothing proves that it was not executed.
    assert_eq!(lines_with_count_0(vec![block(&[2], &[1, 3]), block(&[3], &[2, 3]), block(&[5, 6, 7, 8], &[3]), end()]), [4, 5, 6, 7, 8]);
    // Line 6 is in two blocks, and one of them may have been executed.
    assert_eq!(lines_with_count_0(vec![block(&[2], &[1, 2, 3]), block(&[6], &[3]), block(&[6, 5], &[3]), end()]), [3, 4, 5, 7, 8]);
    let jump = LineBlock { jump: Some(8), ..block(&[7], &[2]) };
    assert_eq!(lines_with_count_0(vec![block(&[2], &[1, 2]), jump, end()]), [3, 4, 5, 6, 7]);
}

#[test]
fn conditional_arms_have_count_0_only_if_the_expression_was_not_executed() {
    // Line 2 has a `? :` expression with its arms on lines 3 and 4.
    let arm = |line| LineBlock { jump: Some(2), ..block(&[line], &[3]) };
    assert_eq!(lines_with_count_0(vec![block(&[2], &[1, 2]), arm(3), arm(4), block(&[9], &[])]), [5, 6, 7, 8]);
    // The body of a loop also jumps to an earlier line, but it is not an arm of `? :`.
    let body = LineBlock { jump: Some(2), ..block(&[3], &[0]) };
    assert_eq!(lines_with_count_0(vec![block(&[2], &[1, 2]), body, block(&[9], &[])]), [3, 4, 5, 6, 7, 8]);
}

#[test]
fn line_that_is_the_only_continuation_must_have_been_executed() {
    // Line 2 leads to line 3 or 4. If line 3 stops the program (an error), line 4 must have been executed.
    let graph = |stops| {
        let error = LineBlock { stops, ..block(&[3], &[]) };
        vec![block(&[2], &[1, 2]), error, block(&[4], &[3]), block(&[9], &[])]
    };
    assert_eq!(lines_with_count_0(graph(true)), [3, 5, 6, 7, 8]);
    let returns = |next: &[u32]| vec![block(&[2], next), block(&[3], &[3]), block(&[4], &[3]), block(&[9], &[])];
    // Line 3 or line 4 must have been executed, but it is unknown which.
    assert_eq!(lines_with_count_0(returns(&[1, 2])), [5, 6, 7, 8]);
    assert_eq!(lines_with_count_0(returns(&[1, 2, 3])), [3, 4, 5, 6, 7, 8]);
}

/// Returns a profile of `f`, which was called five times, and `g`, which has no entries. `calls` are the calls that `f` makes in the graph
/// before optimisation.
fn profile_of_two_functions(calls: Vec<(u32, u32)>) -> Profile {
    let mut unit = UnitBuilder::new("h.c", &["h.c"]);
    let scope = unit.add_scope("f", 0, 1, None);
    let inner = unit.add_scope("g", 0, 10, None);
    let at = |scope: u32, line: u32| SourcePosition { scope, file: 0, line, column: 1 };
    let caller = unit.add(FunctionBuilder::new("f", Some(at(scope, 1))).block(1, &[at(scope, 2)], None).edge(0, None, EdgeKind::Return));
    let called = FunctionBuilder::new("g", Some(at(inner, 10))).block(2, &[at(inner, 11)], None).edge(0, None, EdgeKind::Return);
    let _ = unit.add(called);
    unit.walk(&caller, &[0], true, 5);
    unit.map.line_graphs.files = vec!["h.c".into()];
    let graph =
        |name: &str, line: u32, of: u32, calls| LineGraph { name: name.into(), file: 0, line, blocks: vec![block(&[of], &[])], calls };
    unit.map.line_graphs.functions = vec![graph("f", 1, 2, calls), graph("g", 10, 11, Vec::new())];
    profile(vec![("h", vec![unit.build_unit_profile()])])
}

#[test]
fn called_function_without_remaining_code_has_no_counts() {
    assert_eq!(line_counts(&profile_of_two_functions(Vec::new())), [(1, 5), (2, 5), (10, 0), (11, 0)]);
    let found = profile_of_two_functions(vec![(0, 1)]);
    assert_eq!(line_counts(&found), [(1, 5), (2, 5)]);
    let view = ProfileView::from_profile(&found);
    assert_eq!(LineCounts::from_functions(&view.functions).files["h.c"].functions.keys().map(|(line, _)| *line).collect::<Vec<_>>(), [1]);
}

#[test]
fn lines_after_a_call_that_did_not_return_are_not_counted() {
    let mut unit = UnitBuilder::new("k.c", &["k.c"]);
    let scope = unit.add_scope("f", 0, 1, None);
    let at = |line: u32| SourcePosition { scope, file: 0, line, column: 1 };
    let inner = unit.add_scope("g", 0, 20, Some(at(4)));
    let inlined = SourcePosition { scope: inner, file: 0, line: 21, column: 1 };
    // The call on line 3 may not return. After it come line 4, into which `g` is inlined, and line 5.
    let function = FunctionBuilder::new("f", Some(at(1)))
        .block(5, &[at(2), at(3), inlined, at(5)], Some(at(5)))
        .call_at(1)
        .edge(0, None, EdgeKind::Reach)
        .edge(0, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0], true, 4);
    unit.walk(&walker, &[0], false, 1);
    assert_eq!(
        line_counts(&profile(vec![("k", vec![unit.build_unit_profile()])])),
        [(1, 5), (2, 5), (3, 5), (4, 4), (5, 4), (20, 4), (21, 4)]
    );
}

/// Returns a profile of `f`, declared on line `first`, and `g`, declared ten lines below. `f` is called ten times and executes the line
/// after its declaration, and `rare` of these calls also execute the next line. `f` calls `g`, which executes one line. If `inlined` is
/// true, `g` has no code except in `f`.
fn profile_with_callee(first: u32, rare: u64, inlined: bool) -> Profile {
    let mut unit = UnitBuilder::new("m.c", &["m.c"]);
    let scope = unit.add_scope("f", 0, first, None);
    let at = |scope: u32, line: u32| SourcePosition { scope, file: 0, line: first + line, column: 1 };
    let inner = unit.add_scope("g", 0, first + 10, inlined.then(|| at(scope, 3)));
    let last: &[SourcePosition] = if inlined { &[at(inner, 11)] } else { &[at(scope, 3)] };
    let caller = FunctionBuilder::new("f", Some(at(scope, 0)))
        .block(2 + u32::from(inlined), &[at(scope, 1)], Some(at(scope, 1)))
        .block(1, &[at(scope, 2)], None)
        .block(1, last, None)
        .branch(0, 1, 2)
        .edge(1, 2, EdgeKind::Always)
        .edge(2, None, EdgeKind::Return);
    let caller = unit.add(caller);
    unit.walk(&caller, &[0, 1, 2], true, rare);
    unit.walk(&caller, &[0, 2], true, 10 - rare);
    if !inlined {
        let called = FunctionBuilder::new("g", Some(at(inner, 10))).block(1, &[at(inner, 11)], None).edge(0, None, EdgeKind::Return);
        let called = unit.add(called);
        unit.walk(&called, &[0], true, 10);
    }
    profile(vec![("m", vec![unit.build_unit_profile()])])
}

#[test]
fn functions_with_different_graphs_are_compared_by_lines() {
    let compare = |one: &Profile, other: &Profile, options: &DiffOptions| {
        let mut found = diff(("one", one), ("other", other), options).unwrap();
        let by_lines = difference_lines::compare(&ProfileView::from_profile(one), &ProfileView::from_profile(other), &mut found, options);
        (found, by_lines)
    };
    let options = DiffOptions { across_builds: true, ..DiffOptions::default() };
    let before = profile_with_callee(1, 4, false);
    // In the second profile, the function is further down in the file and `g` is inlined.
    let (found, by_lines) = compare(&before, &profile_with_callee(21, 4, true), &options);
    assert_eq!((found.compared, by_lines.compared, by_lines.functions.len()), (0, 2, 0), "{by_lines:?}");
    assert!(found.only_before.is_empty() && found.only_after.is_empty(), "{found:?}");
    let after = profile_with_callee(21, 6, true);
    let (found, by_lines) = compare(&before, &after, &options);
    let [function] = &by_lines.functions[..] else { panic!("{by_lines:?}") };
    assert_eq!((&*function.name, function.calls, function.compared), ("f", (10, 10), 4));
    let [line] = &function.lines[..] else { panic!("{function:?}") };
    assert_eq!((line.lines, line.counts, line.per_call, line.change), ((3, 23), (4, 6), (0.4, 0.6), PathChange::Share));
    let text = difference::text(&found, &by_lines, 2, 10);
    assert!(text.contains("2 functions with different graphs compared by source lines, 1 differ\n\nf  (m.c; called 10 -> 10)"), "{text}");
    assert!(text.contains("  share     line 23              4 -> 6             0.40 -> 0.60    per call\n"), "{text}");
    let json = difference::json(&found, &by_lines);
    assert_eq!(json["by_lines"]["functions"][0]["lines"][0]["counts"], serde_json::json!(["4", "6"]));
    let (_, few) = compare(&before, &after, &DiffOptions { min_function_share: 0.3, ..options.clone() });
    assert!(few.functions.is_empty() && few.compared == 2);
    let (_, gone) = compare(&profile_with_callee(1, 0, false), &after, &options);
    assert_eq!((gone.functions[0].lines[0].change, gone.functions[0].lines[0].counts), (PathChange::Appeared, (0, 6)));
    // Functions with equal graphs are compared by paths.
    let (found, by_lines) = compare(&before, &profile_with_callee(1, 6, false), &options);
    assert_eq!((found.compared, found.functions.len(), by_lines.compared), (2, 1, 0));
}
