//! Analyses random programs, which a small simulator runs: processes that compute, send, receive, lock and synchronise.
//!
//! In each program, one step is slow, so the true cause of waiting is known, and the analysis must find that this step causes most of the
//! waiting. The simulator determines only when processes enter calls and return from them. It shares no code with the analysis.

use std::collections::HashMap;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::call::{Collective, CommunicatorId, Message, ObjectId};
use trodden_waits::{
    Analysis, AnalysisOptions, Call, CodeId, CollectiveWaitRule, Diagnostic, LocationId, LocationState, PathPart, ProcessId, Step, StepId,
    Wait, WaitOutcome, explain_wait_class, find_causes,
};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

struct Event {
    time_ns: u64,
    process: usize,
    blocks: Vec<TimeBlock>,
    call: Call,
    is_exit: bool,
}

/// The simulated processes, each with its own time. The last digits of times differ between processes, so that no two events are at the
/// same time.
struct Machine {
    now: Vec<u64>,
    pending: Vec<Vec<TimeBlock>>,
    /// Time in ns at which the lock is released.
    free_ns: u64,
    events: Vec<Event>,
}

const UNIT_NS: u64 = 100;

impl Machine {
    fn new(processes: usize) -> Machine {
        Machine {
            now: (0..processes as u64).map(|p| p + 1).collect(),
            pending: vec![Vec::new(); processes],
            free_ns: 0,
            events: Vec::new(),
        }
    }

    fn compute(&mut self, process: usize, code: u32, units: u64) {
        self.now[process] += units * UNIT_NS;
        self.pending[process].push(TimeBlock { code: CodeId(code), state: LocationState::Computing, ns: units * UNIT_NS });
    }

    fn enter(&mut self, process: usize, call: &Call) -> u64 {
        let (time_ns, blocks) = (self.now[process], std::mem::take(&mut self.pending[process]));
        self.events.push(Event { time_ns, process, blocks, call: call.clone(), is_exit: false });
        time_ns
    }

    /// Returns from a call, one unit after `time_ns` or after the process's own time, whichever is later.
    fn exit(&mut self, process: usize, time_ns: u64, call: &Call) {
        let after = self.now[process].max(time_ns) + UNIT_NS;
        // Replaces the last digits of the time by those of the process.
        self.now[process] = after - after % UNIT_NS + process as u64 + 1;
        let time_ns = self.now[process];
        self.events.push(Event { time_ns, process, blocks: Vec::new(), call: call.clone(), is_exit: true });
    }

    fn exchange_messages(&mut self, by: usize, tag: i32) {
        let count = self.now.len();
        let message = |peer: usize| Message {
            communicator: CommunicatorId(0),
            peer: Some(ProcessId(peer as u32)),
            tag: Some(tag),
            is_buffered: false,
        };
        let sent: Vec<u64> = (0..count)
            .map(|process| {
                let call = Call::Send(message((process + by) % count), false);
                let entered = self.enter(process, &call);
                self.exit(process, entered, &call);
                entered
            })
            .collect();
        for process in 0..count {
            let from = (process + count - by) % count;
            let call = Call::Receive(message(from), None);
            self.enter(process, &call);
            self.exit(process, sent[from], &call);
        }
    }

    fn run_collective(&mut self, rule: CollectiveWaitRule, root: usize) {
        let count = self.now.len();
        let call = |process: usize| {
            let (rank, size) = (process as u32, count as u32);
            let is_barrier = rule == CollectiveWaitRule::All;
            Call::Collective(Collective {
                communicator: CommunicatorId(1),
                rule,
                is_root: process == root,
                rank,
                size,
                is_barrier,
                is_binding: true,
            })
        };
        let entered: Vec<u64> = (0..count).map(|process| self.enter(process, &call(process))).collect();
        let last = entered.iter().copied().max().unwrap();
        for process in 0..count {
            let until = match rule {
                CollectiveWaitRule::FromRoot => entered[root],
                CollectiveWaitRule::ToRoot if process != root => entered[process],
                CollectiveWaitRule::Scan => entered[..process].iter().copied().max().unwrap_or(0),
                _ => last,
            };
            self.exit(process, until, &call(process));
        }
    }

    /// Makes each process execute a critical section once, in the order in which they arrive.
    fn run_critical_section(&mut self, code: u32, units: impl Fn(usize) -> u64) {
        let mut order: Vec<usize> = (0..self.now.len()).collect();
        order.sort_by_key(|process| self.now[*process]);
        let (lock, unlock) = (Call::Lock(ObjectId(7)), Call::Unlock(ObjectId(7)));
        for process in order {
            if self.now[process] < self.free_ns {
                self.enter(process, &lock);
                self.exit(process, self.free_ns, &lock);
            }
            self.compute(process, code, units(process));
            self.free_ns = self.enter(process, &unlock);
            self.exit(process, self.free_ns, &unlock);
        }
    }

    fn analyse(mut self, is_same_process: bool) -> (Vec<Wait>, WaitOutcome) {
        self.events.sort_by_key(|event| event.time_ns);
        let mut analysis = Analysis::new(AnalysisOptions { has_expressions: true, ..AnalysisOptions::default() });
        for process in 0..self.now.len() as u32 {
            let owner = ProcessId(if is_same_process { 0 } else { process });
            analysis.start(LocationId(process), owner, u64::from(process) + 1, None, CodeId(999));
        }
        let mut waits = Vec::new();
        for event in &self.events {
            let location = LocationId(event.process as u32);
            if event.is_exit {
                waits.extend(analysis.exit(location, event.time_ns, &event.call));
            } else {
                analysis.enter(location, event.time_ns, &event.blocks, &event.call, CodeId(500));
            }
        }
        (waits, analysis.finish())
    }
}

/// Runs a random program, which repeats several phases, and in which one step is slow. Returns that step, the waits, and the result of the
/// analysis.
fn run_random_program(seed: u64, has_locks: bool) -> (Step, Vec<Wait>, WaitOutcome) {
    let mut random = Random(seed * 2_654_435_761 + 88_172_645_463_325_252);
    let processes = 2 + random.below(7) as usize;
    let phases: Vec<u64> = (0..1 + random.below(4)).map(|_| random.below(if has_locks { 1 } else { 5 })).collect();
    let slow = Step {
        location: LocationId(random.below(processes as u64) as u32),
        code: CodeId(random.below(phases.len() as u64) as u32),
        state: LocationState::Computing,
    };
    // Without locks, each iteration ends with a barrier. If it ended with a reduction, only the root would wait for the slow step.
    let mut machine = Machine::new(processes);
    for _ in 0..20 {
        for (index, phase) in phases.iter().enumerate() {
            let code = index as u32;
            let units: Vec<u64> = (0..processes)
                .map(|process| {
                    let is_slow = slow.location.0 as usize == process && slow.code.0 == code;
                    5 + random.below(20) + if is_slow { 4000 } else { 0 }
                })
                .collect();
            if has_locks {
                machine.run_critical_section(code, |process| units[process]);
                continue;
            }
            (0..processes).for_each(|process| machine.compute(process, code, units[process]));
            match phase {
                0 => machine.run_collective(CollectiveWaitRule::All, 0),
                1 => machine.run_collective(CollectiveWaitRule::FromRoot, random.below(processes as u64) as usize),
                2 => machine.run_collective(CollectiveWaitRule::ToRoot, random.below(processes as u64) as usize),
                3 => machine.run_collective(CollectiveWaitRule::Scan, 0),
                _ => machine.exchange_messages(1 + random.below(processes as u64 - 1) as usize, random.below(3) as i32),
            }
        }
        if !has_locks {
            machine.run_collective(CollectiveWaitRule::All, 0);
        }
    }
    let (waits, outcome) = machine.analyse(has_locks);
    (slow, waits, outcome)
}

fn check_slow_step_is_first(seed: u64, has_locks: bool) {
    let (slow, waits, outcome) = run_random_program(seed, has_locks);
    for wait in &waits {
        let sum = |path: &[(_, u64)]| path.iter().map(|(_, ns)| *ns).sum::<u64>();
        assert_eq!(sum(&wait.paths.plus) - sum(&wait.paths.minus), wait.wait_ns, "seed {seed}: {wait:?}");
        let waiting =
            wait.paths.plus.iter().chain(&wait.paths.minus).any(|(id, _)| outcome.steps.get(*id).state == LocationState::Unexplained);
        assert!(!waiting, "seed {seed}: a path contains waiting");
    }
    check_expressions(seed, &waits, &outcome);
    assert_eq!(outcome.diagnostics.iter().collect::<Vec<_>>(), [], "seed {seed}");
    let causes = find_causes(&outcome.steps, &outcome.sites);
    assert_eq!(causes.iter().map(|cause| cause.wait_ns).sum::<u64>(), outcome.wait_ns, "seed {seed}");
    assert_eq!(causes[0].step, slow, "seed {seed}: {causes:?}");
    for class in outcome.sites.iter().flat_map(|site| &site.classes) {
        let explained = explain_wait_class(&outcome.steps, class);
        let sum = |path: &[(_, u64)]| path.iter().map(|(_, ns)| *ns as i64).sum::<i64>();
        let left = sum(&explained.plus) - sum(&explained.minus);
        let dropped = explained.pairs_ns.0 as i64 - explained.pairs_ns.1 as i64;
        assert_eq!(left + dropped, class.total_ns as i64, "seed {seed}");
        assert!(dropped.unsigned_abs() as f64 <= 0.05 * class.total_ns as f64 + 1.0, "seed {seed}");
    }
}

/// Checks that the expressions of all waits, which add and subtract paths, contain the same times as the differences from the version tree.
fn check_expressions(seed: u64, waits: &[Wait], outcome: &WaitOutcome) {
    assert_eq!(outcome.expanded.len(), waits.len(), "seed {seed}");
    for (wait, expanded) in waits.iter().zip(&outcome.expanded) {
        let mut left: HashMap<PathPart, i128> = HashMap::new();
        let tree = |path: &[(StepId, u64)]| path.iter().map(|(id, ns)| (PathPart::Step(*id), i128::from(*ns))).collect::<Vec<_>>();
        let plus = [tree(&wait.paths.plus), expanded.expanded.minus.clone()].concat();
        let minus = [tree(&wait.paths.minus), expanded.expanded.plus.clone()].concat();
        plus.into_iter().for_each(|(part, ns)| *left.entry(part).or_default() += ns);
        minus.into_iter().for_each(|(part, ns)| *left.entry(part).or_default() -= ns);
        assert!(left.values().all(|ns| *ns == 0), "seed {seed}: {wait:?} {expanded:?}");
        let sum = |path: &[(PathPart, i128)]| path.iter().map(|(_, ns)| *ns).sum::<i128>();
        assert_eq!(sum(&expanded.first.plus) - sum(&expanded.first.minus), i128::from(wait.wait_ns), "seed {seed}: {expanded:?}");
    }
    let placed: HashMap<(LocationId, u64), usize> = outcome.expanded.iter().fold(HashMap::new(), |mut placed, wait| {
        *placed.entry((wait.placement.location, wait.placement.enter_ns)).or_default() += 1;
        placed
    });
    for class in outcome.sites.iter().flat_map(|site| &site.classes) {
        let first = (class.representative.location, class.representative.enter_ns);
        assert_eq!(placed.get(&first).copied(), Some(class.occurrences as usize), "seed {seed}");
    }
}

#[test]
fn slowed_step_of_a_message_passing_program_is_ranked_first() {
    (0..300).for_each(|seed| check_slow_step_is_first(seed, false));
}

#[test]
fn slowed_critical_section_is_ranked_first() {
    (0..300).for_each(|seed| check_slow_step_is_first(seed, true));
}

#[test]
fn executed_time_is_at_most_the_run_time_and_the_critical_path_equals_it() {
    let (_, _, outcome) = run_random_program(5, false);
    let mut by_location: HashMap<LocationId, u64> = HashMap::new();
    for (id, ns) in &outcome.executed {
        *by_location.entry(outcome.steps.get(*id).location).or_default() += ns;
    }
    assert!(by_location.values().all(|ns| *ns > 0 && *ns <= outcome.run_ns));
    assert_eq!(outcome.critical_path.iter().map(|(_, ns)| ns).sum::<u64>(), outcome.run_ns);
}

#[test]
fn contradictory_traces_are_diagnosed_without_panic() {
    let mut found = std::collections::BTreeSet::new();
    for seed in 1..400u64 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut analysis = Analysis::new(AnalysisOptions::default());
        for location in 0..3 {
            analysis.start(LocationId(location), ProcessId(location), random.below(100), None, CodeId(0));
        }
        let mut waits = Vec::new();
        for _ in 0..200 {
            let location = LocationId(random.below(4) as u32);
            let call = random_call(&mut random);
            let time = random.below(10_000);
            if random.below(2) == 0 {
                let blocks = [TimeBlock { code: CodeId(1), state: LocationState::Computing, ns: random.below(5000) }];
                analysis.enter(location, time, &blocks, &call, CodeId(2));
            } else {
                waits.extend(analysis.exit(location, time, &call));
            }
        }
        for wait in waits {
            let sum = |path: &[(_, u64)]| path.iter().map(|(_, ns)| *ns).sum::<u64>();
            assert_eq!(sum(&wait.paths.plus) - sum(&wait.paths.minus), wait.wait_ns, "seed {seed}");
        }
        found.extend(analysis.finish().diagnostics.iter().map(|(diagnostic, _)| diagnostic));
    }
    for expected in [Diagnostic::Unbalanced, Diagnostic::TimeRunsBack, Diagnostic::LeftBeforeEntered, Diagnostic::UnknownRequest] {
        assert!(found.contains(&expected), "{expected:?} not in {found:?}");
    }
}

fn random_call(random: &mut Random) -> Call {
    use trodden_waits::call::{CompletedRequest, RequestId, SleepKind, ThreadToken};
    let is_wildcard = random.below(4) == 0;
    let message = Message {
        communicator: CommunicatorId(0),
        peer: (!is_wildcard).then_some(ProcessId(random.below(4) as u32)),
        tag: (!is_wildcard).then_some(random.below(2) as i32),
        is_buffered: random.below(2) == 0,
    };
    let collective = Collective {
        communicator: CommunicatorId(random.below(2)),
        rule: [CollectiveWaitRule::All, CollectiveWaitRule::FromRoot, CollectiveWaitRule::ToRoot, CollectiveWaitRule::Scan]
            [random.below(4) as usize],
        is_root: random.below(2) == 0,
        rank: random.below(3) as u32,
        size: 3,
        is_barrier: random.below(2) == 0,
        is_binding: random.below(2) == 0,
    };
    let (request, object, token) = (RequestId(random.below(3)), ObjectId(random.below(2)), ThreadToken(random.below(3)));
    match random.below(18) {
        0 => Call::Send(message, random.below(2) == 0),
        1 => Call::Receive(message, is_wildcard.then_some((ProcessId(1), 0))),
        2 => Call::Exchange(message, message),
        3 => Call::Probe(message),
        4 => Call::Begin(message, random.below(2) == 0, request),
        5 => Call::Prepare(message, random.below(2) == 0, request),
        6 => Call::Start(vec![request]),
        7 => Call::Wait(vec![CompletedRequest { request, peer: Some(ProcessId(1)), tag: Some(0), is_cancelled: random.below(4) == 0 }]),
        8 => Call::Free(request),
        9 => Call::Collective(collective),
        10 => Call::BeginCollective(collective, request),
        11 => Call::BeginJob(0),
        12 => Call::Lock(object),
        13 => Call::Unlock(object),
        14 => Call::Sleep(object, SleepKind::Futex, random.below(2) == 0),
        15 => Call::Wake(object, random.below(3)),
        16 => Call::ThreadBarrier(object, 2),
        _ => [Call::Create(token), Call::End(token), Call::Join(token), Call::Blocked][random.below(4) as usize].clone(),
    }
}
