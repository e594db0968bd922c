//! Compares the terminal report and annotated source with golden files.

use crate::support::demo::{HOSTILE_NAME, demo, sources};
use crate::support::{FunctionBuilder, UnitBuilder, compare_with_golden, profile};
use trodden_report::annotate::{AnnotateRequest, annotate};
use trodden_report::text::{TextOptions, report};
use trodden_report::{PathMeasure, PathSelection, ProfileView, ReportError, SourceCache};
use trodden_unit::{EdgeKind, SourcePosition};

fn render(selection: &PathSelection, options: &TextOptions) -> Result<String, ReportError> {
    let profile = demo();
    report(&ProfileView::from_profile(&profile), selection, &SourceCache::new(&sources), options)
}

fn render_annotated(function: &str, path: Option<u64>) -> Result<String, ReportError> {
    let profile = demo();
    let request = AnnotateRequest { function: function.into(), path, measure: PathMeasure::Instructions };
    annotate(&ProfileView::from_profile(&profile), &request, &SourceCache::new(&sources), &TextOptions::default())
}

#[test]
fn report_shows_all_paths_and_fits_narrow_terminals() {
    let all = PathSelection { top: 100, ..PathSelection::default() };
    compare_with_golden("report.txt", &render(&all, &TextOptions::default()).unwrap());
    let table = PathSelection { function: Some("table".into()), ..PathSelection::default() };
    compare_with_golden(
        "report-elided.txt",
        &render(&PathSelection { top: 2, ..table }, &TextOptions { steps: 7, ..TextOptions::default() }).unwrap(),
    );
    compare_with_golden(
        "report-narrow.txt",
        &render(&PathSelection { top: 3, ..all }, &TextOptions { width: 60, ..TextOptions::default() }).unwrap(),
    );
}

#[test]
fn colour_does_not_change_the_text() {
    let selection = PathSelection::default();
    let plain = render(&selection, &TextOptions::default()).unwrap();
    let coloured = render(&selection, &TextOptions { color: true, ..TextOptions::default() }).unwrap();
    compare_with_golden("report-colour.txt", &coloured);
    let stripped = regex_lite::Regex::new("\u{1b}\\[[0-9;]*m").unwrap().replace_all(&coloured, "").into_owned();
    assert_eq!(trim_lines(&stripped), trim_lines(&plain));
    assert!(!plain.contains('\u{1b}'), "the name of a function must not steer the terminal");
}

/// Removes trailing spaces, which may be inside coloured text.
fn trim_lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_end).collect()
}

#[test]
fn report_of_one_function_is_ordered_by_executions() {
    let selection = PathSelection { function: Some("classify".into()), measure: PathMeasure::Count, top: 1, min_share: 0.0 };
    compare_with_golden("report-classify.txt", &render(&selection, &TextOptions::default()).unwrap());
}

#[test]
fn functions_are_selected_by_name_or_pattern() {
    let selected = |text: &str| render(&PathSelection { function: Some(text.into()), ..PathSelection::default() }, &TextOptions::default());
    assert!(selected("demo::Queue::push").unwrap().contains("demo::Queue::push(int) is"));
    assert!(selected("^kind_").unwrap().contains("stopped at a call in lines 26-27"));
    let unknown = selected("clasify").unwrap_err().to_string();
    assert_eq!(unknown, "no instrumented function is called `clasify`; did you mean `classify`?");
    assert!(matches!(selected("(unclosed"), Err(ReportError::Pattern { .. })));
    assert!(selected(HOSTILE_NAME).is_ok());
}

#[test]
fn paths_below_the_minimum_share_are_left_out() {
    let selection = PathSelection { min_share: 0.1, ..PathSelection::default() };
    let profile = demo();
    let view = ProfileView::from_profile(&profile);
    let ranking = selection.rank(&view).unwrap();
    assert!(!ranking.paths.is_empty() && ranking.paths.iter().all(|p| p.share >= 0.1) && ranking.paths.len() < ranking.candidates);
    let all = PathSelection { top: usize::MAX, ..PathSelection::default() }.rank(&view).unwrap();
    assert!((all.share() - 1.0).abs() < 1e-3, "complete paths make up everything but unfinished ones: {}", all.share());
}

#[test]
fn hottest_path_is_marked_in_the_source() {
    compare_with_golden("annotate-classify.txt", &render_annotated("classify", None).unwrap());
}

#[test]
fn unfinished_path_is_marked_in_the_source() {
    let profile = demo();
    let view = ProfileView::from_profile(&profile);
    let id = view.functions.iter().find(|f| f.name.full == "kind_of").unwrap().paths.unfinished[0].id;
    compare_with_golden("annotate-unfinished.txt", &render_annotated("kind_of", Some(id)).unwrap());
}

#[test]
fn paths_that_were_not_executed_are_shown_as_such() {
    let profile = demo();
    let view = ProfileView::from_profile(&profile);
    let is_free = |f: &&trodden_report::view::Function, id: &u64| {
        let unfinished = f.paths.unfinished.iter().map(|p| p.id);
        f.paths.complete.iter().map(|p| p.id).chain(unfinished).all(|known| known != *id)
    };
    let mut shown = 0;
    for function in &view.functions {
        for id in (0..function.map.counters).filter(|id| is_free(&function, id)) {
            let Ok(text) = render_annotated(&function.name.full, Some(id)) else { continue };
            assert!(text.contains(&format!("path {id}: not executed, ")), "{text}");
            shown += 1;
        }
    }
    assert!(shown > 0);
}

#[test]
fn annotate_explains_what_is_missing() {
    assert!(render_annotated("blob", None).unwrap().contains("no debug information"));
    assert!(render_annotated("table", None).unwrap().contains("cannot read the source file /src/demo/generated.c"));
    assert!(render_annotated("never", None).unwrap().contains("no path was completed"));
    let wrong = render_annotated("kind_of", Some(99)).unwrap_err().to_string();
    assert!(wrong.contains("`kind_of` has no complete path 99: it has 4 paths") && wrong.contains("executed paths: 0, "), "{wrong}");
    assert!(render_annotated("e", None).unwrap().contains("note: `e` also matches"));
}

#[test]
fn inlined_code_without_branches_is_abridged() {
    let mut unit = UnitBuilder::new("deep.rs", &["/src/deep.rs", "/src/library.rs"]);
    let own = unit.add_scope("outer", 0, 1, None);
    let call = SourcePosition { scope: own, file: 0, line: 2, column: 5 };
    let hash = unit.add_scope("hash", 1, 40, Some(call));
    let inside = |line| SourcePosition { scope: hash, file: 1, line, column: 9 };
    let mix = unit.add_scope("mix", 1, 80, Some(inside(42)));
    let deeper: Vec<SourcePosition> = (81..=86).map(|line| SourcePosition { scope: mix, file: 1, line, column: 9 }).collect();
    let all = [&[call, inside(41)][..], &deeper].concat();
    let function = FunctionBuilder::new("outer", Some(call))
        .block(20, &all, Some(inside(50)))
        .block(1, &[inside(51)], None)
        .branch(0, 1, 1)
        .edge(1, None, EdgeKind::Return);
    let walker = unit.add(function);
    unit.walk(&walker, &[0, 1], true, 7);
    let profile = profile(vec![("/usr/bin/deep", vec![unit.build_unit_profile()])]);
    let view = ProfileView::from_profile(&profile);
    let page = |steps| {
        report(&view, &PathSelection::default(), &SourceCache::new(&sources), &TextOptions { steps, ..TextOptions::default() }).unwrap()
    };
    let (short, full) = (page(40), page(0));
    assert!(short.contains("↳ hash  in library.rs, called in line 2; 7 lines without a branch\n"), "{short}");
    assert!(short.contains("         50 │") && !short.contains("         83 │") && full.contains("         83 │"), "{short}{full}");
    assert!(full.contains("  ↳ mix  in library.rs, called in line 42\n"), "{full}");
}
