//! Files that remain if commands are killed or ended by signals, and permissions of the files that copies use.

use crate::place;
use crate::place::{Place, must, trodden, with_choices};
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) int work(int n) { return n % 3 ? n / 2 : n * \
    5; }\n\
    int main(int c, char **v) { int k, s = 0; while (c == 1 && (k = getchar()) != EOF) s += work(k); while (c > 1) pause(); \
    printf(\"%d\\n\", s); return 0; }\n";

fn create_place() -> Place {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    place
}

fn run_runs_command(place: &Place, arguments: &str) -> String {
    let output = must(place.command(trodden()).arg("runs").args(arguments.split_whitespace()));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn count_raw_folders(place: &Place) -> usize {
    let Ok(entries) = fs::read_dir(place.path(".trodden")) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("raw-")).count()
}

#[test]
fn files_of_a_killed_recorder_are_listed_and_removed() {
    let place = create_place();
    let mut recorder = place.command(trodden()).args(["record", "--", "./prog", "wait"]).stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let raw = || {
        fs::read_dir(place.path(".trodden"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|e| e.path().join(".").is_dir() && has_raw_files(&e.path()))
    };
    while !raw() {
        assert!(begun.elapsed() < Duration::from_secs(60) && recorder.try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!run_runs_command(&place, "").contains("left"), "one that runs has left nothing");
    run_runs_command(&place, "remove --leftovers");
    assert_eq!(count_raw_folders(&place), 1);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder.id())).unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    must(Command::new("kill").args(children.split_whitespace()));
    fs::write(place.path(".trodden/profiles/.profile-half"), "half").unwrap();
    let reported = run_runs_command(&place, "");
    assert!(reported.contains("recordings that were killed left 2 files and folders") && reported.contains("/raw-"), "{reported}");
    let json: serde_json::Value = serde_json::from_str(&run_runs_command(&place, "--json")).unwrap();
    assert_eq!(json["leftovers"].as_array().unwrap().len(), 2, "{json}");
    assert!(run_runs_command(&place, "remove --leftovers").contains("removed 2 files and folders"));
    assert!(count_raw_folders(&place) == 0 && !place.path(".trodden/profiles/.profile-half").exists());
}

fn has_raw_files(folder: &std::path::Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.any(|e| e.unwrap().path().extension().is_some_and(|end| end == "raw")))
}

#[test]
fn only_the_owner_can_read_input_and_output_of_copies() {
    let place = create_place();
    place.write("input", "a secret");
    let mut command = place.command(trodden());
    with_choices(&mut command, "record --no-store -o run.trodden --copies 2 --no-first-run --work copies -- ./prog".split(' '));
    // Standard input is a pipe, so its content is stored in a file.
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut recorder.stdin.take().unwrap(), b"a secret").unwrap();
    assert!(recorder.wait().unwrap().success());
    // The job description must be gone, because it contains the environment.
    assert!(!place.path("copies/job.json").exists());
    assert_eq!(fs::metadata(place.path("copies")).unwrap().permissions().mode() & 0o777, 0o700);
    for name in ["input", "out-0", "err-1"] {
        let mode = fs::metadata(place.path("copies").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// Runs a command in a new process group, as a shell does. Sends a signal to the group as soon as `has_begun` returns true. Returns the
/// temporary files that remain.
fn list_files_left_by(place: &Place, arguments: &[&str], signal: &str, has_begun: impl Fn() -> bool) -> Vec<String> {
    let mut command = place.command(trodden());
    with_choices(&mut command, arguments.iter().copied());
    list_files_left_by_command(place, command, signal, |_| has_begun())
}

/// Like [`list_files_left_by`], but `has_begun` gets the process ID.
fn list_files_left_by_command(place: &Place, mut command: Command, signal: &str, has_begun: impl Fn(u32) -> bool) -> Vec<String> {
    let temporary = place.path("temporary");
    fs::create_dir_all(&temporary).unwrap();
    // Clang would treat SIGQUIT as a crash, and leave files of llvm-symbolizer.
    command.env("LLVM_DISABLE_SYMBOLIZATION", "1");
    command.env("TMPDIR", &temporary).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let arguments = format!("{command:?}");
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while !has_begun(child.id()) {
        assert!(begun.elapsed() < Duration::from_secs(300), "{arguments} does not begin");
        assert!(child.try_wait().unwrap().is_none(), "{arguments} ends by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    must(Command::new("kill").args([format!("-{signal}"), "--".to_owned(), format!("-{}", child.id())]));
    let status = child.wait().unwrap();
    assert!(!status.success(), "{arguments}: {status}");
    list_file_names(&temporary)
}

fn list_file_names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn signals_leave_no_temporary_files() {
    let place = create_place();
    place.write("tests.txt", "./prog wait\n");
    let mut many = String::new();
    for number in 0..400 {
        many += &format!("int f{number}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i % 7 ? x : -i; return s; }}\n");
    }
    place.write("many.c", &(many + "int main(int c, char **v) { return f3(c); }\n"));
    place.cc("-O2 many.c -o many");
    let temporary = || !list_file_names(&place.path("temporary")).is_empty();
    let is_counting = || {
        count_raw_folders(&place) > 0
            && list_file_names(&place.path(".trodden")).iter().any(|name| has_raw_files(&place.path(".trodden").join(name)))
    };
    for signal in ["INT", "TERM"] {
        let _ = fs::remove_file(place.path("begun"));
        let build = ["build", "--", "sh", "-c", "touch begun; exec sleep 1000"];
        assert_eq!(list_files_left_by(&place, &build, signal, || place.path("begun").exists()), [""; 0], "build, {signal}");
        assert_eq!(list_files_left_by(&place, &["instrument", "many", "-o", "other"], signal, temporary), [""; 0], "instrument, {signal}");
        assert_eq!(list_files_left_by(&place, &["simulate", "--", "./prog", "wait"], signal, temporary), [""; 0], "simulate, {signal}");
        let suite = ["suite", "run", "tests", "--commands", "tests.txt"];
        assert_eq!(list_files_left_by(&place, &suite, signal, is_counting), [""; 0], "suite run, {signal}");
        assert_eq!(count_raw_folders(&place), 0, "suite run, {signal}");
        assert!(!place.path("other").exists());
    }
}

#[test]
fn signals_during_a_link_leave_no_temporary_files() {
    let place = create_place();
    place.cc("-O1 -g -c prog.c -o prog.o");
    place.write("slow/ld", "#!/bin/sh\ntouch begun\nexec sleep 1000\n");
    fs::set_permissions(place.path("slow/ld"), fs::Permissions::from_mode(0o755)).unwrap();
    let linker = format!("--ld-path={}", place.path("slow/ld").display());
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let _ = fs::remove_file(place.path("begun"));
        let link = ["cc", &linker, "prog.o", "-o", "linked"];
        assert_eq!(list_files_left_by(&place, &link, signal, || place.path("begun").exists()), [""; 0], "{signal}");
    }
}

/// Preloads a library that makes the command's file operations fail or interrupts them (see `disturb.c`).
#[cfg(target_arch = "x86_64")]
fn disturb_writes(place: &Place, command: &mut Command, how: &str) {
    if !place.path("disturb.so").exists() {
        place.write("disturb.c", include_str!("../leftovers/disturb.c"));
        place.tool("cc", "-O1 -shared -fPIC disturb.c -o disturb.so");
    }
    command.env("LD_PRELOAD", place.path("disturb.so")).env("DISTURB", how);
}

fn list_begun_names(folder: &std::path::Path) -> Vec<String> {
    list_file_names(folder).into_iter().filter(|name| name.starts_with(".trodden-")).collect()
}

/// Returns true if a process has an open file in `folder` that has no name.
fn has_unnamed_file(process: u32, folder: &std::path::Path) -> bool {
    let folder = fs::canonicalize(folder).unwrap();
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let open = files.filter_map(|file| fs::read_link(file.path()).ok());
    open.map(|path| path.to_string_lossy().into_owned())
        .any(|path| path.starts_with(&*folder.to_string_lossy()) && path.ends_with("(deleted)"))
}

/// Checks that the folder `results` is empty. The signal ends the program as well; if the recorder notices the end of the program first, it
/// completes the recording and gives it its final name, and then the recording must be readable.
fn assert_no_unfinished_result(place: &Place, signal: &str) {
    let results = place.path("results");
    if list_file_names(&results) == ["branches"] {
        place.trodden("simulate --from results/branches");
        fs::remove_file(results.join("branches")).unwrap();
    }
    assert_eq!(list_file_names(&results), [""; 0], "{signal}");
}

#[test]
fn unfinished_results_have_no_file_name() {
    let place = create_place();
    let results = place.path("results");
    fs::create_dir(&results).unwrap();
    if fs::OpenOptions::new().write(true).custom_flags(nix::libc::O_TMPFILE).open(&results).is_err() {
        eprintln!("skipped: this file system has no files without names");
        return;
    }
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let mut command = place.command(trodden());
        command.args("simulate --record results/branches -- ./prog wait".split(' '));
        let is_written = |process| {
            assert_eq!(list_begun_names(&results), [""; 0]);
            has_unnamed_file(process, &results)
        };
        assert_eq!(list_files_left_by_command(&place, command, signal, is_written), [""; 0], "{signal}");
        assert_no_unfinished_result(&place, signal);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn unfinished_results_with_temporary_names_are_removed_by_signals() {
    let place = create_place();
    let results = place.path("results");
    fs::create_dir(&results).unwrap();
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let mut command = place.command(trodden());
        command.args("simulate --record results/branches -- ./prog wait".split(' '));
        disturb_writes(&place, &mut command, "unnamed");
        let is_written = |_| !list_begun_names(&results).is_empty();
        assert_eq!(list_files_left_by_command(&place, command, signal, is_written), [""; 0], "{signal}");
        assert_no_unfinished_result(&place, signal);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn signal_while_a_result_is_renamed_leaves_no_temporary_file() {
    let place = create_place();
    must(place.command(trodden()).args("record --no-store -o run.trodden -- ./prog".split(' ')).stdin(Stdio::null()));
    place.trodden("export json run.trodden -o whole");
    let whole = fs::read(place.path("whole")).unwrap();
    place.write("results/old", "an older file");
    let mut command = place.command(trodden());
    command.args("export json run.trodden -o results/old".split(' '));
    disturb_writes(&place, &mut command, "end");
    let output = command.output().unwrap();
    // The command may have ended before the signal was handled.
    assert!(output.status.success() || output.status.signal() == Some(15), "{output:?}");
    assert_eq!(list_file_names(&place.path("results")), ["old"]);
    assert!(fs::read(place.path("results/old")).unwrap() == whole);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn signal_leaves_no_temporary_copy_of_a_read_only_store() {
    let place = create_place();
    let Some(disk) = place::Disk::mount(place.path("disk"), "512k") else { return };
    must(place.command(trodden()).args("record -- ../prog".split(' ')).current_dir(place.path("disk")).stdin(Stdio::null()));
    disk.forbid_writing();
    fs::create_dir(place.path("temporary")).unwrap();
    for how in ["none", "end"] {
        let mut command = place.command(trodden());
        command.arg("runs").current_dir(place.path("disk")).env("TMPDIR", place.path("temporary"));
        if how == "end" {
            disturb_writes(&place, &mut command, how);
        }
        let output = command.output().unwrap();
        assert!(output.status.success() || how == "end" && output.status.signal() == Some(15), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("prog"), "{output:?}");
        assert_eq!(list_file_names(&place.path("temporary")), [""; 0], "{how}");
    }
}

/// With --hot-paths, a script replaces the program during the second training.
#[test]
fn signal_during_training_restores_the_program() {
    let place = create_place();
    place.write(
        "train.sh",
        "case $(head -c 2 \"$TRODDEN_PROGRAM\") in '#!') touch begun; exec sleep 1000;; esac; \"$TRODDEN_PROGRAM\" < train.sh\n",
    );
    let pgo = ["pgo", "--train", "sh train.sh", "--hot-paths", "complete", "--", "sh", "-c", "rm -f built; cc -O1 prog.c -o built"];
    assert_eq!(list_files_left_by(&place, &pgo, "TERM", || place.path("begun").exists()), [""; 0]);
    assert!(fs::read(place.path("built")).unwrap().starts_with(b"\x7fELF"));
    assert!(!list_file_names(&place.path("")).iter().any(|name| name.contains("trained")), "{:?}", list_file_names(&place.path("")));
}
