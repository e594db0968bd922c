//! Runs the command as a user might misuse it: unsuitable input, options without effect, `-`, closed pipes, invalid variables, unwritable
//! folders. The command must name every option that it rejects, and must never ignore one silently.

use crate::place::{Place, must, trodden, with_choices};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    static int step(int n) { int r = 0; if (n % 3 == 0) r += 1; if (n % 5 == 0) r += 2; return r; }
    int main(int c, char **v) {
        int s = 0, n = c > 1 ? atoi(v[1]) : 9;
        for (int i = 0; i < n; i++) s += step(i);
        printf(\"%d\\n\", s);
        return 0;
    }
";

/// Creates a test folder with a program, a run of the program, and one file of each kind that trodden reads.
fn create_place() -> Place {
    let place = Place::with(&[("prog.c", PROGRAM), ("empty", ""), ("text", "some words\n")]);
    place.cc("-O1 -g prog.c -o prog");
    place.trodden("record --suite tests -- ./prog 5");
    place.trodden("record -o one.trodden -- ./prog 50");
    place.trodden("trace record --runs 1 -o t.trace -- ./prog 3");
    fs::create_dir(place.path("raws")).unwrap();
    must(place.command(place.path("prog")).env("TRODDEN_OUTPUT", place.path("raws/a.raw")));
    place
}

fn run_trodden(place: &Place, arguments: &[&str]) -> Output {
    place.command(trodden()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn expect_error(place: &Place, arguments: &[&str]) -> String {
    let output = run_trodden(place, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn split_words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn error_names_the_kind_of_an_unsuitable_input() {
    let place = create_place();
    let commands = [
        "annotate main FILE",
        "advise FILE",
        "coverage report FILE",
        "coverage show FILE",
        "untested FILE",
        "untested --known FILE one.trodden",
        "isolate FILE",
        "merge -o merged.trodden FILE",
        "fleet pack --known one.trodden -o a.field FILE",
    ];
    let kinds = [
        ("t.trace", "it is a trace. Convert it to a profile with `trodden import`"),
        ("raws/a.raw", "it is a raw file of counts. Convert it to a profile with `trodden import`"),
        ("prog", "it is a program. Record a profile of it with `trodden record -- PROGRAM`"),
        ("text", "it is not a file of trodden"),
        ("empty", "it ends within its header"),
    ];
    for command in commands {
        for (file, expected) in kinds {
            // `untested` and `fleet pack` accept raw files.
            if file == "raws/a.raw" && !command.contains("--known FILE") && (command.contains("untested") || command.contains("fleet")) {
                continue;
            }
            let said = expect_error(&place, &split_words(&command.replace("FILE", file)));
            assert!(said.contains(expected), "{command} {file}: {said}");
            assert!(said.matches(&format!("{file} is not a stored profile")).count() == 1, "{command} {file}: {said}");
        }
    }
    let said = expect_error(&place, &["advise", "raws"]);
    assert!(said.contains("raws is a folder") && said.contains("use `trodden import`"), "{said}");
}

#[test]
fn options_without_effect_are_rejected_by_name() {
    let place = create_place();
    for (line, option) in [
        ("report t.trace --steps 3", "--steps"),
        ("report one.trodden --json --steps 3", "--steps"),
        ("report one.trodden --html page.html --function main", "--html"),
        ("report one.trodden --html page.html --top 3", "--html"),
        ("export html one.trodden --function main", "--function"),
        ("export weights one.trodden --function main", "--function"),
        ("export known one.trodden --measure blocks", "--measure"),
        ("export lcov one.trodden --measure blocks", "--measure"),
        ("export lcov one.trodden --object prog", "--object"),
        ("export folded one.trodden --include src", "--include"),
        ("export lcov one.trodden --include nowhere", "--include"),
        ("export pprof one.trodden --for prog", "--for"),
        ("find main t.trace --thread 8", "no thread with number 8"),
        ("record --for 1s -- ./prog", "--for"),
        ("record --burst 1ms --jobs 2 -- ./prog", "--jobs"),
        ("record --burst 1ms --divide edges -- ./prog", "--divide"),
        ("record --no-store -o . -- ./prog", "is a folder"),
        ("import raws --no-store -o .", "is a folder"),
        ("trace record --jobs 0 -- ./prog", "--jobs"),
        ("simulate --program prog -- ./prog", "--program"),
        ("simulate --partial -- ./prog", "--partial"),
    ] {
        let said = expect_error(&place, &split_words(line));
        assert!(said.contains(option), "{line}: {said}");
    }
    assert!(!place.path("page.html").exists());
}

#[test]
fn dash_is_standard_output_or_rejected() {
    let place = create_place();
    for line in [
        "export folded one.trodden -o -",
        "export addresses t.trace -o -",
        "report one.trodden --html -",
        "report t.trace --html -",
        "advise one.trodden --sarif -",
        "untested one.trodden --known one.trodden --sarif -",
    ] {
        let shown = run_trodden(&place, &split_words(line));
        assert!(shown.status.success() && !shown.stdout.is_empty(), "{line}: {shown:?}");
        assert_eq!(String::from_utf8_lossy(&shown.stderr), "", "{line}");
    }
    for line in [
        "record -o - -- ./prog",
        "import raws -o -",
        "merge one.trodden -o -",
        "trace record -o - -- ./prog",
        "waits record -o - -- ./prog",
        "instrument prog -o -",
        "pgo --train ./prog -o - -- make",
        "fleet copies prog -o -",
        "fleet pack one.trodden --known one.trodden -o -",
    ] {
        let said = expect_error(&place, &split_words(line));
        assert!(said.contains("--output") && said.contains("./-"), "{line}: {said}");
    }
    assert!(!place.path("-").exists());
}

#[test]
fn binary_data_is_not_written_to_a_terminal() {
    let place = create_place();
    let in_terminal = |words: &str| {
        let line = format!("{} export {words} one.trodden", trodden().display());
        place.command("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap()
    };
    for form in ["pprof", "weights", "known"] {
        let refused = in_terminal(form);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stdout).contains("-o FILE"), "{refused:?}");
    }
    for words in ["pprof -o -", "folded"] {
        assert!(in_terminal(words).status.success(), "{words}");
    }
}

#[test]
fn laboratory_choices_without_effect_are_rejected() {
    let place = create_place();
    for (line, needed) in [
        ("--strategy p3 record -- ./prog 3", "--copies"),
        ("--max-wait 1s record -- ./prog 3", "--whole-program"),
        ("--segment-depth 2 record --copies 2 -- ./prog", "--divide segments:SET"),
        ("--iterations 2:last record --copies 2 -- ./prog", "--divide iterations"),
    ] {
        let mut command = place.command(trodden());
        with_choices(&mut command, split_words(line));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(needed), "{line}: {said}");
    }
}

#[test]
fn closed_pipe_does_not_change_the_exit_status() {
    let place = create_place();
    for line in
        ["report", "report --json", "show t.trace --count 0", "export folded", "runs", "--help", "help report", "info", "suite list tests"]
    {
        let mut child = place.command(trodden()).args(split_words(line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{line}: {ended:?}");
    }
    for line in ["nonsense", "report --nonsense", "record", "runs suite a"] {
        let mut child = place.command(trodden()).args(split_words(line)).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(2), "{line}");
    }
}

#[test]
fn json_output_is_valid_for_every_kind_of_input() {
    let place = create_place();
    for line in [
        "report one.trodden",
        "report t.trace",
        "annotate main one.trodden",
        "advise",
        "find main t.trace",
        "show t.trace",
        "diff one.trodden 1",
        "diff t.trace t.trace",
        "untested --known one.trodden one.trodden",
        "info",
        "info prog",
        "info one.trodden",
        "runs",
        "suite list",
        "suite list tests",
        "suite list tests --redundant",
        "suite order tests",
    ] {
        let shown = run_trodden(&place, &[&split_words(line)[..], &["--json"]].concat());
        assert!(shown.status.success(), "{line}: {shown:?}");
        assert!(serde_json::from_slice::<Value>(&shown.stdout).is_ok(), "{line}");
    }
}

fn run_with_variable(place: &Place, variable: &str, value: &str, arguments: &[&str]) -> Output {
    place.command(trodden()).args(arguments).env(variable, value).output().unwrap()
}

fn read_error(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn variables_that_do_not_name_a_folder_are_rejected_by_commands_that_use_them() {
    let place = create_place();
    let file = place.path("text").display().to_string();
    for variable in ["TRODDEN_RUNS", "TRODDEN_CACHE"] {
        for (value, reason) in
            [("relative", "a relative path"), (file.as_str(), "which is not a folder"), ("/dev/null", "which is not a folder")]
        {
            for arguments in [&["report", "one.trodden"][..], &["cc", "-c", "prog.c"], &["record", "--", "./prog"]] {
                let refused = run_with_variable(&place, variable, value, arguments);
                assert_eq!(refused.status.code(), Some(2), "{variable}={value} {arguments:?}");
                assert!(read_error(&refused).contains(variable) && read_error(&refused).contains(reason), "{}", read_error(&refused));
            }
            for arguments in [&["--help"][..], &["report", "--help"], &["--version"], &["help", "record"]] {
                assert!(run_with_variable(&place, variable, value, arguments).status.success(), "{variable}={value} {arguments:?}");
            }
        }
        assert!(run_with_variable(&place, variable, "", &["report", "one.trodden"]).status.success(), "{variable}");
    }
    // `/proc` exists, but no folder can be created in it.
    let refused = run_with_variable(&place, "TRODDEN_RUNS", "/proc", &["record", "--", "./prog"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(read_error(&refused).contains("/proc"), "{}", read_error(&refused));
}

#[test]
fn info_shows_where_data_is_stored() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    let found = |place: &Place| serde_json::from_slice::<Value>(&place.trodden("info --json").stdout).unwrap();
    let before = found(&place);
    assert_eq!((&before["run_store"], &before["runs"]), (&Value::Null, &Value::from(0)));
    assert_eq!(before["unit_cache"], place.path("store").display().to_string());
    place.cc("prog.c -o prog");
    place.trodden("record -- ./prog");
    let after = found(&place);
    let store = fs::canonicalize(place.path(".trodden")).unwrap().display().to_string();
    assert_eq!((after["run_store"].as_str().unwrap(), &after["runs"]), (store.as_str(), &Value::from(1)));
    assert_eq!(before["new_runs"], after["run_store"]);
    let text = String::from_utf8(place.trodden("info").stdout).unwrap();
    for part in [env!("CARGO_PKG_VERSION"), &store, "with 1 run", &place.path("store").display().to_string(), "TRODDEN_CACHE"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let elsewhere = place.path("other");
    fs::create_dir(&elsewhere).unwrap();
    let named = run_with_variable(&place, "TRODDEN_RUNS", &elsewhere.display().to_string(), &["info"]);
    let text = String::from_utf8(named.stdout).unwrap();
    assert!(text.contains("by TRODDEN_RUNS") && text.contains(&format!("last run     in {store}")), "{text}");
}

#[test]
fn runs_show_start_times_and_accept_ranges() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("prog.c -o prog");
    let day = || String::from_utf8(must(Command::new("date").args(["-u", "+%F"])).stdout).unwrap().trim().to_owned();
    let before = day();
    for number in ["1", "2", "3", "4", "5"] {
        place.trodden(&format!("record -- ./prog {number}"));
    }
    let table = String::from_utf8(place.trodden("runs").stdout).unwrap();
    assert!(table.lines().next().unwrap().contains("started (UTC)"), "{table}");
    assert!(table.lines().skip(1).all(|line| line.contains(&before) || line.contains(&day())), "{table}");
    let left = |place: &Place| {
        let runs: Value = serde_json::from_slice(&place.trodden("runs --json").stdout).unwrap();
        runs["runs"].as_array().unwrap().iter().map(|run| run["number"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let said = place.trodden("runs suite some 4-9 5");
    assert!(read_error(&said).contains("added 2 runs to the suite some"), "{said:?}");
    assert_eq!(left(&place), [1, 2, 3, 4, 5]);
    let said = place.trodden("runs remove 2-3 3");
    assert!(read_error(&said).contains("removed 2 runs"), "{said:?}");
    assert_eq!(left(&place), [1, 4, 5]);
    for none in ["2-3", "3-1", "7-9", "x-y", "1-"] {
        assert!(expect_error(&place, &["runs", "remove", none]).contains("no run or suite"), "{none}");
    }
    place.trodden("runs remove some");
    assert_eq!(left(&place), [1]);
    assert!(expect_error(&place, &["record", "--suite", "a\nb", "--", "./prog"]).contains("invalid suite name"));
}

#[test]
fn failed_command_leaves_no_files() {
    let place = create_place();
    let said = expect_error(&place, &["waits", "record", "-o", "new.waits", "--", "./missing"]);
    assert!(said.contains("cannot run ./missing") && said.contains("Check the path"), "{said}");
    assert!(!place.path("new.waits").exists());
    place.write("old.waits/1-2.process", "trodden-waits 1\n");
    // `text` is not executable, and neither is a folder. For `words`, only the attempt to execute it shows that the kernel cannot.
    place.shell("cp text words; chmod +x words");
    for program in ["./missing", "./text", "./old.waits", "./words"] {
        expect_error(&place, &["waits", "record", "-o", "old.waits", "--", program]);
    }
    assert!(place.path("old.waits/1-2.process").is_file());
    assert_eq!(fs::read_dir(place.path("old.waits")).unwrap().count(), 1);
    // A killed recorder leaves the earlier recording under such a name. No process has this ID.
    place.shell("mkdir old.waits/.earlier-2000000000; mv old.waits/1-2.process old.waits/.earlier-2000000000");
    expect_error(&place, &["waits", "record", "-o", "old.waits", "--", "./words"]);
    assert!(place.path("old.waits/1-2.process").is_file());
    assert_eq!(fs::read_dir(place.path("old.waits")).unwrap().count(), 1);
    // `fleet copies` links programs by the build's link recipe, which is in the removed folder.
    fs::remove_dir_all(place.path("store")).unwrap();
    expect_error(&place, &["fleet", "copies", "prog", "-o", "parts"]);
    assert!(!place.path("parts").exists());
    // These errors are reported before any program runs.
    let said = expect_error(&place, &["trace", "record", "--runs", "2", "-o", "x.trace", "--engine", "template:false", "--", "./prog"]);
    assert!(said.contains("{script}, {index} or {each}"), "{said}");
    let without_sbatch = |arguments: &str| run_with_variable(&place, "PATH", "/nowhere", &split_words(arguments));
    for line in
        ["record --copies 2 --engine slurm --work shared -- ./prog 3", "trace record --runs 2 -o x.trace --engine slurm -- ./prog 3"]
    {
        let refused = without_sbatch(line);
        assert!(
            refused.status.code() == Some(2) && read_error(&refused).contains("cannot find `sbatch` on the search path"),
            "{refused:?}"
        );
        assert!(!place.path("x.trace").exists() && !place.path("shared").exists(), "{line}");
    }
    assert!(expect_error(&place, &["suite", "run", "x", "--ctest", "nowhere"]).contains("folder nowhere does not exist"));
}

#[test]
fn messages_name_the_next_command() {
    let place = create_place();
    let said = place.trodden("trace record --runs 1 -o b.trace -- ./prog 3");
    assert!(read_error(&said).contains("`trodden report b.trace` shows the calls"), "{said:?}");
    place.write(
        "threads.c",
        "#include <pthread.h>\nstatic void *run(void *p) { return p; }\nint main(void) { pthread_t t; pthread_create(&t, 0, \
        run, 0); return pthread_join(t, 0); }\n",
    );
    place.tool("clang-22", "-pthread threads.c -o threads");
    let said = place.trodden("waits record -o of-%p.waits -- ./threads");
    let said = read_error(&said);
    let named = said.split("`trodden report ").nth(1).and_then(|rest| rest.split('`').next()).unwrap_or_else(|| panic!("{said}"));
    assert!(!named.contains('%'), "{said}");
    assert!(run_trodden(&place, &["report", named]).status.success(), "{said}");
}

#[test]
fn compiler_driver_has_its_own_help() {
    let place = Place::new();
    for driver in ["cc", "c++"] {
        let help = String::from_utf8(place.trodden(&format!("{driver} --help")).stdout).unwrap();
        assert!(help.lines().count() <= 60 && help.contains("--trodden=WORDS") && help.contains("TRODDEN_CACHE"), "{help}");
    }
    // By this name, the driver must behave like clang, so its help is clang's.
    symlink(trodden(), place.path("trodden-cc")).unwrap();
    let help = must(place.command(place.path("trodden-cc")).arg("--help"));
    assert!(String::from_utf8_lossy(&help.stdout).contains("clang LLVM compiler"));
}

#[test]
fn profile_names_may_contain_blanks_and_line_breaks() {
    let place = create_place();
    for name in ["a b.trodden", "a\nb.trodden", "-c.trodden", "ä.trodden"] {
        fs::copy(place.path("one.trodden"), place.path(name)).unwrap();
        let name = if name.starts_with('-') { format!("./{name}") } else { name.to_owned() };
        for command in ["report", "advise", "info"] {
            let shown = run_trodden(&place, &[command, &name]);
            assert!(shown.status.success(), "{command} {name:?}: {shown:?}");
        }
        assert!(run_trodden(&place, &["merge", "-o", &format!("{name}.merged"), &name]).status.success(), "{name:?}");
    }
}

#[test]
fn error_about_an_inlined_function_names_its_caller() {
    let place = create_place();
    for command in [&["annotate", "step", "one.trodden"][..], &["report", "--function", "step", "one.trodden"]] {
        let said = expect_error(&place, command);
        assert!(said.contains("`step` was inlined into `main` at ") && said.contains("`trodden annotate main`"), "{said}");
        assert!(!said.contains("no instrumented function"), "{said}");
    }
    assert!(!expect_error(&place, &["annotate", "stop", "one.trodden"]).contains("inlined"));
}

#[test]
fn environment_is_the_same_in_runs_on_other_machines() {
    let place = Place::new();
    let mut command = place.command(trodden());
    command.env("ZULU", "1").env("ALPHA", "2");
    let traced =
        command.args(["trace", "record", "--runs", "2", "--engine", "template:sh {script}", "--", "/usr/bin/env"]).output().unwrap();
    assert!(traced.status.success(), "{traced:?}");
    assert!(String::from_utf8_lossy(&traced.stdout).contains("ZULU=1"), "{traced:?}");
}
