//! Tests jobs of small shell commands: results, retries, duplicate results, quoting, and the end of running tasks.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use trodden_launch::{JobEvent, Kubernetes, LaunchEngine, LaunchError, LaunchJob, LaunchTask, Local, StopFlag, Template, kubernetes};

fn create_job(folder: &Path, commands: &[&[&str]]) -> LaunchJob {
    let task = |(at, words): (usize, &&[&str])| LaunchTask {
        command: words.iter().map(OsString::from).collect(),
        environment: vec![("WORD".into(), "it's $HOME".into())],
        directory: folder.to_owned(),
        input: None,
        result: folder.join(format!("result-{at}")),
    };
    LaunchJob { name: "test".into(), folder: folder.join("the job's"), tasks: commands.iter().enumerate().map(task).collect() }
}

fn run(job: &LaunchJob, engine: &LaunchEngine, report: &mut dyn FnMut(JobEvent)) -> Result<Vec<u32>, LaunchError> {
    trodden_launch::run(job, engine, &StopFlag::new().unwrap(), report)
}

fn local_engine() -> LaunchEngine {
    LaunchEngine::Local(Local { parallel: 2, memory: None, retries: 1 })
}

fn read_result(folder: &Path, at: usize) -> String {
    fs::read_to_string(folder.join(format!("result-{at}"))).unwrap()
}

#[test]
fn task_gets_arguments_input_and_environment_and_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let write = "printf '%s|' \"$@\" \"$WORD\" > \"$LAUNCH_RESULT\"; cat >> \"$LAUNCH_RESULT\"";
    let second = "test -e tried && echo again > \"$LAUNCH_RESULT\" && exit 0; touch tried; exit 1";
    let mut job = create_job(folder.path(), &[&["sh", "-c", write, "sh", "a b", "'*'", "$x", ""], &["sh", "-c", second]]);
    fs::write(folder.path().join("in"), "input").unwrap();
    job.tasks[0].input = Some(folder.path().join("in"));
    let mut retried = Vec::new();
    let attempts = run(&job, &local_engine(), &mut |event| retried.extend(matches!(event, JobEvent::Retried(_)).then_some(event))).unwrap();
    assert_eq!((attempts, retried), (vec![1, 2], vec![JobEvent::Retried(1)]));
    assert_eq!(read_result(folder.path(), 0), "a b|'*'|$x||it's $HOME|input");
    assert_eq!(read_result(folder.path(), 1), "again\n");
    // Tasks with a result are not run again.
    assert_eq!(run(&job, &local_engine(), &mut |_| {}).unwrap(), [0, 0]);
}

#[test]
fn task_without_result_fails_the_job_and_ends_other_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let job = create_job(folder.path(), &[&["sh", "-c", "sleep 600 & sleep 600"], &["sh", "-c", "echo no luck >&2; exit 3"]]);
    let begun = Instant::now();
    let error = run(&job, &local_engine(), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, LaunchError::Failed { task: 1, last, .. } if last == "no luck; no luck"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    let silent = self::create_job(&folder.path().join("."), &[&["true"]]);
    assert!(matches!(run(&silent, &local_engine(), &mut |_| {}), Err(LaunchError::Failed { task: 0, .. })));
}

#[test]
fn leftover_processes_of_failed_task_are_killed_before_retry() {
    let folder = tempfile::tempdir().unwrap();
    // The first attempt leaves a process behind. The second attempt produces its result only if that process is gone.
    let command = "if ! test -e left; then sleep 600 & echo $! > left; exit 1; fi; n=0
        while grep -qs 'State:.*(sleeping)' /proc/$(cat left)/status; do n=$((n + 1)); test $n -lt 20 || exit 1; sleep 0.1; done
        echo alone > \"$LAUNCH_RESULT\"";
    let job = create_job(folder.path(), &[&["sh", "-c", command]]);
    assert_eq!(run(&job, &local_engine(), &mut |_| {}).unwrap(), [2]);
    assert_eq!(read_result(folder.path(), 0), "alone\n");
}

#[test]
fn second_result_must_equal_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let job = create_job(folder.path(), &[&["sh", "-c", "cat number > \"$LAUNCH_RESULT\""]]);
    let twice = LaunchEngine::Template(Template {
        line: "sh {script}; echo $(($(cat number) + STEP)) > number; sh {script}".into(),
        parallel: 1,
        retries: 0,
    });
    fs::write(folder.path().join("number"), "0\n").unwrap();
    let line = |step: &str| match &twice {
        LaunchEngine::Template(t) => LaunchEngine::Template(Template {
            line: format!("cd {}; {}", folder.path().display(), t.line.replace("STEP", step)),
            ..t.clone()
        }),
        _ => unreachable!(),
    };
    run(&job, &line("0"), &mut |_| {}).unwrap();
    fs::remove_file(&job.tasks[0].result).unwrap();
    assert!(matches!(run(&job, &line("1"), &mut |_| {}), Err(LaunchError::Duplicate { task: 0, .. })));
    assert_eq!(read_result(folder.path(), 0), "0\n");
}

#[test]
fn template_placeholders_are_expanded_and_rank_script_reads_rank() {
    let folder = tempfile::tempdir().unwrap();
    let write = ["sh", "-c", "echo $PLACE > \"$LAUNCH_RESULT\""];
    let template = |line: &str| LaunchEngine::Template(Template { line: line.into(), parallel: 2, retries: 0 });
    let one = create_job(folder.path(), &[&write, &write]);
    run(&one, &template("PLACE=h{index}-{count} sh {script}"), &mut |_| {}).unwrap();
    assert_eq!((read_result(folder.path(), 0), read_result(folder.path(), 1)), ("h0-2\n".into(), "h1-2\n".into()));
    let other = tempfile::tempdir().unwrap();
    let mpi = "for rank in 0 1; do PLACE=r$rank OMPI_COMM_WORLD_RANK=$rank sh {each}; done";
    run(&create_job(other.path(), &[&write, &write]), &template(mpi), &mut |_| {}).unwrap();
    assert_eq!((read_result(other.path(), 0), read_result(other.path(), 1)), ("r0\n".into(), "r1\n".into()));
    let none = create_job(&folder.path().join("."), &[&write]);
    assert!(matches!(run(&none, &template("ssh host"), &mut |_| {}), Err(LaunchError::NoPlaceholder(_))));
}

#[test]
fn memory_limit_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let job = create_job(folder.path(), &[&["sh", "-c", "ulimit -v > \"$LAUNCH_RESULT\""]]);
    run(&job, &LaunchEngine::Local(Local { memory: Some(1 << 30), ..Local::default() }), &mut |_| {}).unwrap();
    assert_eq!(read_result(folder.path(), 0), "1048576\n");
}

#[test]
fn manifest_has_an_index_per_task() {
    let job = create_job(Path::new("/shared"), &[&["true"], &["true"]]);
    let kubernetes = Kubernetes { image: "tools:1".into(), claim: "data".into(), mount: "/shared".into(), retries: 3 };
    let text = kubernetes::render_job_manifest(&job, &kubernetes);
    for line in [
        "completionMode: Indexed",
        "completions: 2",
        "backoffLimitPerIndex: 3",
        "image: \"tools:1\"",
        "command: [\"sh\", \"/shared/the job's/each.sh\"]",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// Simulates Kubernetes by running the manifest's command for each index, in reverse order. The first attempt of one task is killed.
#[test]
fn manifest_commands_produce_all_results() {
    let folder = tempfile::tempdir().unwrap();
    let write = ["sh", "-c", "test -e tried || { touch tried; kill -9 $$; }; echo $WORD $JOB_COMPLETION_INDEX > \"$LAUNCH_RESULT\""];
    let job = create_job(folder.path(), &[&write, &write, &write]);
    let manifest = job.folder.join("job.yaml");
    let engine =
        LaunchEngine::Kubernetes(Kubernetes { image: "tools:1".into(), claim: "data".into(), mount: "/shared".into(), retries: 3 });
    let cluster = std::thread::spawn(move || {
        let text = loop {
            match fs::read_to_string(&manifest) {
                Ok(text) if text.ends_with("claimName: \"data\"\n") => break text,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let value = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim().to_owned();
        let words = value("command: [").trim_end_matches(']').replace('"', "");
        let (shell, script) = words.split_once(", ").unwrap();
        let pods = (0..value("completions:").parse::<u32>().unwrap()).rev();
        let run = |index: u32| Command::new(shell).arg(script).env("JOB_COMPLETION_INDEX", index.to_string()).status().unwrap();
        pods.map(|index| if run(index).success() { 1 } else { 1 + u32::from(run(index).success()) }).collect::<Vec<u32>>()
    });
    run(&job, &engine, &mut |_| {}).unwrap();
    assert_eq!(cluster.join().unwrap(), [2, 1, 1]);
    assert_eq!([0, 1, 2].map(|at| read_result(folder.path(), at)), ["it's $HOME 0\n", "it's $HOME 1\n", "it's $HOME 2\n"]);
}
