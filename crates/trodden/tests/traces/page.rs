//! Tests a trace's HTML page in a real browser: clicks on calls, search, threads, source code and machine code. The page must load nothing
//! from other servers.
//!
//! If `TRODDEN_SCREENSHOTS=FOLDER` is set, the tests write screenshots to this folder.

use crate::webdriver::Browser;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn create_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-page-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run_trodden(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
    let output = command.current_dir(folder).stdin(Stdio::null()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn compile_program(folder: &Path, text: &str) {
    std::fs::write(folder.join("app.c"), text).unwrap();
    let arguments = ["-O1", "-g", "-fno-inline", "app.c", "-o", "app", "-pthread"];
    assert!(Command::new("cc").current_dir(folder).args(arguments).status().unwrap().success());
}

fn read_text(browser: &Browser, selector: &str) -> String {
    browser.eval(&format!("return document.querySelector({selector:?}).innerText")).as_str().unwrap().to_owned()
}

fn read_texts(browser: &Browser, selector: &str) -> Vec<String> {
    serde_json::from_value(browser.eval(&format!("return [...document.querySelectorAll({selector:?})].map((e) => e.textContent)"))).unwrap()
}

fn take_picture(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("TRODDEN_SCREENSHOTS") {
        std::fs::write(Path::new(&folder).join(format!("{name}.base64")), browser.screenshot()).unwrap();
    }
}

fn export_and_open(folder: &Path, trace: &str, options: &[&str]) -> Browser {
    let file = folder.join("page.html");
    std::fs::write(&file, run_trodden(folder, &[&["export", "html", trace], options].concat())).unwrap();
    let browser = Browser::start(&folder.join("browser"));
    browser.open(&file);
    browser
}

fn check_no_errors(browser: &Browser) {
    assert_eq!(browser.console(), Vec::<String>::new(), "no error, no refused request");
    assert_eq!(browser.eval("return performance.getEntriesByType('resource').length"), 0);
}

const NESTED_PROGRAM: &str = r#"
#include <stdio.h>
static volatile int n;
static void leaf(int i) { if (i & 1) n += i; else n -= i; }
static void middle(int i) { for (int k = 0; k < i; k++) leaf(k); }
static void outer(void) { for (int i = 0; i < 40; i++) middle(i); }
static void noise(void) { for (int i = 0; i < 9; i++) leaf(i); }
int main(void) { noise(); outer(); puts("</script><b>done</b>"); return 0; }
"#;

/// Zooms in with a double click on a call and with a key, and zooms out again.
fn check_zoom(browser: &Browser) {
    let size = |browser: &Browser| browser.eval("return state.to - state.from").as_f64().unwrap();
    browser.click("#whole");
    let whole = size(browser);
    browser.click("[data-tab=source]");
    browser.eval(
        "const i = calls().function.findIndex((f) => f >= 0 && functionName(f) === 'outer'); const w = canvas.clientWidth / end(); \
        pressed((calls().from[i] + 5) * w + 1, calls().depth[i] * ROW + 5, ['click', 'dblclick'])",
    );
    assert_eq!(read_text(browser, "#name"), "outer");
    assert!(size(browser) < whole);
    take_picture(browser, "trace-outer");
    browser.eval("canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '+' }))");
    let nearer = size(browser);
    browser.click("#whole");
    assert!(nearer < size(browser));
}

#[test]
fn readers_click_through_the_calls() {
    let home = create_folder("calls");
    compile_program(&home, NESTED_PROGRAM);
    run_trodden(&home, &["trace", "record", "--runs", "2", "--output", "t.trace", "--", "./app", "</script>"]);
    let browser = export_and_open(&home, "t.trace", &[]);
    assert_eq!(browser.title(), "Trace of ./app </script>");
    assert!(read_text(&browser, "#headline").contains("from 2 runs with trampolines"), "{}", read_text(&browser, "#headline"));
    // The outermost call is drawn in the middle of the first line.
    browser.eval(
        "const c = document.getElementById('calls'); window.pressed = (x, y, kind) => { const b = c.getBoundingClientRect(); \
        for (const type of kind) c.dispatchEvent(new MouseEvent(type, { clientX: b.left + x, clientY: b.top + y, bubbles: true })); }",
    );
    browser.eval("pressed(document.getElementById('calls').clientWidth / 2, 8, ['click'])");
    assert_eq!(read_text(&browser, "#name"), "_start");
    // The search lists matching functions and marks their calls.
    browser.type_into("#search", "leaf");
    assert_eq!(read_texts(&browser, "#matches button"), ["leaf (789 calls)"]);
    browser.click("#next");
    assert_eq!((read_text(&browser, "#name"), read_text(&browser, "#found")), ("leaf".to_owned(), "call 1 of 789".to_owned()));
    assert_eq!(read_texts(&browser, "#stack button").last().unwrap(), "noise");
    browser.click("#previous");
    assert_eq!(read_text(&browser, "#found"), "call 789 of 789");
    assert_eq!(read_texts(&browser, "#stack button").iter().rev().take(3).collect::<Vec<_>>(), ["middle", "outer", "main"]);
    take_picture(&browser, "trace-leaf");
    // Selecting the caller shows the lines executed by this call. The last call to `middle` calls `leaf` 39 times.
    browser.eval("[...document.querySelectorAll('#stack button')].at(-1).click()");
    assert_eq!(read_text(&browser, "#name"), "middle");
    let executed = read_texts(&browser, "#body .executed");
    assert!(
        executed.iter().any(|l| l.starts_with("39") || l.starts_with("40")) && executed[0].contains("static void middle"),
        "{executed:?}"
    );
    browser.click("[data-tab=order]");
    assert_eq!(read_texts(&browser, "#body button").len(), 39, "{:?}", read_texts(&browser, "#body button"));
    browser.click("#body button");
    assert_eq!(read_text(&browser, "#name"), "leaf");
    browser.click("[data-tab=code]");
    let code = read_texts(&browser, "#body .row");
    assert!(code.iter().any(|l| l.contains("ret")) && code.iter().any(|l| l.contains("block 0x")), "{code:?}");
    browser.click("[data-tab=callees]");
    assert!(read_text(&browser, "#body").contains("makes no traced calls"), "{}", read_text(&browser, "#body"));
    take_picture(&browser, "trace-code");
    check_zoom(&browser);
    browser.check_widths_and_schemes();
    check_no_errors(&browser);
}

#[test]
fn ignored_functions_are_left_out_of_every_export() {
    let home = create_folder("left-out");
    compile_program(&home, NESTED_PROGRAM);
    run_trodden(&home, &["trace", "record", "--runs", "2", "--output", "t.trace", "--", "./app"]);
    let export =
        |form: &str, options: &[&str]| String::from_utf8(run_trodden(&home, &[&["export", form, "t.trace"], options].concat())).unwrap();
    let folded = |options: &[&str]| -> u64 {
        let all = export("folded", options);
        all.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let lines = String::from_utf8(run_trodden(&home, &["export", "addresses", "t.trace"])).unwrap().lines().count() as u64;
    assert_eq!(folded(&[]), lines);
    assert!(!export("folded", &["--ignore", "leaf"]).contains("leaf"));
    assert!(folded(&["--ignore", "outer"]) < lines / 2);
    let chrome: Value = serde_json::from_str(&export("chrome", &["--ignore", "app.c"])).unwrap();
    let names: Vec<&str> = chrome["traceEvents"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"_start") && !names.contains(&"main"), "{names:?}");
    let page = export("html", &["--ignore", "leaf"]);
    assert!(page.contains("middle") && !page.contains("\"leaf\""));
}

const THREADS_PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
static int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += i & 3 ? i : -i; return s; }
static void *run(void *p) { return (void *)(long)work((int)(long)p); }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, run, (void *)10L);
    pthread_join(t, 0);
    return 0;
}
"#;

#[test]
fn readers_select_a_thread() {
    let home = create_folder("threads");
    compile_program(&home, THREADS_PROGRAM);
    run_trodden(&home, &["trace", "record", "--runs", "1", "--output", "t.trace", "--", "./app"]);
    let browser = export_and_open(&home, "t.trace", &[]);
    assert_eq!(read_texts(&browser, "#thread option").len(), 2);
    browser.type_into("#search", "work");
    assert_eq!(read_texts(&browser, "#matches button"), Vec::<String>::new());
    browser.eval("const t = document.getElementById('thread'); t.value = 1; t.dispatchEvent(new Event('change'))");
    assert_eq!(read_texts(&browser, "#matches button"), ["work (1 call)"]);
    browser.click("#matches button");
    assert_eq!((read_text(&browser, "#name"), read_texts(&browser, "#stack button")), ("work".to_owned(), vec!["run".to_owned()]));
    check_no_errors(&browser);
}

#[test]
fn stripped_programs_are_shown_as_machine_code() {
    let home = create_folder("stripped");
    std::fs::write(home.join("text"), "pack my box with five dozen jugs\n").unwrap();
    run_trodden(&home, &["trace", "record", "--output", "t.trace", "--", "/usr/bin/gzip", "-c", "text"]);
    let browser = export_and_open(&home, "t.trace", &[]);
    browser.type_into("#search", "main");
    browser.click("#matches button");
    assert_eq!(read_text(&browser, "#name"), "main");
    assert!(read_text(&browser, "#body").contains("no line numbers"), "{}", read_text(&browser, "#body"));
    browser.click("[data-tab=code]");
    assert!(read_texts(&browser, "#body .row.executed").len() > 50);
    take_picture(&browser, "trace-stripped");
    check_no_errors(&browser);
}
