//! Ends recorders and kills their targets at random moments; `cargo xtask disturb` runs this test. Each program must behave as without a
//! trace, each recorder must end, and no temporary files may remain.

use crate::place::Disk;
use crate::traced::Folder;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = include_str!("../traced/disturbed.c");

/// The kinds of programs: name, number of rounds that take some tenths of a second, and exit status.
const PROGRAM_KINDS: [(&str, u64, i32); 4] = [("loops", 8000, 7), ("threads", 8000, 9), ("forks", 4000, 11), ("execs", 600, 13)];

/// Maximum time to wait for events that take less than a second on an idle machine.
const MAX_WAIT: Duration = Duration::from_secs(300);

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Disturbance {
    Signal(&'static str),
    Death,
    /// The temporary files and the trace are on a small disk.
    SmallDisk,
    /// The size of the recorder's files is limited.
    FileSize,
}

#[derive(Debug)]
struct Round {
    number: u64,
    kind: usize,
    amount: u64,
    collector: &'static str,
    is_attached: bool,
    disturbance: Disturbance,
    before: Duration,
    delay: Duration,
}

impl Round {
    fn random(random: &mut Random, number: u64) -> Round {
        use Disturbance::*;
        const DISTURBANCES: [Disturbance; 8] =
            [Signal("KILL"), Signal("KILL"), Signal("TERM"), Signal("QUIT"), Signal("INT"), Death, SmallDisk, FileSize];
        let kind = random.below(PROGRAM_KINDS.len() as u64) as usize;
        let collector = ["trampolines", "trampolines", "ptrace", "ptrace", "single-step"][random.below(5) as usize];
        let is_attached = random.below(2) == 0;
        // Collectors that stop the program make it many times slower, so it does fewer rounds.
        let share = match (collector, is_attached) {
            ("trampolines", _) => 1,
            (_, true) => 8,
            (_, false) => 100,
        };
        Round {
            number,
            kind,
            amount: PROGRAM_KINDS[kind].1 / share,
            collector,
            is_attached,
            disturbance: DISTURBANCES[random.below(8) as usize],
            before: Duration::from_millis(random.below(300)),
            delay: Duration::from_millis([random.below(300), random.below(1500)][random.below(2) as usize]),
        }
    }

    fn program_command(&self, folder: &Folder, output: &Path) -> Vec<String> {
        let (kind, amount) = (PROGRAM_KINDS[self.kind].0.to_owned(), self.amount.to_string());
        vec![folder.path("app").display().to_string(), kind, amount, output.display().to_string()]
    }

    /// Creates the recording command, without the program or process to trace.
    fn recorder_command(&self, temporary: &Path, trace: &Path, errors: &Path) -> Command {
        let limit = if self.disturbance == Disturbance::FileSize { "ulimit -f 8; " } else { "" };
        let mut recorder = Command::new("sh");
        recorder.args(["-c", &format!("{limit}exec \"$@\""), "sh", env!("CARGO_BIN_EXE_trodden"), "trace", "record", "--runs", "1"]);
        recorder.args(["--collector", self.collector, "--output"]).arg(trace).env("TMPDIR", temporary);
        recorder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(errors).unwrap());
        recorder
    }

    fn disturb(&self, recorder: &mut Child, target: Option<u32>) {
        let (signal, process) = match self.disturbance {
            Disturbance::Signal(signal) if recorder.try_wait().unwrap().is_none() => (signal, recorder.id()),
            Disturbance::Death if target.is_some() => ("KILL", target.unwrap()),
            _ => return,
        };
        // This fails if the process has just ended.
        let _ = Command::new("kill").args([format!("-{signal}"), process.to_string()]).stderr(Stdio::null()).status();
    }
}

fn wait_until(what: &str, round: &Round, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < MAX_WAIT, "{what}: {round:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn list_file_names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with(".trace")).collect()
}

fn start_program(words: &[String]) -> Child {
    Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).spawn().unwrap()
}

/// Returns the process ID of a program that a recorder started, if it is running. The program is recognised by its executable file, because
/// its command line is briefly empty while it executes itself again.
fn find_process(program: &[String]) -> Option<u32> {
    let file = fs::canonicalize(&program[0]).unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_its = |process: &u32| fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|found| found == file);
    // Children of the program have the same executable, but larger process IDs.
    processes.into_iter().filter(is_its).min()
}

fn run_round(folder: &Folder, round: &Round, disk: Option<&PathBuf>) {
    let at = |name: &str| folder.path(&format!("{name}-{}", round.number));
    let (reference, output) = (at("reference"), at("output"));
    let status = start_program(&round.program_command(folder, &reference)).wait().unwrap().code();
    assert_eq!(status, Some(PROGRAM_KINDS[round.kind].2));
    let expected = fs::read(&reference).unwrap();
    let own = at("temporary");
    fs::create_dir(&own).unwrap();
    let small = disk.filter(|_| round.disturbance == Disturbance::SmallDisk);
    let temporary = small.unwrap_or(&own);
    let trace = small.map_or_else(|| at("trace"), |disk| disk.join("the.trace"));

    let mut recorder = round.recorder_command(temporary, &trace, &at("errors"));
    let program = round.program_command(folder, &output);
    let mut target = None;
    if round.is_attached {
        let child = target.insert(start_program(&program));
        std::thread::sleep(round.before);
        recorder.args(["--pid", &child.id().to_string()]);
    } else {
        recorder.arg("--").args(&program);
    }
    let mut recorder = recorder.spawn().unwrap();
    std::thread::sleep(round.delay);
    let has_begun = find_process(&program).is_some();
    round.disturb(&mut recorder, target.as_ref().map(Child::id).or_else(|| find_process(&program)));

    if let Some(target) = &mut target {
        wait_until("the target hangs", round, || target.try_wait().unwrap().is_some());
        let status = target.wait().unwrap();
        if round.disturbance != Disturbance::Death {
            assert_eq!(status.code(), Some(PROGRAM_KINDS[round.kind].2), "{round:?}: {status}");
        }
    }
    wait_until("the recorder hangs", round, || recorder.try_wait().unwrap().is_some());
    // The tracer may outlive a killed recorder, and the program may outlive its tracer.
    wait_until("the program hangs", round, || find_process(&program).is_none());
    wait_until("temporary files are left", round, || list_file_names(temporary).is_empty());
    let may_end_early = match round.disturbance {
        Disturbance::Death => true,
        Disturbance::Signal("KILL") => !round.is_attached && !has_begun,
        // Signals to a recorder also go to the program that it started.
        Disturbance::Signal(_) => !round.is_attached,
        // If there is no room even for the beginning of a trace file, the program is not started.
        Disturbance::SmallDisk | Disturbance::FileSize => !round.is_attached && !has_begun && recorder.wait().unwrap().code() == Some(2),
    };
    match fs::read(&output) {
        Ok(found) => assert!(found == expected || may_end_early && found.is_empty(), "{round:?}: {found:?}, not {expected:?}"),
        Err(error) => assert!(may_end_early, "{round:?}: {error}, {}", fs::read_to_string(at("errors")).unwrap()),
    }
    let _ = fs::remove_file(&trace);
}

#[test]
#[ignore = "takes minutes: cargo xtask disturb"]
fn programs_survive_recorders_that_are_disturbed_at_random_moments() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (number("TRODDEN_ROUNDS", 20), number("TRODDEN_SEED", 1));
    let folder = Folder::new();
    folder.compile("cc", "disturbed.c", PROGRAMS);
    let place = folder.path("disk");
    let disk = Disk::mount(place.clone(), "300k").map(|disk| (disk, place));
    let mut random = Random(seed);
    for number in 0..rounds {
        let round = Round::random(&mut random, number);
        eprintln!("{round:?}");
        run_round(&folder, &round, disk.as_ref().map(|(_, place)| place));
    }
}
