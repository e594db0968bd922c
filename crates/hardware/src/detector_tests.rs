//! Compares the detector's paths with executions worked out by hand: tables 5.1 and 5.2, extended paths, limits and repairs.

use super::*;
use crate::mapping::MappingPreset;
use crate::stream::BranchKind;

fn branch(kind: BranchKind, address: u64, target: u64, is_taken: bool) -> RetiredBranch {
    let (address, target, fall_through) = (Address(address), Address(target), Address(address + 2));
    RetiredBranch { address, target, fall_through, kind, is_taken, instructions: 3, stack: None }
}

fn conditional(address: u64, target: u64, is_taken: bool) -> RetiredBranch {
    branch(BranchKind::Conditional, address, target, is_taken)
}

/// `main` at 0x100 calls a procedure at 0x200, whose loop has two iterations. The loop's forward branch is first not taken, then taken;
/// its backward branch is first taken, then not.
fn example_branches() -> Vec<RetiredBranch> {
    vec![
        conditional(0x104, 0x110, true),
        branch(BranchKind::Call, 0x118, 0x200, true),
        conditional(0x204, 0x210, false),
        branch(BranchKind::Jump, 0x208, 0x214, true),
        conditional(0x21c, 0x200, true),
        conditional(0x204, 0x210, true),
        conditional(0x21c, 0x200, false),
        branch(BranchKind::Return, 0x220, 0x11a, true),
        conditional(0x120, 0x130, false),
        branch(BranchKind::IndirectJump, 0x124, 0x140, true),
        branch(BranchKind::Return, 0x148, 0x50, true),
    ]
}

fn format_path(path: &PathDescriptor) -> String {
    let outcomes: String = path.outcomes().map(|o| if o { '1' } else { '0' }).collect();
    format!("{:x}:{outcomes}", path.start.0)
}

fn run_with(parameters: DetectorParameters, start: u64, branches: &[RetiredBranch]) -> (Vec<String>, Detector) {
    let mut detector = Detector::new(parameters).unwrap();
    let mut paths = Vec::new();
    let mut emit = |p: &CompletedPath| paths.push(format_path(&p.path));
    detector.process_event(&StreamEvent::Begin(Address(start)), &EventCounts::default(), &mut emit);
    branches.iter().for_each(|b| detector.process_branch(b, &EventCounts::default(), &mut emit));
    (paths, detector)
}

fn find_paths(mapping: OperationMapping, branches: &[RetiredBranch]) -> Vec<String> {
    run_with(DetectorParameters::published(mapping), 0x100, branches).0
}

#[test]
fn ball_larus_paths_end_at_backward_branches() {
    let found = find_paths(OperationMapping::preset(MappingPreset::BallLarus, 1), &example_branches());
    // The caller's path continues after the call, but does not contain it. The last backward branch is followed by a path without branches.
    assert_eq!(found, ["200:011", "200:10", "21e:", "100:101", "140:"]);
}

#[test]
fn whole_program_paths_also_end_at_calls() {
    let found = find_paths(OperationMapping::preset(MappingPreset::WholeProgram, 1), &example_branches());
    assert_eq!(found, ["100:1", "200:011", "200:10", "21e:", "11a:01", "140:"]);
}

#[test]
fn extended_loop_paths_span_backward_branches() {
    let found = find_paths(OperationMapping::preset(MappingPreset::ExtendedLoops, 1), &example_branches());
    assert_eq!(found, ["200:01110", "21e:", "100:101", "140:"]);
    let found = find_paths(OperationMapping::preset(MappingPreset::ExtendedLoops, 2), &example_branches());
    assert_eq!(found, ["200:01110", "100:101", "140:"]);
}

#[test]
fn extended_call_paths_span_calls() {
    // The path of `main` continues in the callee, and the path that starts in the callee continues in `main` after the return.
    let found = find_paths(OperationMapping::preset(MappingPreset::ExtendedCalls, 1), &example_branches());
    assert_eq!(found, ["100:1011", "200:10", "21e:01", "140:"]);
}

#[test]
fn events_are_summed_along_paths() {
    let mut detector = Detector::new(DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1))).unwrap();
    let mut sums = Vec::new();
    let mut emit = |p: &CompletedPath| sums.push(p.events.0[0]);
    detector.process_event(&StreamEvent::Begin(Address(0x100)), &EventCounts::default(), &mut emit);
    for branch in example_branches() {
        detector.process_branch(&branch, &EventCounts([branch.instructions, 0, 0, 0, 0, 0, 0, 0]), &mut emit);
    }
    assert_eq!(sums, [9, 6, 3, 12, 3]);
}

#[test]
fn long_paths_are_split_at_the_limit() {
    let branches: Vec<RetiredBranch> = (0..70).map(|at| conditional(0x104 + 4 * at, 0x900, at % 2 == 0)).collect();
    let (found, detector) =
        run_with(DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1)), 0x100, &branches);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], format!("100:{}", "10".repeat(16)));
    // The last branch of the first path was not taken, so the next path begins after it.
    assert_eq!(found[1], format!("{:x}:{}", 0x104 + 4 * 31 + 2, "10".repeat(16)));
    assert_eq!(detector.counts().splits, 2);
}

#[test]
fn path_of_exactly_the_limit_is_not_split() {
    let mut branches: Vec<RetiredBranch> = (0..31).map(|at| conditional(0x104 + 4 * at, 0x900, false)).collect();
    branches.push(conditional(0x200, 0x100, true));
    let (found, detector) =
        run_with(DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1)), 0x100, &branches);
    assert_eq!((found.len(), detector.counts().splits), (1, 0));
}

#[test]
fn stack_is_repaired_after_longjmp() {
    let call = |at: u64, to: u64| branch(BranchKind::Call, at, to, true);
    // The function at 0x100 calls 0x200, which calls 0x300. The function at 0x300 jumps back into 0x100, which then returns to its caller.
    let branches = [
        call(0x80, 0x100),
        call(0x108, 0x200),
        call(0x208, 0x300),
        branch(BranchKind::IndirectJump, 0x308, 0x10a, true),
        conditional(0x110, 0x120, true),
        branch(BranchKind::Return, 0x124, 0x82, true),
        conditional(0x88, 0x90, true),
    ];
    let published = DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1));
    let (found, mut detector) = run_with(published, 0x70, &branches);
    assert_eq!(found, ["300:1", "10a:1"]);
    assert_eq!((detector.counts().repairs, detector.stacks.paths().depth()), (1, 1));
    let (_, mut naive) = run_with(DetectorParameters { repair: StackRepair::None, ..published }, 0x70, &branches);
    assert_eq!(naive.stacks.paths().depth(), 3);
}

#[test]
fn return_without_call_ends_the_path_but_pops_no_caller() {
    let branches = [branch(BranchKind::Call, 0x80, 0x100, true), branch(BranchKind::Return, 0x110, 0x500, true)];
    let (found, mut detector) =
        run_with(DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1)), 0x70, &branches);
    assert_eq!(found, ["100:"]);
    assert_eq!((detector.counts().unmatched_returns, detector.stacks.paths().depth()), (1, 2));
}

#[test]
fn handler_does_not_disturb_the_interrupted_path() {
    let mut detector = Detector::new(DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1))).unwrap();
    let mut found = Vec::new();
    let mut emit = |p: &CompletedPath| found.push(format_path(&p.path));
    let none = EventCounts::default();
    detector.process_event(&StreamEvent::Begin(Address(0x100)), &none, &mut emit);
    detector.process_branch(&conditional(0x104, 0x110, true), &none, &mut emit);
    detector.process_event(&StreamEvent::Interrupt(Address(0x700)), &none, &mut emit);
    detector.process_branch(&branch(BranchKind::Call, 0x708, 0x800, true), &none, &mut emit);
    detector.process_branch(&branch(BranchKind::Return, 0x808, 0x70a, true), &none, &mut emit);
    detector.process_branch(&branch(BranchKind::Return, 0x710, 0x900, true), &none, &mut emit);
    detector.process_event(&StreamEvent::Resume(Address(0x110)), &none, &mut emit);
    detector.process_branch(&conditional(0x118, 0x100, false), &none, &mut emit);
    assert_eq!(found, ["800:", "700:", "100:10"]);
}

#[test]
fn recursion_deeper_than_the_stack_overflows_or_spills() {
    let mut branches: Vec<RetiredBranch> = (0..40).map(|_| branch(BranchKind::Call, 0x110, 0x100, true)).collect();
    branches.extend((0..40).map(|_| branch(BranchKind::Return, 0x120, 0x112, true)));
    let published = DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1));
    let (found, detector) = run_with(published, 0x100, &branches);
    let counts = detector.counts();
    assert_eq!((found.len(), counts.overflows, counts.max_depth, counts.underflows), (40, 9, 32, 9));
    let (spilled, detector) = run_with(DetectorParameters { overflow: StackOverflowPolicy::Spill, ..published }, 0x100, &branches);
    assert_eq!((spilled.len(), detector.counts().underflows), (40, 0));
    assert!(found[32..].iter().all(|p| p == "112:") && spilled.iter().all(|p| p == "100:"));
}

#[test]
fn parameters_out_of_range_are_rejected() {
    let published = DetectorParameters::published(OperationMapping::preset(MappingPreset::BallLarus, 1));
    assert!(Detector::new(DetectorParameters { length_limit: 65, ..published }).is_err());
    assert!(Detector::new(DetectorParameters { stack_entries: 0, ..published }).is_err());
}
