//! The run store as users see it: a lost index is rebuilt, and killed recordings do not lose other runs.

use crate::place::{Place, laboratory, must, trodden};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use trodden_profile::{Profile, RunStore};

const PROGRAM: &str = "int main(int n, char **v) { volatile int s = 0; for (int i = 0; i < 1000; i++) s += i; return n > 5; }";

fn create_place() -> Place {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    place
}

fn read_errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn list_runs(place: &Place) -> serde_json::Value {
    serde_json::from_slice(&place.trodden("runs --json").stdout).unwrap()
}

#[test]
fn variable_selects_the_store_and_messages_name_the_last_store() {
    let place = create_place();
    let named = place.path("elsewhere/runs");
    let with =
        |store: &std::path::Path, arguments: &[&str]| place.command(trodden()).args(arguments).env("TRODDEN_RUNS", store).output().unwrap();
    let recorded = with(&named, &["record", "--", "./prog"]);
    assert!(recorded.status.success() && named.join("runs.db").is_file(), "{}", read_errors(&recorded));
    assert!(!place.path(".trodden").exists());
    assert!(with(&named, &["report"]).status.success());
    let relative = with("elsewhere/runs".as_ref(), &["report"]);
    assert!(read_errors(&relative).contains("Set it to an absolute path"), "{}", read_errors(&relative));
    let missing = with(&place.path("nowhere"), &["report"]);
    assert!(
        read_errors(&missing).contains("no run store in") && read_errors(&missing).contains("TRODDEN_RUNS"),
        "{}",
        read_errors(&missing)
    );
    let elsewhere = read_errors(&place.command(trodden()).arg("report").output().unwrap());
    assert!(elsewhere.contains(&format!("the last run was stored in {}", named.display())), "{elsewhere}");
}

#[test]
fn laboratory_uses_the_store_that_the_variable_names() {
    let place = create_place();
    let named = place.path("elsewhere/runs");
    must(place.command(trodden()).args(["record", "--", "./prog"]).env("TRODDEN_RUNS", &named));
    for arguments in [
        "plan ./prog --profile last",
        "hot-paths last --known last",
        "loops ./prog",
        "with --max-paths 100 -- instrument ./prog -o again --interesting last",
    ] {
        let run =
            |store: &std::path::Path| place.command(laboratory()).args(arguments.split(' ')).env("TRODDEN_RUNS", store).output().unwrap();
        let said = read_errors(&run(&named));
        assert!(!said.contains("no run store"), "{arguments}: {said}");
        let relative = run("elsewhere/runs".as_ref());
        assert!(read_errors(&relative).contains("Set it to an absolute path"), "{arguments}: {}", read_errors(&relative));
        let missing = read_errors(&run(&place.path("nowhere")));
        assert!(missing.contains("which TRODDEN_RUNS names"), "{arguments}: {missing}");
    }
    let planned = |named: &std::path::Path| {
        place.command(laboratory()).args(["plan", "./prog", "--profile", "last", "--json"]).env("TRODDEN_RUNS", named).output().unwrap()
    };
    let plan: serde_json::Value = serde_json::from_slice(&planned(&named).stdout).unwrap();
    assert_eq!(plan["measured"], true);
}

#[test]
fn lost_index_is_rebuilt_with_one_message() {
    let place = create_place();
    place.trodden("record --suite nightly -- ./prog one");
    place.trodden("record -- ./prog two");
    place.trodden("runs suite smoke 2");
    let before = list_runs(&place);
    let profile = fs::read(place.path(".trodden/profiles/000001.trodden")).unwrap();
    for damage in ["", "no database"] {
        for name in ["runs.db-wal", "runs.db-shm"] {
            let _ = fs::remove_file(place.path(".trodden").join(name));
        }
        match damage.is_empty() {
            true => fs::remove_file(place.path(".trodden/runs.db")).unwrap(),
            false => fs::write(place.path(".trodden/runs.db"), damage).unwrap(),
        }
        // The lost index must be rebuilt even by a command that only reads and that runs in a subfolder.
        fs::create_dir_all(place.path("below")).unwrap();
        let output = must(place.command(trodden()).args(["runs", "--json"]).current_dir(place.path("below")));
        let said = read_errors(&output);
        assert!(said.contains("rebuilt from the profiles (2 runs)") && said.lines().count() == 1, "{said}");
        assert_eq!(read_errors(&place.trodden("runs")), "");
        assert_eq!(list_runs(&place), before);
    }
    for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        let _ = fs::remove_file(place.path(".trodden").join(name));
    }
    let said = read_errors(&place.trodden("record -- ./prog three"));
    assert!(said.contains("rebuilt from the profiles (2 runs)") && said.contains("recorded as run 3"), "{said}");
    assert_eq!(fs::read(place.path(".trodden/profiles/000001.trodden")).unwrap(), profile);
}

#[test]
fn corrupt_profiles_are_named_but_not_listed() {
    let place = create_place();
    place.trodden("record -- ./prog one");
    place.trodden("record -- ./prog two");
    let path = place.path(".trodden/profiles/000002.trodden");
    let whole = fs::read(&path).unwrap();
    fs::write(place.path(".trodden/profiles/000003.trodden"), &whole[..whole.len() / 2]).unwrap();
    let said = read_errors(&place.trodden("report last"));
    assert!(said.contains("000003.trodden is corrupt at byte"), "{said}");
    let output = place.trodden("runs");
    assert!(read_errors(&output).contains("000003.trodden is corrupt at byte"), "{}", read_errors(&output));
    let all = list_runs(&place);
    assert_eq!((all["runs"].as_array().unwrap().len(), all["unreadable"].as_array().unwrap().len()), (2, 1));
    assert!(read_errors(&place.trodden("record -- ./prog")).contains("recorded as run 4"));
    assert_eq!(fs::read(place.path(".trodden/profiles/000003.trodden")).unwrap(), whole[..whole.len() / 2]);
}

/// A user without write permission can read the store, even if its index is lost.
#[test]
fn stores_of_other_users_can_be_read() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped, needs root: a reader who is another user");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let place = create_place();
    fs::create_dir(place.path(".trodden")).unwrap();
    for folder in ["", ".trodden"] {
        fs::set_permissions(place.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.trodden("record -- ./prog one");
    for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        let _ = fs::remove_file(place.path(".trodden").join(name));
    }
    fs::create_dir(place.path("tmp")).unwrap();
    fs::set_permissions(place.path("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    // The other user may not be allowed to read trodden's own program file.
    fs::copy(trodden(), place.path("reader")).unwrap();
    let mut command = place.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(place.path("reader")).arg("runs");
    let output = must(command.env("TMPDIR", place.path("tmp")).env("HOME", place.path("tmp")));
    assert!(String::from_utf8_lossy(&output.stdout).contains("./prog one"), "{}", read_errors(&output));
    assert!(read_errors(&output).contains("was missing"), "{}", read_errors(&output));
    assert!(!place.path(".trodden/runs.db").exists());
}

#[test]
fn killed_recordings_lose_no_other_runs() {
    const RECORDING_COUNT: usize = 48;
    const PARALLEL_RECORDINGS: usize = 8;
    let place = create_place();
    place.trodden("record -- ./prog first");
    let record = |at: usize| -> Command {
        let mut command = place.command(trodden());
        command.args(["record", "--", "./prog", &format!("number-{at}")]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // The duration of a recording is measured while as many recordings run in parallel as below. The recordings below are killed after
    // fractions of it, and thus at all stages.
    let clock = Instant::now();
    let beside: Vec<_> = (0..PARALLEL_RECORDINGS).map(|at| record(at).spawn().unwrap()).collect();
    assert!(beside.into_iter().all(|mut recorder| recorder.wait().unwrap().success()));
    let usual = clock.elapsed();
    let mut completed: BTreeSet<String> = (0..PARALLEL_RECORDINGS).map(|at| format!("number-{at}")).collect();
    for group in 1..RECORDING_COUNT / PARALLEL_RECORDINGS {
        let numbers = group * PARALLEL_RECORDINGS..(group + 1) * PARALLEL_RECORDINGS;
        let mut recorders: Vec<_> = numbers.clone().map(|at| (at, record(at).spawn().unwrap())).collect();
        for (at, recorder) in &mut recorders {
            if *at % 4 != 0 {
                std::thread::sleep(usual * (1 + *at as u32 * 7 % 8) / 40 + Duration::from_millis(1));
                recorder.kill().unwrap();
            }
        }
        for (at, mut recorder) in recorders {
            if recorder.wait().unwrap().success() {
                completed.insert(format!("number-{at}"));
            }
        }
        if group == 3 {
            let _ = fs::remove_file(place.path(".trodden/runs.db"));
        }
    }
    let store = RunStore::find(&place.path("")).unwrap();
    let runs = store.list().unwrap();
    let listed: BTreeSet<String> = runs.iter().map(|run| run.run.command[1].clone()).collect();
    assert_eq!(listed.len(), runs.len(), "no recording is listed twice");
    assert!(listed.contains("first") && completed.is_subset(&listed), "{completed:?} {listed:?}");
    assert!(store.unreadable_profiles().unwrap().is_empty());
    let files = fs::read_dir(place.path(".trodden/profiles")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(files, runs.iter().map(|run| format!("{:06}.trodden", run.number)).collect());
    for run in &runs {
        assert_eq!(Profile::read(&run.profile).unwrap().run, run.run);
    }
}
