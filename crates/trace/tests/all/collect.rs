//! Compares collectors on system programs: breakpoints must record what single-stepping records at the same sites.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use trodden_trace::{
    Collector, Executable, FixedRunConditions, FollowEnding, InheritedSignals, Launcher, ProgramStart, PtraceBreakpoints, RESUMED_FLAG,
    RunLog, RunOutcome, RunTarget, SingleStep, Sink, SinkFlow, TRANSFER_FLAG, ThreadNumber, TraceRun, UprobeCollector,
};

#[derive(Default)]
struct Streams(Vec<Vec<u64>>);

impl Sink for Streams {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> std::io::Result<SinkFlow> {
        self.0.resize(self.0.len().max(thread.0 as usize + 1), Vec::new());
        self.0[thread.0 as usize].push(what & !(TRANSFER_FLAG | RESUMED_FLAG));
        Ok(SinkFlow::Continue)
    }
}

fn collect(collector: &dyn Collector, command: ProgramStart, sites: &[u64], first: Option<Arc<RunLog>>) -> (Vec<Vec<u64>>, RunOutcome) {
    let executable = Executable::read(Path::new(&command.program)).unwrap();
    let mut streams = Streams::default();
    let core = trodden_trace::cores().first().copied();
    let stop = AtomicBool::new(false);
    let recipe = FixedRunConditions { core, ..FixedRunConditions::ALL };
    let run = TraceRun {
        target: RunTarget::Start(Box::new(command)),
        executable: &executable,
        sites,
        jumps: &[],
        blocks: &[],
        guarded: &HashSet::new(),
        unwatched: &HashSet::new(),
        libraries: &[],
        recipe,
        first,
        stop: &stop,
        limit: None,
        process_sender: None,
        children: None,
        note: |_| {},
    };
    let outcome = std::thread::scope(|s| s.spawn(|| collector.collect(run, &mut streams)).join().unwrap()).unwrap();
    (streams.0, outcome)
}

fn command(line: &[&str], input: &Path) -> ProgramStart {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    let mut program = ProgramStart::new(&Launcher::fork(&InheritedSignals::now()).unwrap(), &command);
    let nothing = || Some(File::options().write(true).open("/dev/null").unwrap().into());
    program.streams = [Some(File::open(input).unwrap().into()), nothing(), nothing()];
    program
}

/// Returns the addresses that were jumped to, which are starts of blocks.
fn jump_targets(steps: &[u64]) -> BTreeSet<u64> {
    steps.windows(2).filter(|w| w[1] < w[0] || w[1] > w[0] + 15).map(|w| w[1]).collect()
}

fn check_against_stepping(line: &[&str], input: &str) {
    check_collector_against_stepping(&PtraceBreakpoints, line, input);
}

fn check_collector_against_stepping(collector: &dyn Collector, line: &[&str], input: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input");
    std::fs::write(&file, input).unwrap();
    let (steps, first) = collect(&SingleStep, command(line, &file), &[], None);
    assert!(steps[0].len() > 100, "{} steps", steps[0].len());
    let sites: Vec<u64> = jump_targets(&steps[0]).into_iter().collect();
    let (hits, second) = collect(collector, command(line, &file), &sites, Some(Arc::new(first.log)));
    assert_eq!(second.divergence, None);
    assert_eq!(first.followed.status, second.followed.status);
    let expected: Vec<u64> = steps[0].iter().copied().filter(|s| sites.binary_search(s).is_ok()).collect();
    let found: Vec<u64> = hits[0].iter().map(|site| sites[*site as usize]).collect();
    assert_eq!(found.len(), expected.len());
    assert!(found == expected, "they differ at {:?}", found.iter().zip(&expected).position(|(a, b)| a != b));
}

#[test]
fn breakpoints_agree_with_stepping_on_gzip() {
    check_against_stepping(&["/usr/bin/gzip", "-c"], "a small text, a small text\n");
}

#[test]
fn breakpoints_agree_with_stepping_on_sed() {
    check_against_stepping(&["/usr/bin/sed", "s/a/b/;p"], "a small text\nof lines\n");
}

/// Returns true if this process may set probes, which requires root.
fn may_probe() -> bool {
    let root = std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|l| l.starts_with("Uid:\t0\t"));
    let has = Path::new("/sys/bus/event_source/devices/uprobe").exists();
    if !(root && has) {
        eprintln!("skipped: this user may not set uprobes, or the kernel has none");
    }
    root && has
}

#[test]
fn uprobes_agree_with_stepping() {
    if may_probe() {
        check_collector_against_stepping(&UprobeCollector, &["/usr/bin/gzip", "-c"], "a small text, a small text\n");
        check_collector_against_stepping(&UprobeCollector, &["/usr/bin/sed", "s/a/b/;p"], "a small text\nof lines\n");
    }
}

#[test]
fn signal_that_killed_the_program_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input");
    std::fs::write(&file, "").unwrap();
    let (_, outcome) = collect(&SingleStep, command(&["/usr/bin/dash", "-c", "kill -9 $$"], &file), &[], None);
    assert_eq!(outcome.followed.ending, FollowEnding::Killed(9));
}

/// Simulates a fault of the tracer: panics at the hundredth hit.
struct PanickingSink(u32);

impl Sink for PanickingSink {
    fn record(&mut self, _: ThreadNumber, _: u64) -> std::io::Result<SinkFlow> {
        self.0 += 1;
        assert!(self.0 < 100, "this panic is meant");
        Ok(SinkFlow::Continue)
    }
}

#[test]
fn program_survives_a_panicking_collector() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input");
    std::fs::write(&file, "a small text\n").unwrap();
    let line = ["/usr/bin/dash", "-c", "read word rest; i=0; while test $i -lt 20; do i=$((i + 1)); done; exit $i"];
    let (steps, whole) = collect(&SingleStep, command(&line, &file), &[], None);
    assert_eq!(whole.followed.ending, FollowEnding::Exited(20));
    let sites: Vec<u64> = jump_targets(&steps[0]).into_iter().collect();
    let executable = Executable::read(Path::new(line[0])).unwrap();
    for collector in [&PtraceBreakpoints as &dyn Collector, &SingleStep] {
        let (sender, begun) = std::sync::mpsc::channel();
        let run = TraceRun {
            target: RunTarget::Start(Box::new(command(&line, &file))),
            executable: &executable,
            sites: &sites,
            jumps: &[],
            blocks: &[],
            guarded: &HashSet::new(),
            unwatched: &HashSet::new(),
            libraries: &[],
            recipe: FixedRunConditions::ALL,
            first: None,
            stop: &AtomicBool::new(false),
            limit: None,
            process_sender: Some(sender),
            children: None,
            note: |_| {},
        };
        let collected = std::thread::scope(|s| s.spawn(|| collector.collect(run, &mut PanickingSink(0))).join());
        assert!(collected.is_err(), "{}", collector.name());
        // The program continues untraced.
        let status = trodden_trace::wait_for_child(begun.recv().unwrap() as i32).unwrap();
        assert_eq!(status, 20 << 8, "{}", collector.name());
    }
}
