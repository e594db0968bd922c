//! The worked examples in the Carnival papers: figure 4, about the expansion of waits, and figure 2, about the equivalence of paths.

use trodden_waits::analysis::TimeBlock;
use trodden_waits::call::{Collective, CommunicatorId, Message};
use trodden_waits::{
    Analysis, AnalysisOptions, Call, ClassDistances, CodeId, CollectiveWaitRule, Diagnostic, LocationId, LocationState, PathPart,
    ProcessId, Step, Wait, WaitExplanation, WaitExpression, WaitKind, WaitOutcome, explain_wait_class, find_causes,
};

const START: CodeId = CodeId(1000);

fn start_locations(analysis: &mut Analysis, locations: u32) {
    (0..locations).for_each(|l| analysis.start(LocationId(l), ProcessId(l), 0, None, START));
}

fn block(code: u32, ns: u64) -> TimeBlock {
    TimeBlock { code: CodeId(code), state: LocationState::Computing, ns }
}

fn step(location: u32, code: u32) -> Step {
    Step { location: LocationId(location), code: CodeId(code), state: LocationState::Computing }
}

fn message(peer: u32) -> Message {
    Message { communicator: CommunicatorId(0), peer: Some(ProcessId(peer)), tag: Some(0), is_buffered: false }
}

/// Code blocks in figure 4. Process 0 executes A1 and A2, process 1 executes B1 and B3, and process 2 executes C1 and C3.
const A1: u32 = 1;
const A2: u32 = 2;
const B1: u32 = 3;
const B3: u32 = 4;
const C1: u32 = 5;
const C3: u32 = 6;

/// Runs the program in figure 4, with the given lengths of code blocks in ns. Process 0 executes A1, sends to process 1, executes A2, and
/// receives from process 2. Process 1 executes B1, receives, executes B3, and sends to process 2. Process 2 executes C1, receives, executes
/// C3, and sends to process 0.
fn run_figure_4([a1, a2, b1, b3, c1, c3]: [u64; 6]) -> (Vec<Wait>, WaitOutcome) {
    let [a, b, c] = [0, 1, 2].map(LocationId);
    let mut waits = Vec::new();
    let mut analysis = Analysis::new(AnalysisOptions { has_expressions: true, ..AnalysisOptions::default() });
    start_locations(&mut analysis, 3);
    let (send_b, send_c, send_a) = (Call::Send(message(1), false), Call::Send(message(2), false), Call::Send(message(0), false));
    let (recv_a, recv_b, recv_c) = (Call::Receive(message(0), None), Call::Receive(message(1), None), Call::Receive(message(2), None));
    analysis.enter(b, b1, &[block(B1, b1)], &recv_a, CodeId(101));
    analysis.enter(c, c1, &[block(C1, c1)], &recv_b, CodeId(102));
    analysis.enter(a, a1, &[block(A1, a1)], &send_b, CodeId(100));
    waits.extend(analysis.exit(a, a1, &send_b));
    waits.extend(analysis.exit(b, a1, &recv_a));
    analysis.enter(a, a1 + a2, &[block(A2, a2)], &recv_c, CodeId(103));
    analysis.enter(b, a1 + b3, &[block(B3, b3)], &send_c, CodeId(100));
    waits.extend(analysis.exit(b, a1 + b3, &send_c));
    waits.extend(analysis.exit(c, a1 + b3, &recv_b));
    analysis.enter(c, a1 + b3 + c3, &[block(C3, c3)], &send_a, CodeId(100));
    waits.extend(analysis.exit(c, a1 + b3 + c3, &send_a));
    waits.extend(analysis.exit(a, a1 + b3 + c3, &recv_c));
    (waits, analysis.finish())
}

/// One thread signals the condition while another thread holds the mutex. The thread that is woken therefore waits for the signal and then
/// for the mutex.
#[test]
fn woken_sleeper_then_waits_for_mutex_holder() {
    use trodden_waits::call::{ObjectId, SleepKind};
    let [sleeper, waker, holder] = [0, 1, 2].map(LocationId);
    let (condition, mutex) = (ObjectId(1), ObjectId(2));
    let sleep = Call::Sleep(condition, SleepKind::Condition(Some(mutex)), true);
    let (wake, unlock) = (Call::Wake(condition, 1), Call::Unlock(mutex));
    for (unlocked_ns, expected) in
        [(50, vec![(waker, WaitKind::Condition, 30), (holder, WaitKind::LockContention, 10)]), (20, vec![(waker, WaitKind::Condition, 30)])]
    {
        let mut analysis = Analysis::new(AnalysisOptions::default());
        (0..3).for_each(|l| analysis.start(LocationId(l), ProcessId(0), 0, None, START));
        analysis.enter(sleeper, 10, &[block(A1, 10)], &sleep, CodeId(100));
        let mut events = [(waker, 40, &wake, B1), (holder, unlocked_ns, &unlock, C1)];
        events.sort_by_key(|(_, at, ..)| *at);
        for (location, at, call, code) in events {
            analysis.enter(location, at, &[block(code, at)], call, CodeId(101));
            assert!(analysis.exit(location, at, call).is_empty());
        }
        let waits = analysis.exit(sleeper, 55, &sleep);
        let outcome = analysis.finish();
        assert_eq!(waits.iter().map(|w| (w.releaser, w.kind, w.wait_ns)).collect::<Vec<_>>(), expected);
        for wait in &waits {
            let (plus, minus) = paths(&outcome, wait);
            let sum = |path: &Path| path.iter().map(|(_, ns)| *ns).sum::<u64>();
            assert_eq!(sum(&plus) - sum(&minus), wait.wait_ns);
        }
    }
}

type Path = Vec<(Step, u64)>;

fn paths(outcome: &WaitOutcome, wait: &Wait) -> (Path, Path) {
    let steps = |path: &[_]| path.iter().map(|(id, ns)| (outcome.steps.get(*id), *ns)).collect();
    (steps(&wait.paths.plus), steps(&wait.paths.minus))
}

fn explain_site(outcome: &WaitOutcome, site: u32) -> WaitExplanation {
    let site = outcome.sites.iter().find(|s| s.site.code == CodeId(site)).unwrap();
    explain_wait_class(&outcome.steps, &site.classes[0])
}

#[test]
fn waits_of_figure_4_are_fully_expanded() {
    let (waits, outcome) = run_figure_4([10, 3, 4, 5, 6, 2]);
    assert_eq!(waits.iter().map(|w| (w.location.0, w.wait_ns)).collect::<Vec<_>>(), [(1, 6), (2, 9), (0, 4)]);
    assert!(waits.iter().all(|w| w.kind == WaitKind::LateSender));
    // B2 = A1 - B1.
    assert_eq!(paths(&outcome, &waits[0]), (vec![(step(0, A1), 10)], vec![(step(1, B1), 4)]));
    // C2, the wait of process 2, is A1 + B3 - C1. Process 1 has waited for A1 - B1 (B2), which cancels B1.
    assert_eq!(paths(&outcome, &waits[1]), (vec![(step(0, A1), 10), (step(1, B3), 5)], vec![(step(2, C1), 6)]));
    // A3, the wait of process 0, is B3 + C3 - A2. A1 is on both paths, so it is removed.
    let explained = explain_site(&outcome, 103);
    assert_eq!(explained.plus, [(step(1, B3), 5), (step(2, C3), 2)]);
    assert_eq!(explained.minus, [(step(0, A2), 3)]);
    for wait in &waits {
        let sum = |path: &[(_, u64)]| path.iter().map(|(_, ns)| *ns).sum::<u64>();
        assert_eq!(sum(&wait.paths.plus) - sum(&wait.paths.minus), wait.wait_ns);
    }
    assert_eq!((outcome.waits, outcome.wait_ns, outcome.unexplained_ns), (3, 19, 0));
    assert_eq!(outcome.diagnostics.iter().count(), 0);
}

fn format_as_published(outcome: &WaitOutcome, expression: &WaitExpression) -> [String; 2] {
    let name = |part: &PathPart| match part {
        PathPart::Wait(number) => ["B2", "C2", "A3"][*number].to_owned(),
        PathPart::Step(id) => ["", "A1", "A2", "B1", "B3", "C1", "C3"][outcome.steps.get(*id).code.0 as usize].to_owned(),
    };
    [&expression.plus, &expression.minus]
        .map(|path| path.iter().map(|(part, ns)| format!("{} {ns}", name(part))).collect::<Vec<_>>().join(" + "))
}

#[test]
fn waits_of_figure_4_have_the_published_expressions() {
    let (_, outcome) = run_figure_4([10, 3, 4, 5, 6, 2]);
    let first: Vec<_> = outcome.expanded.iter().map(|wait| format_as_published(&outcome, &wait.first)).collect();
    assert_eq!(first, [["A1 10", "B1 4"], ["B1 4 + B2 6 + B3 5", "C1 6"], ["C1 6 + C2 9 + C3 2", "A1 10 + A2 3"]]);
    let mut expanded: Vec<_> = outcome.expanded.iter().map(|wait| format_as_published(&outcome, &wait.expanded)).collect();
    // Steps are ordered by their first execution, so C1, which ends before A1, may precede it.
    expanded.iter_mut().flatten().for_each(|text| *text = text.replace("C1 6 + A1 10", "A1 10 + C1 6"));
    assert_eq!(expanded, [["A1 10", "B1 4"], ["A1 10 + B3 5", "C1 6"], ["A1 10 + B3 5 + C3 2", "A1 10 + A2 3"]]);
}

#[test]
fn causes_of_figure_4_add_up_to_its_waits() {
    let (_, outcome) = run_figure_4([10, 3, 4, 5, 6, 2]);
    let causes = find_causes(&outcome.steps, &outcome.sites);
    assert_eq!(causes.iter().map(|c| c.wait_ns).sum::<u64>(), 19);
    assert_eq!(causes[0].step, step(0, A1));
}

#[test]
fn critical_path_of_figure_4_is_a1_b3_c3() {
    let (_, outcome) = run_figure_4([10, 3, 4, 5, 6, 2]);
    let path: Vec<_> = outcome.critical_path.iter().map(|(id, ns)| (outcome.steps.get(*id), *ns)).collect();
    assert_eq!(path, [(step(0, A1), 10), (step(1, B3), 5), (step(2, C3), 2)]);
    assert_eq!(outcome.run_ns, 17);
}

#[test]
fn what_if_predicts_the_run_time_with_shorter_steps() {
    let run = |codes: &[u32], factor| {
        let question = Some((codes.iter().map(|c| CodeId(*c)).collect(), factor));
        let mut analysis = Analysis::new(AnalysisOptions { what_if: question, ..AnalysisOptions::default() });
        start_locations(&mut analysis, 2);
        let barrier = |rank| {
            let communicator = CommunicatorId(0);
            Call::Collective(Collective {
                communicator,
                rule: CollectiveWaitRule::All,
                is_root: false,
                rank,
                size: 2,
                is_barrier: true,
                is_binding: true,
            })
        };
        analysis.enter(LocationId(1), 40, &[block(2, 40)], &barrier(1), CodeId(100));
        analysis.enter(LocationId(0), 100, &[block(1, 100)], &barrier(0), CodeId(100));
        analysis.exit(LocationId(0), 101, &barrier(0));
        analysis.exit(LocationId(1), 102, &barrier(1));
        analysis.finish().what_if_ns
    };
    assert_eq!(run(&[], 0.5), 102);
    // Process 0 enters the barrier last. In the prediction, it enters earlier.
    assert_eq!(run(&[1], 0.5), 52);
    // If its code takes less than 40 ns, process 0 is no longer the last one, so a further reduction gains nothing.
    assert_eq!(run(&[1], 0.1), 42);
    assert_eq!(run(&[2], 0.1), 102);
}

/// Code in figure 2, by line: the barrier on line 3, the loops of process 0 on lines 6 and 8, and the loop of process 1 on line 10.
const LINE_3: u32 = 3;
const LINE_6: u32 = 6;
const LINE_8: u32 = 8;
const LINE_10: u32 = 10;

/// Runs the program in figure 2. In each of 100 turns, both processes meet at the barrier on line 3. Process 0 then executes the loops on
/// lines 6 and 8, and process 1 the loop on line 10, which takes longer. Process 1 starts 50 ns late, and the times of loops vary slightly.
/// Given a turn and a process, `ready` returns the time in ns for which the process waits for a processor before its loops.
fn run_figure_2(ready: impl Fn(u64, usize) -> u64) -> WaitOutcome {
    let mut analysis = Analysis::new(AnalysisOptions::default());
    analysis.start(LocationId(0), ProcessId(0), 0, None, START);
    analysis.start(LocationId(1), ProcessId(1), 50, None, START);
    let barrier = |rank| {
        let communicator = CommunicatorId(0);
        Call::Collective(Collective {
            communicator,
            rule: CollectiveWaitRule::All,
            is_root: false,
            rank,
            size: 2,
            is_barrier: true,
            is_binding: true,
        })
    };
    let mut now = [0, 50];
    for turn in 0..100u64 {
        let (six, eight, ten) = (1000 + turn % 7 * 10, 1500 + turn % 5 * 10, 4000 + turn % 3 * 20);
        let mut blocks =
            if turn == 0 { [vec![], vec![]] } else { [vec![block(LINE_6, six), block(LINE_8, eight)], vec![block(LINE_10, ten)]] };
        for (process, blocks) in blocks.iter_mut().enumerate().filter(|_| turn > 0) {
            blocks.insert(0, TimeBlock { state: LocationState::Ready, ..block(blocks[0].code.0, ready(turn, process)) });
        }
        let enter = [0, 1].map(|p: usize| now[p] + blocks[p].iter().map(|b| b.ns).sum::<u64>());
        analysis.enter(LocationId(0), enter[0], &blocks[0], &barrier(0), CodeId(LINE_3));
        analysis.enter(LocationId(1), enter[1], &blocks[1], &barrier(1), CodeId(LINE_3));
        now = [enter[1]; 2];
        (0..2).for_each(|p| drop(analysis.exit(LocationId(p), enter[1], &barrier(p))));
    }
    analysis.finish()
}

#[test]
fn barriers_of_figure_2_form_one_class_caused_by_line_10() {
    let outcome = run_figure_2(|_, _| 0);
    assert_eq!(outcome.sites.len(), 1);
    let site = &outcome.sites[0];
    assert_eq!((site.occurrences, site.site.code, site.site.kind), (100, CodeId(LINE_3), WaitKind::Barrier));
    assert_eq!(site.classes.iter().map(|c| c.occurrences).collect::<Vec<_>>(), [99, 1]);
    let explained = explain_wait_class(&outcome.steps, &site.classes[0]);
    assert_eq!(explained.plus.iter().map(|(s, _)| *s).collect::<Vec<_>>(), [step(1, LINE_10)]);
    assert_eq!(explained.minus.iter().map(|(s, _)| *s).collect::<Vec<_>>(), [step(0, LINE_8), step(0, LINE_6)]);
    assert_eq!(find_causes(&outcome.steps, &outcome.sites)[0].step, step(1, LINE_10));
}

#[test]
fn time_without_a_processor_splits_no_class_but_is_reported() {
    // Process 1 waits for a processor for up to 16,000 ns, four times as long as its loop. Process 0 waits for up to 320 ns, less than a
    // quarter of the time by which it is early.
    let ready = |turn: u64, process: usize| if process == 1 { turn * 7919 % 17 * 1000 } else { turn * 104_729 % 5 * 80 };
    let outcome = run_figure_2(ready);
    let site = &outcome.sites[0];
    assert_eq!(site.classes.iter().map(|c| c.occurrences).collect::<Vec<_>>(), [99, 1]);
    let ready_step = Step { state: LocationState::Ready, ..step(1, LINE_10) };
    let expected_ns: u64 = (1..100).map(|turn| ready(turn, 1)).sum();
    let explained = explain_wait_class(&outcome.steps, &site.classes[0]);
    assert_eq!(explained.plus.iter().find(|(step, _)| *step == ready_step).map(|(_, ns)| *ns), Some(expected_ns));
    assert!(find_causes(&outcome.steps, &outcome.sites).iter().any(|cause| cause.step == ready_step));
}

#[test]
fn class_records_its_first_wait_and_the_distances_of_the_others() {
    let outcome = run_figure_2(|_, _| 0);
    let class = &outcome.sites[0].classes[0];
    // The first turn starts at 50 ns. Process 0 executes its loops for 1,010 + 1,510 ns and then waits for process 1, whose loop takes
    // 4,020 ns.
    let first = &class.representative;
    assert_eq!((first.location.0, first.enter_ns, first.wait_ns), (0, 50 + 2520, 1500));
    // In turn n, with i = n mod 7 and j = n mod 5, line 6 takes 1,000 + 10 i of the 2,500 + 10 (i + j) ns of process 0. In the first turn,
    // these are 1,010 of 2,520 ns.
    let share = |turn: u64| (1000 + turn % 7 * 10) as f64 / (2500 + (turn % 7 + turn % 5) * 10) as f64;
    let distances: Vec<f64> = (1..100).map(|turn| 2.0 * (share(turn) - share(1)).abs()).collect();
    assert!((class.distances.sum - distances.iter().sum::<f64>()).abs() < 1e-9);
    assert!((class.distances.max - distances.iter().copied().fold(0.0, f64::max)).abs() < 1e-9);
    assert_eq!(outcome.sites[0].classes[1].distances, ClassDistances::default());
}

#[test]
fn only_members_of_nonbinding_operations_may_leave_early() {
    let run = |is_binding| {
        let mut analysis = Analysis::new(AnalysisOptions::default());
        start_locations(&mut analysis, 2);
        let call = |rank| {
            let communicator = CommunicatorId(0);
            Call::Collective(Collective {
                communicator,
                rule: CollectiveWaitRule::All,
                is_root: false,
                rank,
                size: 2,
                is_barrier: false,
                is_binding,
            })
        };
        analysis.enter(LocationId(0), 10, &[block(1, 10)], &call(0), CodeId(100));
        analysis.exit(LocationId(0), 20, &call(0));
        analysis.enter(LocationId(1), 30, &[block(2, 30)], &call(1), CodeId(100));
        analysis.exit(LocationId(1), 31, &call(1));
        let outcome = analysis.finish();
        (outcome.waits, outcome.diagnostics.count(Diagnostic::LeftBeforeEntered))
    };
    assert_eq!(run(false), (0, 0));
    assert_eq!(run(true), (0, 1));
}
