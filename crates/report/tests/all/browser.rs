//! Tests the HTML page in a browser: clicks on functions and paths, search, sorting and keys. The page must send no requests, and text from
//! the program must not become markup.
//!
//! If `TRODDEN_SCREENSHOTS=FOLDER` is set, the tests write screenshots to that folder.

use crate::support::demo::{HOSTILE_NAME, demo, sources};
use crate::support::webdriver::Browser;
use crate::support::{FunctionBuilder, UnitBuilder, profile};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trodden_report::html::{HtmlOptions, page};
use trodden_report::{ProfileView, SourceCache};
use trodden_unit::EdgeKind;

fn create_test_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn texts(browser: &Browser, selector: &str) -> Vec<String> {
    let script = format!("return [...document.querySelectorAll({selector:?})].map((e) => e.textContent)");
    serde_json::from_value(browser.eval(&script)).unwrap()
}

fn attributes(browser: &Browser, selector: &str, name: &str) -> Vec<String> {
    let script = format!("return [...document.querySelectorAll({selector:?})].map((e) => e.getAttribute({name:?}))");
    serde_json::from_value(browser.eval(&script)).unwrap()
}

fn save_screenshot(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("TRODDEN_SCREENSHOTS") {
        std::fs::write(Path::new(&folder).join(format!("{name}.base64")), browser.screenshot()).unwrap();
    }
}

#[test]
fn page_reacts_to_clicks_search_and_keys() {
    let home = create_test_folder("clicks");
    let file = home.join("report.html");
    let profile = demo();
    std::fs::write(&file, page(&ProfileView::from_profile(&profile), &SourceCache::new(&sources), &HtmlOptions::default())).unwrap();
    let browser = Browser::start(&home);
    browser.open(&file);
    the_hottest_path_is_shown_first(&browser);
    clicking_a_path_selects_it(&browser);
    functions_are_searched_and_sorted(&browser);
    unfinished_paths_and_missing_sources_are_shown(&browser);
    keys_select_functions_and_the_theme(&browser);
    nodes_do_not_overlap(&browser);
    markup_in_names_is_shown_as_text(&browser);
    assert_eq!(browser.console(), Vec::<String>::new(), "no error, no refused request");
    assert_eq!(browser.eval("return performance.getEntriesByType('resource').length"), 0);
}

fn the_hottest_path_is_shown_first(browser: &Browser) {
    assert_eq!(browser.title(), "Paths of demo");
    assert_eq!(texts(browser, "#head h2"), ["classify"]);
    assert_eq!(texts(browser, ".fn .name")[..3], ["classify", "kind_of", "table"]);
    assert_eq!(attributes(browser, "#source .row.on[data-line]", "data-line"), ["7", "8", "9", "10", "13"]);
    assert_eq!(texts(browser, "#source .row.on.inlined .t"), ["          if (a < b)"]);
    assert_eq!(texts(browser, "#source .row[data-line='10'] .d"), ["→ 13, not 10:19"]);
    assert_eq!(texts(browser, "#source .row[data-line='8'] .d"), ["→ 9, not 15\n→ 9, not 15"]);
    assert_eq!(attributes(browser, "#graph .node.on", "data-block"), ["0", "1", "3", "6", "7"]);
    save_screenshot(browser, "hottest");
}

fn clicking_a_path_selects_it(browser: &Browser) {
    browser.click("#paths tr[data-path='2']");
    assert_eq!(attributes(browser, "#paths tr[aria-selected='true']", "data-path"), ["2"]);
    assert_eq!(attributes(browser, "#source .row.on[data-line]", "data-line"), ["7", "8", "9", "10", "11"]);
    assert_eq!(attributes(browser, "#graph .node.on", "data-block"), ["0", "1", "2", "3", "4", "5", "7"]);
    let edges =
        browser.eval("return [...document.querySelectorAll('#graph .edge.on')].map((e) => Number(e.dataset.edge)).sort((a, b) => a - b)");
    assert_eq!(edges, json!([0, 2, 4, 5, 7, 9, 11]));
    // The line with the branch of `smaller`, then its code, which is indented further.
    assert_eq!(texts(browser, "#source .row.on.inlined .t"), ["          if (a < b)", "              return a;"]);
    browser.click("#tab-listing");
    let listing = texts(browser, "#listing .t");
    assert_eq!(
        (listing.first().unwrap().as_str(), listing.last().unwrap().as_str()),
        ("begins at the function's entry", "back to loop head, line 9")
    );
    assert!(listing.iter().any(|t| t.contains("↳ smaller") && t.contains("in util.h, called in line 9")));
    save_screenshot(browser, "listing");
    browser.click("#graph .node[data-block='6']");
    assert_eq!(attributes(browser, "#source .row.flash", "data-line"), ["13"], "a block leads to its source");
}

fn functions_are_searched_and_sorted(browser: &Browser) {
    browser.type_into("#search", "queue push");
    assert_eq!(texts(browser, ".fn .name"), ["demo::Queue::push"]);
    assert!(texts(browser, "#shown")[0].starts_with("1 of 7 functions"));
    browser.click(".fn");
    assert_eq!(texts(browser, "#head h2"), ["demo::Queue::push(int)"]);
    assert_eq!(attributes(browser, "#source .row.on[data-line]", "data-line"), ["38", "40", "41"]);
    browser.type_into("#search", "\u{e00c}"); // Escape empties the search.
    browser.click("[data-sort='n']");
    assert_eq!(texts(browser, ".fn .name")[..3], ["blob", "classify", "demo::Queue::push"]);
    browser.click("[data-sort='p']");
    assert_eq!(texts(browser, ".fn .name")[0], "table");
    browser.click("[data-sort='w']");
}

fn unfinished_paths_and_missing_sources_are_shown(browser: &Browser) {
    browser.click(".fn[title='kind_of']");
    browser.click("#paths tr.unfinished");
    assert_eq!(attributes(browser, "#graph .node.on", "data-block"), ["0", "3"]);
    assert!(texts(browser, "#paths tr.unfinished td.text")[1].contains("stopped at a call in lines 26-27"));
    browser.click(".fn[title='table']");
    assert!(texts(browser, "#source")[0].contains("could not be read: /src/demo/generated.c"));
    assert_eq!(browser.eval("return document.getElementById('listing').hidden"), false, "without source, the listing is shown");
    save_screenshot(browser, "no-source");
    assert_eq!(browser.eval("return [1250, 12250, 1e4].map(brief)"), serde_json::json!(["1.25k", "12.2k", "10.0k"]));
    assert_eq!(browser.eval("return [1 / 16, 1 / 3, 5 / 16].map(percent)"), serde_json::json!(["6.2%", "33.3%", "31.2%"]));
    browser.click(".fn[title='never']");
    assert!(texts(browser, "#head")[0].contains("never executed"));
    assert_eq!(browser.eval("return document.querySelector('.panes').hidden"), true);
}

fn keys_select_functions_and_the_theme(browser: &Browser) {
    browser.click(".fn[title='classify']");
    browser.press("n");
    assert_eq!(attributes(browser, "#paths tr[aria-selected='true']", "data-path"), ["1"]);
    browser.press("j");
    assert_eq!(texts(browser, "#head h2"), ["kind_of"]);
    browser.press("k");
    let before = browser.eval("return document.documentElement.dataset.theme");
    browser.press("t");
    assert_ne!(browser.eval("return document.documentElement.dataset.theme"), before);
    save_screenshot(browser, "other-theme");
    let scale = "return document.querySelector('#graph svg > g').getAttribute('transform')";
    let fitted = browser.eval(scale);
    browser.press("+");
    assert_ne!(browser.eval(scale), fitted);
    browser.press("f");
    assert_eq!(browser.eval(scale), fitted);
    let hash = browser.eval("return location.hash");
    browser.eval("location.reload()");
    assert_eq!((browser.eval("return location.hash"), texts(browser, "#head h2")), (hash, vec!["classify".to_string()]));
}

fn nodes_do_not_overlap(browser: &Browser) {
    browser.click(".fn[title='table']");
    let boxes = browser.eval(
        "return [...document.querySelectorAll('#graph .node')].map((e) => { const r = e.getBoundingClientRect(); \
        return [r.left, r.top, r.right, r.bottom]; })",
    );
    let boxes: Vec<[f64; 4]> = serde_json::from_value(boxes).unwrap();
    assert_eq!(boxes.len(), 82);
    for (i, a) in boxes.iter().enumerate() {
        for b in &boxes[..i] {
            assert!(a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1], "{a:?} and {b:?} overlap");
        }
    }
    save_screenshot(browser, "large-graph");
}

fn markup_in_names_is_shown_as_text(browser: &Browser) {
    browser.eval("[...document.querySelectorAll('.fn')].find((e) => e.textContent.includes('</script>')).click()");
    let shown = HOSTILE_NAME.replace('\u{1b}', "\u{fffd}");
    assert_eq!(texts(browser, "#head h2"), [shown]);
    assert_eq!(browser.eval("return document.images.length"), 0);
    assert_eq!(browser.title(), "Paths of demo");
}

#[test]
fn page_with_many_functions_stays_small_and_says_what_it_leaves_out() {
    const FUNCTIONS: u32 = 5_000;
    let mut unit = UnitBuilder::new("many.c", &["/src/many.c"]);
    for i in 0..FUNCTIONS {
        let function = FunctionBuilder::new(&format!("function_{i}"), None).block(1 + i, &[], None).block(1, &[], None);
        let walker = unit.add(function.edge(0, 1, EdgeKind::Always).edge(1, None, EdgeKind::Return));
        unit.walk(&walker, &[0, 1], true, 1);
    }
    let profile = profile(vec![("/usr/bin/many", vec![unit.build_unit_profile()])]);
    let options = HtmlOptions { budget: 200_000, ..HtmlOptions::default() };
    let html = page(&ProfileView::from_profile(&profile), &SourceCache::new(&sources), &options);
    assert!(html.len() < 200_000 + 1_000_000, "{} bytes", html.len());
    let home = create_test_folder("many");
    let file = home.join("many.html");
    std::fs::write(&file, html).unwrap();
    let browser = Browser::start(&home);
    browser.open(&file);
    assert_eq!(texts(&browser, "#head h2"), [format!("function_{}", FUNCTIONS - 1)]);
    assert!(texts(&browser, "#shown")[0].contains("more were executed and are only listed"));
    let rows: Value = browser.eval("return document.querySelectorAll('.fn').length");
    assert!(rows.as_u64().unwrap() < 100, "invisible rows are not in the document");
    browser.type_into("#search", "function_17");
    browser.click(".fn[title='function_17']");
    assert!(texts(&browser, "#head")[0].contains("details left out of this page"));
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// The source file is in a folder with a long name. The path starts on line 150 and continues on line 5.
#[test]
fn page_fits_its_window_and_scrolls_to_the_beginning_of_the_path() {
    let home = create_test_folder("narrow");
    let file = home.join("report.html");
    let path = format!("/src/{}/far.c", "a_long_name_for_a_folder_".repeat(12));
    let mut unit = UnitBuilder::new("far.c", &[&path]);
    let own = unit.add_scope("far", 0, 1, None);
    let at = |line| trodden_unit::SourcePosition { scope: own, file: 0, line, column: 1 };
    let function = FunctionBuilder::new("far", Some(at(1))).block(2, &[at(150)], None).block(2, &[at(5)], None);
    let walker = unit.add(function.edge(0, 1, EdgeKind::Always).edge(1, None, EdgeKind::Return));
    unit.walk(&walker, &[0, 1], true, 3);
    let profile = profile(vec![("/usr/bin/far", vec![unit.build_unit_profile()])]);
    let text: String = (1..=200).map(|line| format!("    line{line}();\n")).collect();
    let sources = |wanted: &str| (wanted == path).then(|| text.clone());
    std::fs::write(&file, page(&ProfileView::from_profile(&profile), &SourceCache::new(&sources), &HtmlOptions::default())).unwrap();
    let browser = Browser::start(&home);
    for width in [480, 780, 880, 980, 1100, 1400] {
        browser.set_width(width);
        browser.open(&file);
        save_screenshot(&browser, &format!("narrow-{width}"));
        let wide = "const all = [...document.querySelectorAll('body, main, .detail, .head, .paths, .panes')]; return all.filter((e) => \
            e.scrollWidth > e.clientWidth + 1).map((e) => e.className || e.tagName)";
        assert_eq!(browser.eval(wide), json!([]), "at {width}");
        let seen = "const host = document.querySelector('#source').getBoundingClientRect(), row = document.querySelector('#source \
            [data-line=\"150\"]').getBoundingClientRect(); return row.top >= host.top && row.bottom <= host.bottom";
        assert_eq!(browser.eval(seen), true, "at {width}");
    }
    browser.check_widths_and_schemes();
}

/// Returns a profile of a function that has `tests` branches in a row, all executed, each on its own line of `wide.c`.
fn profile_with_branches(name: &str, tests: u32) -> trodden_profile::Profile {
    let mut unit = UnitBuilder::new("wide.c", &["/src/wide.c"]);
    let own = unit.add_scope("wide", 0, 1, None);
    let at = |line, column| trodden_unit::SourcePosition { scope: own, file: 0, line, column };
    let mut function = FunctionBuilder::new(name, Some(at(1, 1)));
    for i in 0..tests {
        function = function.block(2, &[at(2 + i, 5)], Some(at(2 + i, 9))).block(3, &[at(2 + i, 90)], None);
    }
    function = function.block(1, &[at(2 + tests, 1)], None);
    for i in 0..tests {
        function = function.branch(2 * i, 2 * i + 1, 2 * i + 2).edge(2 * i + 1, 2 * i + 2, EdgeKind::Always);
    }
    let walker = unit.add(function.edge(2 * tests, None, EdgeKind::Return));
    unit.walk(&walker, &(0..=2 * tests).collect::<Vec<_>>(), true, 3);
    profile(vec![("/usr/bin/wide", vec![unit.build_unit_profile()])])
}

/// The source of [`profile_with_branches`], with conditions that are wider than the pane.
fn wide_source(path: &str) -> Option<String> {
    let condition = "    if (first_condition(argument, index) && second_condition(argument, index) && last_condition) follow(argument);\n";
    (path == "/src/wide.c").then(|| format!("int wide(void)\n{}}}\n", condition.repeat(87)))
}

#[test]
fn fit_shows_a_large_function_and_no_condition_is_covered() {
    let home = create_test_folder("fit");
    let file = home.join("report.html");
    let profile = profile_with_branches("wide", 87);
    std::fs::write(&file, page(&ProfileView::from_profile(&profile), &SourceCache::new(&wide_source), &HtmlOptions::default())).unwrap();
    let browser = Browser::start(&home);
    browser.open(&file);
    assert!(texts(&browser, "#graph-note")[0].starts_with("175 blocks"), "{:?}", texts(&browser, "#graph-note"));
    let outside = "const host = document.querySelector('#graph').getBoundingClientRect(); return [...document.querySelectorAll('#graph \
        .node')].map((e) => e.getBoundingClientRect()).filter((r) => r.left < host.left || r.right > host.right || r.top < host.top || \
        r.bottom > host.bottom).length";
    assert_ne!(browser.eval(outside), 0, "at first the drawing is large enough to read");
    browser.press("f");
    assert_eq!(browser.eval(outside), 0, "all blocks are visible");
    browser.click("#zoom-in");
    browser.click("#fit");
    assert_eq!(browser.eval(outside), 0);
    for width in [480, 1400] {
        browser.set_width(width);
        let covered = "return [...document.querySelectorAll('#source .row')].filter((row) => { \
            const t = row.querySelector('.t'), d = row.querySelector('.d'); if (!d.textContent) return false; \
            const a = t.getBoundingClientRect(), b = d.getBoundingClientRect(), host = row.getBoundingClientRect(); \
            const apart = a.right <= b.left + 1 || a.bottom <= b.top + 1; \
            return !apart || t.scrollWidth > t.clientWidth || a.right > host.right + 1 || b.right > host.right + 1; }).length";
        assert_eq!(browser.eval(covered), 0, "at {width}");
        save_screenshot(&browser, &format!("conditions-{width}"));
    }
    assert_eq!(texts(&browser, "#share-heading"), ["share of instructions"]);
    let hint = attributes(&browser, "#share-heading", "title");
    assert_eq!(hint, ["percentage of all executed instructions of the program; not a share of time"]);
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn long_names_keep_their_ends() {
    let home = create_test_folder("names");
    let file = home.join("report.html");
    let long = "_ZN14regex_automata3nfa8thompson21pikevm_of_a_long_name6search4nextEi";
    let profile = profile_with_branches(long, 3);
    std::fs::write(&file, page(&ProfileView::from_profile(&profile), &SourceCache::new(&wide_source), &HtmlOptions::default())).unwrap();
    let browser = Browser::start(&home);
    browser.open(&file);
    let parts =
        browser.eval("return [...document.querySelectorAll('.fn .name span')].map((e) => [e.textContent, e.scrollWidth > e.clientWidth])");
    assert_eq!(parts[1], json!(["::next", false]), "{parts}");
    assert_eq!(parts[0][1], true, "the namespace is shortened: {parts}");
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// The page has ten thousand functions, whose details take all of its budget.
#[test]
fn a_large_page_opens_within_a_second() {
    const FUNCTIONS: u32 = 10_000;
    const BRANCHES: u32 = 6;
    let mut unit = UnitBuilder::new("many.c", &["/src/many.c"]);
    for i in 0..FUNCTIONS {
        let own = unit.add_scope(&format!("function_{i}"), 0, 1 + 10 * i, None);
        let at = |line| trodden_unit::SourcePosition { scope: own, file: 0, line: 1 + 10 * i + line, column: 5 };
        let mut function = FunctionBuilder::new(&format!("function_{i}"), Some(at(0)));
        for branch in 0..BRANCHES {
            function = function.block(3, &[at(1 + branch)], Some(at(1 + branch))).block(2, &[at(1 + branch)], None);
        }
        function = function.block(1, &[at(8)], None);
        for branch in 0..BRANCHES {
            let from = 2 * branch;
            function = function.branch(from, from + 1, from + 2).edge(from + 1, from + 2, EdgeKind::Always);
        }
        let walker = unit.add(function.edge(2 * BRANCHES, None, EdgeKind::Return));
        unit.walk(&walker, &(0..=2 * BRANCHES).collect::<Vec<_>>(), true, 1 + u64::from(i));
    }
    let profile = profile(vec![("/usr/bin/many", vec![unit.build_unit_profile()])]);
    let source = "    if (condition(first) || condition(second)) follow();\n".repeat(10 * FUNCTIONS as usize + 10);
    let sources = |path: &str| (path == "/src/many.c").then(|| source.clone());
    let html = page(&ProfileView::from_profile(&profile), &SourceCache::new(&sources), &HtmlOptions::default());
    assert!(html.len() > 13_700_000, "{} bytes", html.len());
    let home = create_test_folder("large");
    let file = home.join("large.html");
    std::fs::write(&file, html).unwrap();
    let browser = Browser::start(&home);
    // The minimum of three measurements is used, because other tests run at the same time.
    let quickest = (0..3).map(|_| {
        browser.open(&file);
        browser.eval("return performance.getEntriesByType('navigation')[0].loadEventEnd").as_f64().unwrap()
    });
    let quickest = quickest.fold(f64::INFINITY, f64::min);
    assert_eq!(texts(&browser, "#head h2"), [format!("function_{}", FUNCTIONS - 1)]);
    assert!(quickest < 1000.0, "opening takes {quickest} ms");
    browser.type_into("#search", "function_17");
    browser.click(".fn[title='function_17']");
    assert_eq!(texts(&browser, "#head h2"), ["function_17"]);
    assert_eq!(browser.console(), Vec::<String>::new());
}
