//! `trodden record`: exit status, signals, streams, programs that start other programs, and programs that were not built with trodden.

use crate::place::{Place, executions, must, trodden};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use trodden_profile::stream::{CounterLookup, StreamLog, StreamSymbol};
use trodden_profile::{ProcessEnding, Profile, RunEntry, RunStore};

const STEP_SOURCE: &str = "__attribute__((noinline)) int step(int n) { __asm__ volatile(\"\"); if (n & 1) return n; return 2 * n; }\n";

fn compile_program(main: &str) -> Place {
    let place = Place::with(&[(
        "prog.c",
        &format!(
            "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n{STEP_SOURCE}{main}"
        ),
    )]);
    place.cc("-O1 prog.c -o prog");
    place
}

fn record_command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(trodden());
    command.args(["record", "-o", "run.trodden", "--no-store", "--"]).args(arguments);
    command
}

fn read_profile(place: &Place) -> Profile {
    Profile::read(&place.path("run.trodden")).unwrap()
}

#[test]
fn exit_status_and_standard_streams_pass_through() {
    let place = compile_program(
        "int main(void) { int c, s = 0; while ((c = getchar()) != EOF) s += step(c); printf(\"%d\\n\", s); fputs(\"to stderr\\n\", \
            stderr); return 41; }",
    );
    let mut child =
        record_command(&place, &["./prog"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"ab").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(41));
    assert_eq!(output.stdout, b"293\n");
    assert!(output.stderr.starts_with(b"to stderr\n"));
    assert_eq!(executions(&read_profile(&place), "step"), Some(2));
    assert_eq!(read_profile(&place).run.ending, Some(ProcessEnding::Exit(41)));
}

#[test]
fn signal_that_ends_the_program_is_reported() {
    for (signal, number) in [("SIGKILL", 9), ("SIGSEGV", 11), ("SIGABRT", 6)] {
        let place = compile_program(&format!("int main(void) {{ step(1); step(2); step(3); raise({signal}); return 0; }}"));
        let output = record_command(&place, &["./prog"]).output().unwrap();
        assert_eq!(output.status.code(), Some(128 + number));
        assert_eq!(executions(&read_profile(&place), "step"), Some(3));
        assert_eq!(read_profile(&place).run.ending, Some(ProcessEnding::Signal(number)));
    }
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let place = compile_program(
        "static void on(int s) { _exit(step(s) == 15 ? 5 : 6); }\nint main(void) { signal(SIGTERM, on); puts(\"ready\"); fflush(stdout); \
            for (;;) pause(); }",
    );
    let mut child = record_command(&place, &["./prog"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(executions(&read_profile(&place), "step"), Some(1));
}

#[test]
fn all_processes_of_a_command_are_counted() {
    let place = compile_program("int main(int c, char **v) { for (int i = 0; i < atoi(v[1]); i++) step(i); return 0; }");
    let output = record_command(&place, &["sh", "-c", "./prog 3 & ./prog 4; wait; ./prog 5"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(executions(&read_profile(&place), "step"), Some(12));
}

#[test]
fn program_without_counts_causes_a_warning_but_no_failure() {
    let place = Place::new();
    let output = record_command(&place, &["sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("nothing was counted"));
    assert!(!place.path("run.trodden").exists());
    assert_eq!(record_command(&place, &["./missing"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn runs_are_stored_with_their_suite() {
    let place = compile_program("int main(void) { return step(0); }");
    place.trodden("record --suite nightly -- ./prog");
    place.trodden("record -- ./prog");
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
    assert_eq!(store.select("nightly").unwrap()[0].run.command, ["./prog"]);
    let rest: Vec<_> = std::fs::read_dir(place.path(".trodden"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .filter(|n| n.to_string_lossy().starts_with("raw"))
        .collect();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn each_program_of_a_suite_is_a_separate_run() {
    let place = compile_program(
        "int main(int c, char **v) { int n = atoi(v[1]); for (int i = 0; i < n; i++) step(i); if (n == 5) raise(SIGSEGV); if (n == 6) { \
            if (!fork()) return step(1); wait(0); } return n; }",
    );
    // The script runs a program that is not instrumented, two tests in parallel, a test that crashes, a test that forks, and a test that
    // has a name.
    let script = "true; ./prog 3 & ./prog 4; wait; ./prog 5; ./prog 6; cd /; TRODDEN_TEST='the last' exec $OLDPWD/prog 7";
    let output =
        place.command(trodden()).args(["record", "--suite", "tests", "-o", "all.trodden", "--", "bash", "-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let mut seen: Vec<_> = store
        .select("tests")
        .unwrap()
        .iter()
        .map(|entry| {
            let profile = store.load(entry).unwrap();
            assert_eq!(profile.run, entry.run);
            assert!(entry.run.started_ns > 0 && entry.run.duration_ns > 0 && entry.run.duration_ns < 60_000_000_000);
            (
                entry.run.command[1].clone(),
                executions(&profile, "step").unwrap(),
                entry.run.ending,
                entry.run.test.clone(),
                entry.run.directory == "/",
            )
        })
        .collect();
    seen.sort();
    let run = |n: &str, steps, ending, test: Option<&str>| (n.to_owned(), steps, Some(ending), test.map(str::to_owned), test.is_some());
    // Steps of a forked child count for the test that forked it.
    let all = [
        run("3", 3, ProcessEnding::Exit(3), None),
        run("4", 4, ProcessEnding::Exit(4), None),
        run("5", 5, ProcessEnding::Signal(11), None),
        run("6", 7, ProcessEnding::Exit(6), None),
        run("7", 7, ProcessEnding::Exit(7), Some("the last")),
    ];
    assert_eq!(seen, all);
    assert_eq!(executions(&Profile::read(&place.path("all.trodden")).unwrap(), "step"), Some(26));
    let left =
        std::fs::read_dir(place.path(".trodden")).unwrap().filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("raw"));
    assert_eq!(left.count(), 0);
}

#[test]
fn all_programs_of_a_command_can_be_one_run_of_a_suite() {
    let place = compile_program("int main(int c, char **v) { return step(atoi(v[1])); }");
    let output =
        place.command(trodden()).args(["record", "--", "sh", "-c", "./prog 2; ./prog 3"]).env("TRODDEN_TEST", "both").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    place.trodden("runs suite tests last");
    let runs = RunStore::open(&place.path(".trodden")).unwrap().select("tests").unwrap();
    assert_eq!((runs.len(), runs[0].run.test.as_deref()), (1, Some("both")));
    let missing = place.command(trodden()).args(["record", "--suite", "tests", "--", "./missing"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("cannot run ./missing") && said.contains("Check the path") && !said.contains("without --suite"), "{said}");
}

#[test]
fn folder_name_may_contain_a_percent_sign() {
    let place = compile_program("int main(void) { return step(0); }");
    std::fs::create_dir(place.path("100%p")).unwrap();
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "100%p/run.trodden", "--", "./prog"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(executions(&Profile::read(&place.path("100%p/run.trodden")).unwrap(), "step"), Some(1));
}

#[test]
fn raw_files_of_other_launchers_are_imported() {
    let place = compile_program("int main(void) { step(1); step(2); return 0; }");
    for _ in 0..3 {
        let status = place.command("./prog").env("TRODDEN_OUTPUT", "raw/%m.%p.raw").status().unwrap();
        assert!(status.success());
    }
    place.trodden("import raw --no-store -o run.trodden");
    assert_eq!(executions(&read_profile(&place), "step"), Some(6));
    let none = place.command(trodden()).args(["import", ".", "-o", "x.trodden"]).output().unwrap();
    assert!(String::from_utf8_lossy(&none.stderr).contains("contains nothing that trodden reads: no raw counts"));
}

#[test]
fn process_that_outlives_the_command_is_reported() {
    // The child closes the recorder's pipes, so the command ends first. It sleeps until the recorder has reported it.
    let place = compile_program(
        "int main(int c, char **v) { step(c); if (fork() == 0) { close(0); close(1); close(2); usleep(1000 * atoi(v[1])); step(c); } \
            return 0; }",
    );
    for (milliseconds, is_warned) in [("1500", true), ("0", false)] {
        let output = record_command(&place, &["./prog", milliseconds]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("a process that it started is still running"), is_warned, "{milliseconds}: {said}");
    }
}

/// A program that counts in `main` and in a thread, and ends as its argument says.
const LEAVES_PROGRAM: &str = "#include <pthread.h>\n#include <sys/resource.h>\nstatic void *work(void *n) { step(1); return n; }\n\
    int main(int c, char **v) { step(0); pthread_t t; struct rlimit none = { 0, 0 }; if (v[1][0] == 'f') setrlimit(RLIMIT_FSIZE, &none);\n\
    if (v[1][0] == 'n') { struct rlimit few = { 4, 4 }; setrlimit(RLIMIT_NOFILE, &few); if (!fork()) { step(2); _exit(0); } wait(0); \
    _exit(0); }\n\
    pthread_create(&t, 0, work, 0); pthread_join(t, 0); return c > 2 ? 7 : 0; }\n";

#[test]
fn lost_counts_are_an_error_and_marked_in_the_profile() {
    let place = compile_program(LEAVES_PROGRAM);
    for (arguments, status) in [(&["./prog", "file"][..], 2), (&["./prog", "file", "7"], 7)] {
        let output = record_command(&place, arguments).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{reported}");
        assert!(reported.contains("the counts of 1 thread are lost for this reason: the file would have exceeded"), "{reported}");
        assert!(
            reported.contains("the profile of this run lacks counts, so it is marked as incomplete") && !reported.contains("no profile"),
            "{reported}"
        );
        let profile = read_profile(&place);
        assert_eq!((profile.run.lost, executions(&profile, "step")), (1, Some(1)));
        let report = place.trodden("report run.trodden --json").stdout;
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert!(report["totals"]["not_exact"][0].as_str().unwrap().contains("the counts of 1 thread are lost"), "{report}");
    }
    // The same loss must be reported if raw files of another launcher are imported, and in a suite.
    must(place.command("./prog").arg("file").env("TRODDEN_OUTPUT", "raw/%m.raw"));
    let output = place.command(trodden()).args(["import", "raw", "--no-store", "-o", "of.trodden"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(Profile::read(&place.path("of.trodden")).unwrap().run.lost, 1);
    let output = place.command(trodden()).args(["record", "--suite", "tests", "--", "./prog", "file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(RunStore::open(&place.path(".trodden")).unwrap().select("tests").unwrap()[0].run.lost, 1);
}

#[test]
fn processes_that_exit_without_releasing_their_regions_are_exact() {
    let place = compile_program(LEAVES_PROGRAM);
    let output = record_command(&place, &["./prog", "nofile"]).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !reported.contains("warning"), "{reported}");
    assert_eq!(executions(&read_profile(&place), "step"), Some(2));
    let output = place.command(trodden()).args(["record", "--suite", "tests", "--", "./prog", "nofile"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(RunStore::open(&place.path(".trodden")).unwrap().select("tests").unwrap().len(), 1);
}

#[test]
fn deleted_folder_of_raw_files_is_reported() {
    let place = compile_program("int main(void) { step(1); return 0; }");
    for script in ["./prog; rm -r raw-*", "./prog; rm -r raw-*; ./prog"] {
        let output = record_command(&place, &["sh", "-c", script]).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{reported}");
        assert!(reported.contains("was deleted while the command ran") && !reported.contains("nothing was counted"), "{reported}");
        assert!(!place.path("run.trodden").exists());
    }
}

/// Returns the number of entries of `step` in the stream logs of a run, and the number of logs.
fn count_streamed_steps(store: &RunStore, entry: &RunEntry) -> (u64, u64) {
    let (mut steps, mut logs) = (0, 0);
    for file in std::fs::read_dir(store.streams(entry.number)).into_iter().flatten().map(|e| e.unwrap().path()) {
        let log = StreamLog::open(&file).unwrap();
        let profile = store.load(entry).unwrap();
        let image = profile.images.iter().find(|i| i.identity == log.header().image).unwrap().with_events_as_paths();
        let places = CounterLookup::new(log.header(), &image);
        let is_step = |counter: u32| places.function(places.path(counter).unwrap().0).name == "step";
        for thread in log.threads() {
            log.visit(thread, 0, |event| {
                steps += u64::from(matches!(event, StreamSymbol::Enter(counter) if is_step(counter)));
                true
            })
            .unwrap();
        }
        logs += 1;
    }
    (steps, logs)
}

/// The suite has two ordinary tests, a test that crashes, one with a child, and one that executes itself again in the same process.
#[test]
fn each_program_of_a_suite_has_its_own_stream() {
    let place = Place::with(&[(
        "prog.c",
        "#include <signal.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         __attribute__((noinline)) int step(int n) { __asm__ volatile(\"\"); return n & 1 ? n : 2 * n; }\n\
         int main(int c, char **v) { int n = atoi(v[1]), s = 0; for (int i = 0; i < n; i++) s += step(i); if (n == 5) raise(SIGSEGV);\n\
         if (n == 6) { if (!fork()) { step(1); _exit(0); } wait(0); }\n\
         if (n == 7) execl(v[0], v[0], \"8\", (char *)0); return n + (s < 0); }\n",
    )]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
    place.cc("-O1 prog.c -o counting");
    let script = "true; ./prog 3 & ./prog 4; wait; ./prog 5; ./prog 6; ./counting 2; TRODDEN_TEST=last exec ./prog 7";
    let output =
        place.command(trodden()).args(["record", "--whole-program", "--suite", "tests", "--", "bash", "-c", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{said}");
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let mut seen = Vec::new();
    for entry in store.select("tests").unwrap() {
        let (steps, logs) = count_streamed_steps(&store, &entry);
        // The profile must have the same count as the stream.
        let counted = executions(&store.load(&entry).unwrap(), "step").unwrap();
        assert!(logs == 0 || steps == counted, "{steps} {counted}");
        seen.push((entry.run.command[1].clone(), counted, logs, entry.run.test.clone()));
    }
    seen.sort();
    let run = |n: &str, steps, logs, test: Option<&str>| (n.to_owned(), steps, logs, test.map(str::to_owned));
    let all = [
        run("2", 2, 0, None),
        run("3", 3, 1, None),
        run("4", 4, 1, None),
        run("5", 5, 1, None),
        run("6", 7, 2, None),
        run("7", 7, 1, Some("last")),
        run("8", 8, 1, Some("last")),
    ];
    assert_eq!(seen, all, "{said}");
    // The run's number selects one test of the suite.
    let number = |n: &str| store.select("tests").unwrap().into_iter().find(|e| e.run.command[1] == n).unwrap().number.to_string();
    let report = must(place.command(trodden()).args(["segments", &number("4"), "--json", "--top", "0"]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let calls: u64 = report["segments"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(calls, 4, "{report:#}");
    let differ = place.command(trodden()).args(["diff", "--sequence", "--fail", &number("3"), &number("4")]).output().unwrap();
    assert_eq!(differ.status.code(), Some(1), "{}", String::from_utf8_lossy(&differ.stderr));
}
