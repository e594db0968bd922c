//! Every output marks the functions whose counts `trodden coverage` cannot determine completely, and no other functions.

use crate::place::{Place, cargo_trodden, must, trodden};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A function marked as inexact: its name, its first line, and the reason.
type Mark<'t> = (&'t str, u64, &'t str);

const LEVELS: [&str; 3] = ["-O0", "-O1", "-O2"];

fn read_output(place: &Place, arguments: &str) -> String {
    String::from_utf8(place.trodden(arguments).stdout).unwrap()
}

fn read_messages(place: &Place, arguments: &str) -> String {
    String::from_utf8(place.trodden(arguments).stderr).unwrap()
}

fn read_json(place: &Place, arguments: &str) -> Value {
    serde_json::from_str(&read_output(place, arguments)).unwrap()
}

fn build_and_record(name: &str, source: &str, options: &str) -> Place {
    let place = Place::with(&[(name, source)]);
    place.cc(&format!("--trodden=coverage -w {options} {name} -o own"));
    place.trodden("record --no-store -o run.trodden -- ./own");
    place
}

fn count_lines(place: &Place) -> BTreeMap<u64, u64> {
    let lcov = read_output(place, "export lcov run.trodden");
    let lines = lcov.lines().filter_map(|line| line.strip_prefix("DA:")?.split_once(','));
    lines.map(|(line, count)| (line.parse().unwrap(), count.parse().unwrap())).collect()
}

fn text_of_reason(reason: &str) -> &'static str {
    match reason {
        "fork" => "several processes continued it",
        "tail-call" => "counts after its calls assume that they returned: the last call is a jump",
        "returned-twice" => "a call returned twice",
        "rust-branch" => "counts after its calls assume that they returned: code after a branch",
        other => panic!("{other}"),
    }
}

fn find_marks(list: &Value) -> BTreeSet<(String, u64, String)> {
    let text = |mark: &Value, key: &str| mark[key].as_str().unwrap().to_owned();
    let marks = list.as_array().unwrap().iter();
    marks.map(|mark| (text(mark, "function"), mark["line"].as_u64().unwrap(), text(mark, "reason"))).collect()
}

fn check_marks(place: &Place, source: &str, expected: &[Mark], context: &str) {
    let of_export = read_json(place, "export llvm-json run.trodden");
    let wanted: BTreeSet<_> = expected.iter().map(|(function, line, reason)| (function.to_string(), *line, reason.to_string())).collect();
    assert_eq!(find_marks(&of_export["not_exact"]), wanted, "{context}");
    for row in of_export["not_exact"].as_array().unwrap() {
        assert!(
            row["file"].as_str().unwrap().ends_with(source)
                && row["text"].as_str().unwrap().starts_with(text_of_reason(row["reason"].as_str().unwrap()))
        );
    }
    let rows = |options: &str| read_json(place, &format!("coverage report run.trodden --json {options}"))["rows"].take();
    let of_rows = |rows: &Value| rows.as_array().unwrap().iter().flat_map(|row| find_marks(&row["not_exact"])).collect::<BTreeSet<_>>();
    assert_eq!((of_rows(&rows("")), of_rows(&rows("--functions"))), (wanted.clone(), wanted.clone()), "{context}");
    let is_at_its_row = |row: &Value| find_marks(&row["not_exact"]).iter().all(|(function, ..)| row["name"] == function.as_str());
    assert!(rows("--functions").as_array().unwrap().iter().all(is_at_its_row), "{context}");

    let (files, functions) =
        (read_output(place, "coverage report run.trodden"), read_output(place, "coverage report run.trodden --functions"));
    let shown = read_output(place, "coverage show run.trodden");
    place.trodden("coverage show run.trodden --html pages");
    let page = read_page(&place.path("pages/coverage"), source);
    let paths = std::fs::read_to_string(place.path("pages/paths.html")).unwrap();
    for (function, line, reason) in expected {
        let words = text_of_reason(reason);
        assert!(files.contains(&format!("\n    not exact: {function} ({line}): {words}")), "{context}\n{files}");
        assert!(
            is_remark_after(&functions, |l| l.starts_with(&format!("{function} ")), &format!("    not exact: {words}")),
            "{context}\n{functions}"
        );
        let is_line = |l: &str| l.trim_start().starts_with(&format!("{line}|"));
        assert!(is_remark_after(&shown, is_line, &format!("  |  Not exact ({function}): {words}")), "{context}\n{shown}");
        let row = page.split("<tr>").find(|row| row.contains(&format!("href='#L{line}'><pre>"))).unwrap();
        assert!(row.contains(&format!("Not exact ({function}): {words}")), "{context}\n{row}");
        assert!(paths.contains(&format!("<div>not exact: {function} ({line}): {words}")), "{context}");
    }
    let number = |text: &str, what: &str| text.matches(what).count();
    let all = expected.len();
    assert_eq!([&files, &functions, &shown, &page].map(|text| number(&text.to_lowercase(), "not exact")), [all; 4], "{context}");
    assert_eq!(number(&paths, "not exact"), 2 * all, "{context}");

    let note = read_messages(place, "export lcov run.trodden");
    let is_noted =
        expected.iter().any(|(function, _, reason)| note.contains(&format!("{function}: not exact: {}", text_of_reason(reason))));
    assert_eq!((is_noted, note.contains("not exact")), (all > 0, all > 0), "{context} {note}");
    assert_eq!(note.contains(&format!("(and {} more;", all.saturating_sub(1))), all > 1, "{context} {note}");
    check_like_llvm(place);
}

/// Checks that nothing is marked with `--like llvm-cov`, because the counts are then those of LLVM.
fn check_like_llvm(place: &Place) {
    for command in
        ["export llvm-json", "export lcov", "coverage show", "coverage report", "coverage report --functions", "coverage report --json"]
    {
        let output = place.trodden(&format!("{command} run.trodden --like llvm-cov"));
        let all = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap().to_lowercase()).concat();
        assert!(!all.contains("not exact") && !all.contains("\"not_exact\":[{") && !all.contains("\"reason\""), "{command}: {all}");
    }
}

/// Returns true if `text` follows a line selected by `is_line`, with only remarks in between.
fn is_remark_after(all: &str, is_line: impl Fn(&str) -> bool, text: &str) -> bool {
    let rest = all.lines().skip_while(|line| !is_line(line)).skip(1);
    rest.take_while(|line| line.starts_with("  ") && !line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .any(|line| line.starts_with(text))
}

/// Returns the HTML page of a source. The page is somewhere below `folder`.
fn read_page(folder: &std::path::Path, source: &str) -> String {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else if entry.ends_with(format!("{source}.html")) {
                return std::fs::read_to_string(entry).unwrap();
            }
        }
    }
    panic!("no page of {source}")
}

/// The function that forks must be marked, as must the functions inlined into it before the fork, and the callers to which both processes
/// return.
#[test]
fn functions_continued_by_several_processes_are_marked() {
    const FORK_PROGRAM: &str = "#include <sys/wait.h>\n#include <unistd.h>\nstatic volatile int sum;\nstatic inline void prepare(int n) \
        {\n  \
        sum += n;\n}\n__attribute__((noinline)) static void alone(int n) {\n  sum += n;\n}\n\
        __attribute__((noinline)) static int divide(int n) {\n  prepare(n);\n  if (fork() == 0)\n    sum++;\n  else\n    wait(0);\n  \
        return sum;\n}\n__attribute__((noinline)) static int through(int n) {\n  alone(n);\n  return divide(n) + 1;\n}\n\
        int main(void) {\n  alone(2);\n  int got = through(3);\n  alone(got);\n  _exit(0);\n}\n";
    for level in LEVELS {
        let place = build_and_record("fork.c", FORK_PROGRAM, level);
        let (divide, through, main) = (("divide", 10, "fork"), ("through", 18, "fork"), ("main", 22, "fork"));
        let expected = if level == "-O0" { vec![divide, through, main] } else { vec![("prepare", 4, "fork"), divide, through, main] };
        check_marks(&place, "fork.c", &expected, level);
        // Line 8 is executed by `main` and `through` before the fork, and by each process after it.
        let lines = count_lines(&place);
        assert_eq!([8, 13, 15, 23].map(|line| lines[&line]), [4, 1, 1, 2], "{level}");
    }
}

/// A callee forks in a loop. The child executes a different program, and the parent continues alone.
#[test]
fn children_that_do_not_return_to_the_function_cause_no_mark() {
    const EXECUTE_PROGRAM: &str = "#include <sys/wait.h>\n#include <unistd.h>\nstatic volatile int sum;\n\
        __attribute__((noinline)) static void start(void) {\n  if (fork() == 0) {\n    execl(\"/bin/true\", \"true\", (char *)0);\n    \
        _exit(1);\n  }\n  wait(0);\n}\nint main(void) {\n  for (int i = 0; i < 3; i++) {\n    start();\n    sum++;\n  }\n  return 0;\n}\n";
    for level in LEVELS {
        let place = build_and_record("execute.c", EXECUTE_PROGRAM, level);
        check_marks(&place, "execute.c", &[("start", 4, "fork")], level);
        let lines = count_lines(&place);
        assert_eq!([6, 7, 13, 14, 16].map(|line| lines[&line]), [3, 0, 3, 3, 1], "{level}");
    }
}

/// The compiler turns `work`'s call to `leave`, which sometimes does not return, into a jump. Only `work` must be marked for that, not its
/// callers or callees.
#[test]
fn tail_calls_that_do_not_return_are_marked() {
    const TAIL_CALL_PROGRAM: &str = "#include <setjmp.h>\nstatic jmp_buf back;\nstatic volatile int sum;\n\
        __attribute__((noinline)) static void leave(int n) {\n  if (n & 1)\n    longjmp(back, 1);\n  sum++;\n}\n\
        __attribute__((noinline)) static void work(int n) {\n  sum += n;\n  leave(n);\n}\n\
        __attribute__((noinline)) static void last(int n) {\n  sum -= n;\n}\n\
        __attribute__((noinline)) static void harmless(int n) {\n  sum -= n;\n  last(n);\n}\n\
        __attribute__((noinline)) static void outer(int n) {\n  work(n);\n  harmless(n);\n  sum++;\n}\n\
        __attribute__((noinline)) static void once(int n) {\n  if (!setjmp(back))\n    outer(n);\n}\n\
        int main(void) {\n  for (int i = 0; i < 6; i++)\n    once(i);\n  return 0;\n}\n";
    for level in LEVELS {
        let place = build_and_record("tail.c", TAIL_CALL_PROGRAM, level);
        let twice = ("once", 25, "returned-twice");
        let expected = if level == "-O0" { vec![twice] } else { vec![("work", 9, "tail-call"), twice] };
        check_marks(&place, "tail.c", &expected, level);
        let lines = count_lines(&place);
        assert_eq!([6, 7, 10, 14, 18, 21, 22, 23].map(|line| lines[&line]), [3, 3, 6, 3, 3, 6, 3, 3], "{level}");
        assert_eq!(lines[&12], if level == "-O0" { 3 } else { 6 }, "{level}");
    }
}

/// The program contains a `setjmp` and a `vfork` that return twice, and a `setjmp` that returns once.
#[test]
fn calls_that_returned_twice_are_marked() {
    const RETURNS_TWICE_PROGRAM: &str = "#include <setjmp.h>\n#include <sys/wait.h>\n#include <unistd.h>\nstatic jmp_buf back;\nstatic \
        volatile int sum;\n\
        __attribute__((noinline)) static void again(int n) {\n  if (n < 3)\n    longjmp(back, n + 1);\n}\n\
        __attribute__((noinline)) static void retry(void) {\n  int n = setjmp(back);\n  sum++;\n  again(n);\n}\n\
        __attribute__((noinline)) static void once(void) {\n  jmp_buf unused;\n  if (setjmp(unused) == 0)\n    sum++;\n}\n\
        __attribute__((noinline)) static void start(void) {\n  pid_t child = vfork();\n  if (child == 0)\n    _exit(0);\n  \
        waitpid(child, 0, 0);\n}\nint main(void) {\n  retry();\n  once();\n  start();\n  return 0;\n}\n";
    for level in LEVELS {
        let place = build_and_record("twice.c", RETURNS_TWICE_PROGRAM, level);
        check_marks(&place, "twice.c", &[("retry", 10, "returned-twice"), ("start", 20, "returned-twice")], level);
        let lines = count_lines(&place);
        assert_eq!([7, 8, 16, 18, 28, 30].map(|line| lines[&line]), [4, 3, 1, 1, 1, 1], "{level}");
    }
}

/// Creates a cargo command without the variables that cargo sets for tests, because they would change what the command does.
fn cargo_command(place: &Place) -> std::process::Command {
    let mut command = place.command(cargo_trodden());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO") && n != "CARGO_HOME") {
        command.env_remove(name);
    }
    ["RUSTC_WRAPPER", "RUSTFLAGS", "OUT_DIR"].into_iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// Functions with branches are marked if a panic ended an execution. Functions that always returned are not marked.
#[test]
fn rust_functions_that_a_panic_exits_are_marked() {
    const PANIC_PROGRAM: &str = "use std::hint::black_box;\n#[inline(never)]\nfn fail(n: u32) {\n    if n % 2 == 1 {\n        \
        panic!(\"odd\");\n    }\n}\n#[inline(never)]\nfn branching(n: u32) -> u32 {\n    let mut sum = 0;\n    if n > 2 {\n        \
        fail(n);\n        sum += 2;\n    }\n    black_box(sum)\n}\n#[inline(never)]\nfn finished(n: u32) -> u32 {\n    \
        if n > 2 { black_box(1) } else { black_box(2) }\n}\nfn main() {\n    std::panic::set_hook(Box::new(|_| {}));\n    \
        for n in 0..6 {\n        let _ = std::panic::catch_unwind(|| branching(n));\n        black_box(finished(n));\n    }\n}\n";
    let manifest = "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let place = Place::with(&[("Cargo.toml", manifest), ("src/main.rs", PANIC_PROGRAM)]);
    must(cargo_command(&place).args(["build", "--coverage"]));
    let program = place.path("target/trodden/x86_64-unknown-linux-gnu/debug/subject");
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--"]).arg(program));
    let mark = |function, line| (function, line, "rust-branch");
    let expected = [mark("subject::fail", 3), mark("subject::branching", 9), mark("subject::main::{closure#1}", 24)];
    check_marks(&place, "main.rs", &expected, "");
    let lines = count_lines(&place);
    assert_eq!([5, 12, 19, 25].map(|line| lines[&line]), [2, 3, 6, 6]);
}

/// Comparisons, annotated sources and exports must also say which counts are inexact: the table of changed lines marks them, and the other
/// outputs print a note.
#[test]
fn lines_in_other_outputs_are_marked() {
    const RETRY_PROGRAM: &str = "#include <setjmp.h>\nstatic jmp_buf back;\nstatic volatile int sum;\n\
        int main(void) {\n  int n = setjmp(back);\n  sum++;\n  if (n < 2)\n    longjmp(back, n + 1);\n  return 0;\n}\n";
    let place = Place::with(&[("retry.c", RETRY_PROGRAM)]);
    let git = |arguments: &str| place.tool("git", &format!("-c user.name=a -c user.email=a@b {arguments}"));
    git("init -q .");
    git("add retry.c");
    git("commit -q -m first");
    place.write("retry.c", &RETRY_PROGRAM.replace("sum++", "sum--"));
    place.cc("--trodden=coverage -O1 -g -w retry.c -o own");
    place.write("tests.txt", "a\t./own\nb\t./own\n");
    place.trodden("suite run tests --commands tests.txt");
    place.trodden("record --no-store -o run.trodden -- ./own");
    let changed = read_output(&place, "coverage report run.trodden --changed-since HEAD");
    assert!(changed.contains("    not exact: main (4): a call returned twice"), "{changed}");
    let rows = read_json(&place, "coverage report run.trodden --changed-since HEAD --json");
    assert!(find_marks(&rows["rows"][0]["not_exact"]).contains(&("main".to_owned(), 4, "returned-twice".to_owned())), "{rows}");
    for command in [
        "coverage report run.trodden --baseline run.trodden",
        "suite order tests --by lines",
        "annotate main run.trodden",
        "export lcov run.trodden",
        "export html run.trodden -o page.html",
        "report run.trodden --html page.html",
    ] {
        let note = read_messages(&place, command);
        assert!(note.contains("main: not exact: "), "{command}: {note}");
    }
}
