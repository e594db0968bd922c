//! What is left behind: by recorders that are killed, by exports that a full disk cuts short; and who may read what copies get.

mod place;

use place::{Place, must, trodden};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) int work(int n) { return n % 3 ? n / 2 : n * \
    5; }\n\
    int main(int c, char **v) { int k, s = 0; while (c == 1 && (k = getchar()) != EOF) s += work(k); while (c > 1) pause(); \
    printf(\"%d\\n\", s); return 0; }\n";

fn place() -> Place {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    place
}

fn runs(place: &Place, arguments: &str) -> String {
    let output = must(place.command(trodden()).arg("runs").args(arguments.split_whitespace()));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn raw_folders(place: &Place) -> usize {
    let Ok(entries) = fs::read_dir(place.path(".trodden")) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("raw-")).count()
}

#[test]
fn what_a_killed_recorder_left_is_listed_and_removed() {
    let place = place();
    let mut recorder = place.command(trodden()).args(["record", "--", "./prog", "wait"]).stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let raw =
        || fs::read_dir(place.path(".trodden")).into_iter().flatten().flatten().any(|e| e.path().join(".").is_dir() && has_raw(&e.path()));
    while !raw() {
        assert!(begun.elapsed() < Duration::from_secs(60) && recorder.try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!runs(&place, "").contains("left"), "one that runs has left nothing");
    runs(&place, "clean");
    assert_eq!(raw_folders(&place), 1);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder.id())).unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    must(Command::new("kill").args(children.split_whitespace()));
    fs::write(place.path(".trodden/profiles/.profile-half"), "half").unwrap();
    let reported = runs(&place, "");
    assert!(reported.contains("recordings that were killed left 2 files and folders") && reported.contains("/raw-"), "{reported}");
    let json: serde_json::Value = serde_json::from_str(&runs(&place, "--json")).unwrap();
    assert_eq!(json["left"].as_array().unwrap().len(), 2, "{json}");
    assert!(runs(&place, "clean").contains("2 files and folders removed"));
    assert!(raw_folders(&place) == 0 && !place.path(".trodden/profiles/.profile-half").exists());
}

fn has_raw(folder: &std::path::Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.any(|e| e.unwrap().path().extension().is_some_and(|end| end == "raw")))
}

/// A small disk for the time of a test; none where there is no right to mount one.
struct Disk<'a>(&'a Place);

impl Disk<'_> {
    fn from_place(place: &Place) -> Option<Disk<'_>> {
        fs::create_dir(place.path("disk")).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(place.path("disk")).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped, cannot mount");
            return None;
        }
        Some(Disk(place))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("disk")).status();
    }
}

#[test]
fn exports_that_do_not_fit_leave_what_was_there() {
    let place = place();
    must(place.command(trodden()).args("record --no-store -o run.trodden -- ./prog".split(' ')).stdin(Stdio::null()));
    let Some(_disk) = Disk::from_place(&place) else { return };
    place.write("disk/old.html", "an older page");
    for arguments in [
        "export html run.trodden -o disk/new.html",
        "export html run.trodden -o disk/old.html",
        "report run.trodden --html disk/new.html",
        "report run.trodden --html disk/old.html",
    ] {
        let output = place.command(trodden()).args(arguments.split(' ')).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {reported}");
        assert!(reported.contains("cannot write disk/") && reported.contains("No space left"), "{arguments}: {reported}");
        assert_eq!(fs::read_dir(place.path("disk")).unwrap().count(), 1, "{arguments}");
        assert_eq!(fs::read_to_string(place.path("disk/old.html")).unwrap(), "an older page", "{arguments}");
    }
}

#[test]
fn what_copies_get_and_print_is_their_users_alone() {
    let place = place();
    place.write("input", "a secret");
    let mut command = place.command(trodden());
    command.args("record --no-store -o run.trodden --copies 2 --no-first-run --work copies -- ./prog".split(' '));
    // By a pipe, of which a copy is kept.
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut recorder.stdin.take().unwrap(), b"a secret").unwrap();
    assert!(recorder.wait().unwrap().success());
    // It had the environment.
    assert!(!place.path("copies/job.json").exists());
    assert_eq!(fs::metadata(place.path("copies")).unwrap().permissions().mode() & 0o777, 0o700);
    for name in ["input", "out-0", "err-1"] {
        let mode = fs::metadata(place.path("copies").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// Runs a command in a process group of its own, as a shell does, and sends the group a signal when `has_begun` says so. Gives what is left
/// among temporary files.
fn left_by(place: &Place, arguments: &[&str], signal: &str, has_begun: impl Fn() -> bool) -> Vec<String> {
    let temporary = place.path("temporary");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = place.command(trodden());
    command.args(arguments).env("TMPDIR", &temporary).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn().unwrap();
    while !has_begun() {
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ends by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    must(Command::new("kill").args([format!("-{signal}"), "--".to_owned(), format!("-{}", child.id())]));
    let status = child.wait().unwrap();
    assert!(!status.success(), "{arguments:?}: {status}");
    names(&temporary)
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_signal_leaves_no_temporary_files() {
    let place = place();
    place.write("tests.txt", "./prog wait\n");
    let mut many = String::new();
    for number in 0..400 {
        many += &format!("int f{number}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i % 7 ? x : -i; return s; }}\n");
    }
    place.write("many.c", &(many + "int main(int c, char **v) { return f3(c); }\n"));
    place.cc("-O2 many.c -o many");
    let temporary = || !names(&place.path("temporary")).is_empty();
    let is_counting =
        || raw_folders(&place) > 0 && names(&place.path(".trodden")).iter().any(|name| has_raw(&place.path(".trodden").join(name)));
    for signal in ["INT", "TERM"] {
        let _ = fs::remove_file(place.path("begun"));
        let build = ["build", "--", "sh", "-c", "touch begun; exec sleep 1000"];
        assert_eq!(left_by(&place, &build, signal, || place.path("begun").exists()), [""; 0], "build, {signal}");
        assert_eq!(left_by(&place, &["instrument", "many", "-o", "other"], signal, temporary), [""; 0], "instrument, {signal}");
        assert_eq!(left_by(&place, &["simulate", "--", "./prog", "wait"], signal, temporary), [""; 0], "simulate, {signal}");
        let suite = ["suite", "run", "tests", "--commands", "tests.txt"];
        assert_eq!(left_by(&place, &suite, signal, is_counting), [""; 0], "suite run, {signal}");
        assert_eq!(raw_folders(&place), 0, "suite run, {signal}");
        assert!(!place.path("other").exists());
    }
}
