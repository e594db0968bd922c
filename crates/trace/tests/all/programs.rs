//! Tests of the programs that a command runs: how they are distinguished, what is reported about them, and how they end.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use trodden_trace::{FollowRequest, InheritedSignals, Launcher, ProcessEvent, ProgramStart, StartedProgram, TraceError, follow};

/// Runs a script. Returns its status, the programs in the order of their start, and the number of processes of each.
fn programs(script: &str) -> (ExitStatus, Vec<(StartedProgram, usize)>) {
    let script = script.to_owned();
    let run = move || {
        let (mut command, mut ended, mut left) = (Command::new("bash"), Vec::new(), Vec::new());
        command.args(["-c", &script]);
        let report = &mut |event| match event {
            ProcessEvent::Left { program, .. } => left.push(program),
            ProcessEvent::Ended(program) => ended.push(program),
        };
        let command = ProgramStart::new(&Launcher::fork(&InheritedSignals::now()).unwrap(), &command);
        let status = follow(FollowRequest { command, variable: "NAME", on_start: &mut |_| {}, report }).unwrap();
        ended.sort_by_key(|p| p.id);
        let of = |p: StartedProgram| {
            let processes = left.iter().filter(|id| **id == p.id).count();
            (p, processes)
        };
        (status, ended.into_iter().map(of).collect())
    };
    std::thread::spawn(run).join().unwrap()
}

#[test]
fn each_program_is_reported_with_its_arguments_and_its_end() {
    let (status, all) = programs(
        "NAME=one sh -c 'exit 3'; NAME='a b' sh -c 'kill -9 $$'; sh -c 'kill -SEGV $$' 2>/dev/null; cd /; true; /bin/true x ''; exit 7",
    );
    assert_eq!(status.code(), Some(7));
    let seen: Vec<_> =
        all.iter().map(|(p, n)| (p.command.last().unwrap().as_str(), p.variable.as_deref(), p.ending.unwrap(), *n)).collect();
    let (exit, signal) = (|code: i32| ExitStatus::from_raw(code << 8), ExitStatus::from_raw);
    assert_eq!(seen[1..3], [("exit 3", Some("one"), exit(3), 1), ("kill -9 $$", Some("a b"), signal(9), 1)]);
    assert_eq!((seen[3].2.signal(), seen[4]), (Some(11), ("", None, exit(0), 1)));
    assert_eq!((all[4].0.command.as_slice(), all[4].0.directory.as_str()), (["/bin/true", "x", ""].map(str::to_owned).as_slice(), "/"));
    assert_eq!(all.len(), 5);
}

#[test]
fn forked_processes_belong_to_their_program_and_executed_files_do_not() {
    // Two subshells that execute nothing, one that does, and a program that executes a different program.
    let (_, all) = programs("(:; true) & (for i in 1 2 3; do :; done) & (sh -c 'exec sleep 0.01') & wait; exec true");
    let seen: Vec<_> = all.iter().map(|(p, n)| (p.command.join(" "), p.ending.is_some(), *n)).collect();
    let of = |begin: &str| seen.iter().find(|s| s.0.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {seen:?}"));
    let shell = of("bash -c");
    assert!(!shell.1, "it became another program");
    assert!(shell.2 == 3 || shell.2 == 4, "some shells execute the last command of a subshell in it: {seen:?}");
    assert!(of("sleep 0.01").1 && of("true").1, "{seen:?}");
}

#[test]
fn signals_reach_their_processes() {
    // Real-time signals have no names.
    let script =
        "n=0; trap 'n=$((n + 1))' USR1; trap 'n=$((n + 10))' RTMIN; kill -USR1 $$; kill -RTMIN $$; sh -c \"kill -USR1 $$\"; exit $n";
    assert_eq!(programs(script).0.code(), Some(12));
}

#[test]
fn stopped_process_stays_stopped() {
    let script = "sleep 0.1 & p=$!; kill -STOP $p; sleep 0.3; read _ _ state _ </proc/$p/stat; kill -CONT $p; wait $p; echo $state $? \
        >&2; case $state in T|t) exit 0;; *) exit 1;; esac";
    assert_eq!(programs(script).0.code(), Some(0));
}

#[test]
fn concurrent_programs_are_distinguished() {
    let (status, all) =
        programs("for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5; do sh -c \"exit $j\" & done; wait) & done; wait; exit 0");
    assert!(status.success());
    for code in 1..=5 {
        let word = format!("exit {code}");
        assert_eq!(all.iter().filter(|(p, _)| p.command.last() == Some(&word) && p.ending.unwrap().code() == Some(code)).count(), 8);
    }
}

#[test]
fn missing_program_is_an_error() {
    let launcher = Launcher::fork(&InheritedSignals::now()).unwrap();
    let command = ProgramStart::new(&launcher, &Command::new("./missing"));
    let run = || follow(FollowRequest { command, variable: "", on_start: &mut |_| {}, report: &mut |_| {} });
    let error = std::thread::spawn(move || run().unwrap_err()).join().unwrap();
    assert!(matches!(error, TraceError::Start(ref e) if e.kind() == std::io::ErrorKind::NotFound), "{error}");
}
