//! Compares the detector, which sees only branches, with an oracle that knows the true call stacks of a random program: calls, `longjmp`,
//! exceptions, coroutines, and signal handlers, which run on a separate stack or on the interrupted one.

use std::collections::VecDeque;
use trodden_hardware::{
    Address, BranchKind, CompletedPath, Detector, DetectorParameters, EventCounts, MappingPreset, OperationMapping, RetiredBranch,
    StackOverflowPolicy, StreamEvent,
};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// The start address of a path, and the outcomes of its branches.
type OraclePath = (u64, Vec<bool>);

#[derive(Clone, Debug)]
struct Frame {
    /// Location and value of the frame's return address; `None` for the first frame of a stack.
    call: Option<(u64, u64)>,
    pointer: u64,
    /// The path that starts in this frame; `None` if a caller's path is extended into the frame, or if the path stack lost the path.
    path: Option<OraclePath>,
    is_extended: bool,
    /// Whether the path stack lost this frame's entry and created a new one later. The location of the return address is then unknown.
    is_recreated: bool,
}

#[derive(Clone, Debug, Default)]
struct Stack {
    top: u64,
    frames: Vec<Frame>,
    /// If the stack is suspended, the location and value of the return address with which it resumes.
    resumes: Option<(u64, u64)>,
}

struct Machine {
    random: Random,
    stacks: Vec<Stack>,
    current: usize,
    /// Where the return address of a handler is if the handler runs on the signal stack.
    signal_stack: u64,
    interrupted: Option<(usize, Stack)>,
    max_extensions: usize,
    capacity: usize,
    address: u64,
    events: Vec<StreamEvent>,
    ended_paths: Vec<OraclePath>,
    has_landed: bool,
}

impl Machine {
    fn new(seed: u64, max_extensions: usize, capacity: usize) -> Machine {
        let first = Frame { call: None, pointer: 0x7fff_f000, path: Some((0x10, Vec::new())), is_extended: false, is_recreated: false };
        // The signal stack is below, above or between the other stacks.
        let signal_stack = [0x1000_0000, 0x9fff_0000, 0x4004_8000][(seed % 3) as usize];
        Machine {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            stacks: vec![Stack { top: 0x7fff_f100, frames: vec![first], resumes: None }],
            current: 0,
            signal_stack,
            interrupted: None,
            max_extensions,
            capacity,
            address: 0x10,
            events: vec![StreamEvent::Begin(Address(0x10))],
            ended_paths: Vec::new(),
            has_landed: false,
        }
    }

    fn frames(&mut self) -> &mut Vec<Frame> {
        &mut self.stacks[self.current].frames
    }

    /// Returns the index of the frame whose path the given frame extends, or of the frame itself if it has its own path.
    fn find_owner(&mut self, mut at: usize) -> usize {
        while self.frames()[at].is_extended {
            at -= 1;
        }
        at
    }

    fn current_path(&mut self) -> &mut OraclePath {
        let top = self.frames().len() - 1;
        let owner = self.find_owner(top);
        self.frames()[owner].path.as_mut().expect("the frame that executes has a path")
    }

    fn end_path(&mut self, next: u64) {
        let ended = std::mem::replace(self.current_path(), (next, Vec::new()));
        self.ended_paths.push(ended);
    }

    fn retire(&mut self, kind: BranchKind, target: u64, is_taken: bool, stack: Option<u64>) -> u64 {
        let fall_through = self.address + 4;
        self.events.push(StreamEvent::Branch(RetiredBranch {
            address: Address(self.address),
            target: Address(target),
            fall_through: Address(fall_through),
            kind,
            is_taken,
            instructions: 1,
            stack: stack.map(Address),
        }));
        self.address = if is_taken { target } else { fall_through };
        self.address
    }

    fn random_address(&mut self) -> u64 {
        0x1000 + 8 * self.random.below(1 << 16)
    }

    /// Removes the path of the oldest frame if there are more paths than the path stack can hold.
    fn drop_oldest_paths(&mut self) {
        let capacity = self.capacity;
        let owners: VecDeque<usize> = (0..self.frames().len()).filter(|at| self.frames()[*at].path.is_some()).collect();
        if owners.len() > capacity {
            self.frames()[owners[0]].path = None;
        }
    }

    /// Resumes the frame on top after a call. If its path was lost, a new path begins.
    fn resume_frame(&mut self, at: u64) {
        let top = self.frames().len() - 1;
        let owner = self.find_owner(top);
        if self.frames()[owner].path.is_none() {
            // The detector does not know whether a lost path was extended.
            for frame in &mut self.frames()[owner..] {
                frame.is_extended = false;
                frame.path = None;
            }
            self.frames()[top].path = Some((at, Vec::new()));
            self.frames()[top].is_recreated = true;
        }
    }

    fn call(&mut self) {
        let top = self.frames().len() - 1;
        let owner = self.find_owner(top);
        let extended = top - owner;
        let pointer = self.frames()[top].pointer;
        let at = pointer - 8;
        let return_address = self.address + 4;
        let target = self.random_address();
        self.retire(BranchKind::Call, target, true, Some(at));
        let is_extended = extended < self.max_extensions;
        let size = 8 * (1 + self.random.below(40)) + if self.current == 0 && self.random.one_in(30) { 40_000 } else { 0 };
        let path = (!is_extended).then_some((target, Vec::new()));
        self.frames().push(Frame { call: Some((at, return_address)), pointer: at - size, path, is_extended, is_recreated: false });
        self.drop_oldest_paths();
        self.has_landed = false;
    }

    fn pop_frame(&mut self) -> Option<(u64, u64)> {
        let top = self.frames().len() - 1;
        let frame = self.frames()[top].clone();
        if !frame.is_extended {
            self.ended_paths.push(frame.path.expect("it executes"));
        }
        self.frames().pop();
        self.has_landed = false;
        frame.call
    }

    fn return_to_caller(&mut self) {
        let (at, return_address) = self.pop_frame().expect("a called frame");
        self.retire(BranchKind::Return, return_address, true, Some(at));
        self.resume_frame(return_address);
    }

    /// Continues the frame with index `place` at address `landing`, and discards all frames above it.
    fn continue_at(&mut self, place: usize, landing: u64) {
        self.frames().truncate(place + 1);
        let owner = self.find_owner(place);
        self.frames()[owner].path = Some((landing, Vec::new()));
    }

    fn long_jump(&mut self, place: usize) {
        let landing = self.random_address();
        self.current_path().1.push(true);
        self.end_path(landing);
        self.retire(BranchKind::IndirectJump, landing, true, None);
        self.continue_at(place, landing);
        self.has_landed = true;
    }

    fn throw_exception(&mut self, place: usize) {
        let landing = self.random_address();
        let (at, _) = self.frames()[place + 1].call.expect("a called frame");
        self.end_path(landing);
        self.retire(BranchKind::Return, landing, true, Some(at));
        self.continue_at(place, landing);
        self.has_landed = false;
    }

    /// Leaves the current stack from the frame on top, and records where that frame will resume.
    fn suspend(&mut self) {
        let top = self.frames().len() - 1;
        let frame = self.frames()[top].clone();
        let (_, return_address) = frame.call.expect("a called frame");
        self.end_path(return_address);
        self.frames().pop();
        self.stacks[self.current].resumes = frame.call;
        self.has_landed = false;
    }

    /// Switches to a suspended stack or, sometimes, to a new one. A new stack may take the place of a suspended one, which is then lost.
    fn switch_stack(&mut self, is_jump: bool) {
        let others: Vec<usize> = (0..self.stacks.len()).filter(|s| *s != self.current && self.stacks[*s].resumes.is_some()).collect();
        let begins = !is_jump && (others.is_empty() || self.random.one_in(4));
        self.call();
        if is_jump && others.is_empty() {
            return;
        }
        if is_jump {
            self.current_path().1.push(true);
        }
        self.suspend();
        if begins {
            let recycled = others.iter().copied().filter(|s| *s != 0).collect::<Vec<_>>();
            let place = match recycled.first() {
                Some(place) if self.random.one_in(3) => *place,
                _ => {
                    let top = 0x4000_0000 + 0x1_0000 * self.stacks.len() as u64;
                    self.stacks.push(Stack { top, ..Stack::default() });
                    self.stacks.len() - 1
                }
            };
            self.current = place;
            let (top, start) = (self.stacks[place].top, self.random_address());
            let first = Frame { call: None, pointer: top - 64, path: Some((start, Vec::new())), is_extended: false, is_recreated: false };
            self.stacks[place].frames = vec![first];
            self.stacks[place].resumes = None;
            self.retire(BranchKind::Return, start, true, Some(top - 16));
            return;
        }
        self.current = others[self.random.below(others.len() as u64) as usize];
        let (at, return_address) = self.stacks[self.current].resumes.take().expect("it was given up");
        if is_jump {
            self.retire(BranchKind::IndirectJump, return_address, true, None);
            let place = self.frames().len() - 1;
            self.continue_at(place, return_address);
            self.has_landed = true;
        } else {
            self.retire(BranchKind::Return, return_address, true, Some(at));
            self.resume_frame(return_address);
        }
    }

    fn deliver_signal(&mut self) {
        let handler = self.random_address();
        self.events.push(StreamEvent::Interrupt(Address(handler)));
        let has_own_stack = self.random.one_in(2);
        let pointer = self.frames().last().map_or(0, |frame| frame.pointer) - 0x300;
        let pointer = if has_own_stack { self.signal_stack } else { pointer };
        let frame = Frame {
            call: Some((pointer, self.address)),
            pointer: pointer - 64,
            path: Some((handler, Vec::new())),
            is_extended: false,
            is_recreated: false,
        };
        let interrupted = self.stacks[self.current].clone();
        if has_own_stack {
            self.stacks[self.current].frames = vec![frame];
        } else {
            self.frames().push(frame);
            self.drop_oldest_paths();
        }
        self.interrupted = Some((usize::from(has_own_stack), interrupted));
        let resumed = self.address;
        self.address = handler;
        self.run_handler(resumed);
    }

    /// Executes branches, calls and returns of a handler, until the handler returns or jumps to an interrupted frame.
    fn run_handler(&mut self, resumed: u64) {
        let (has_own_stack, interrupted) = self.interrupted.take().expect("in a handler");
        let base = if has_own_stack == 1 { 0 } else { interrupted.frames.len() };
        for _ in 0..self.random.below(12) {
            match self.random.below(5) {
                0 if self.frames().len() > base + 1 => self.return_to_caller(),
                0 | 1 => self.call(),
                2 => self.branch_backward(),
                _ => self.branch_forward(),
            }
        }
        // After a jump out of a handler, no event shows which interrupted frame resumes. The detector infers it from the locations of
        // return addresses, which are unknown for recreated frames.
        let is_known = interrupted.frames.iter().all(|frame| !frame.is_recreated);
        if self.random.one_in(3) && is_known && self.frames().len() > base + 1 {
            let landing = self.random_address();
            self.current_path().1.push(true);
            self.end_path(landing);
            self.retire(BranchKind::IndirectJump, landing, true, None);
            // If the handler ran on the interrupted stack, its paths may have displaced paths of that stack.
            self.frames().truncate(base);
            if has_own_stack == 1 {
                self.stacks[self.current] = interrupted;
            }
            let depth = self.frames().len() as u64;
            let place = self.random.below(depth) as usize;
            self.continue_at(place, landing);
            self.has_landed = true;
            return;
        }
        while self.frames().len() > base + 1 {
            self.return_to_caller();
        }
        let (at, _) = self.pop_frame().expect("where the system's restorer lies");
        self.retire(BranchKind::Return, 0x8000_0000, true, Some(at));
        self.events.push(StreamEvent::Resume(Address(resumed)));
        self.address = resumed;
        if has_own_stack == 1 {
            self.stacks[self.current] = interrupted;
        } else {
            self.resume_frame(0x8000_0000);
        }
    }

    fn branch_forward(&mut self) {
        if self.current_path().1.len() > 30 {
            return self.branch_backward();
        }
        let (target, is_taken) = (self.address + 8 + 8 * self.random.below(100), self.random.one_in(2));
        self.current_path().1.push(is_taken);
        self.retire(BranchKind::Conditional, target, is_taken, None);
    }

    fn branch_backward(&mut self) {
        let (target, is_taken) = (self.address - self.random.below(8), self.random.one_in(2));
        self.current_path().1.push(is_taken);
        let next = self.retire(BranchKind::Conditional, target, is_taken, None);
        self.end_path(next);
    }

    fn jump_indirectly(&mut self) {
        let target = self.random_address();
        self.current_path().1.push(true);
        let next = self.retire(BranchKind::IndirectJump, target, true, None);
        self.end_path(next);
    }

    fn execute_step(&mut self, has_stacks: bool, has_signals: bool) {
        let depth = self.frames().len();
        match self.random.below(24) {
            0..=5 if depth < 60 => self.call(),
            6..=9 if depth > 1 => self.return_to_caller(),
            10 if depth > 2 => {
                let place = self.random.below(depth as u64 - 1) as usize;
                self.long_jump(place);
            }
            11 if depth > 2 => {
                let place = self.random.below(depth as u64 - 1) as usize;
                self.throw_exception(place);
            }
            12 => self.jump_indirectly(),
            13 | 14 if has_stacks => self.switch_stack(false),
            15 if has_stacks && self.random.one_in(2) => self.switch_stack(true),
            16 if has_signals && !self.has_landed => self.deliver_signal(),
            17 => self.branch_backward(),
            _ => self.branch_forward(),
        }
    }
}

/// Formats the event at index `number` and up to 25 events before it.
fn format_context(events: &[StreamEvent], number: usize) -> String {
    let line = |event: &StreamEvent| match event {
        StreamEvent::Branch(b) => format!("{:x} {} -> {:x} {:x?}\n", b.address.0, b.kind.name(), b.next().0, b.stack.map(|s| s.0)),
        other => format!("{other:x?}\n"),
    };
    events[number.saturating_sub(25)..=number].iter().map(line).collect()
}

fn check_against_oracle(preset: MappingPreset, max_extensions: u16, capacity: usize, has_stacks: bool, has_signals: bool) {
    for seed in 1..400 {
        let mut machine = Machine::new(seed, max_extensions.into(), capacity);
        for _ in 0..400 {
            machine.execute_step(has_stacks, has_signals);
        }
        let parameters = DetectorParameters {
            stack_entries: capacity,
            overflow: StackOverflowPolicy::Drop,
            length_limit: 64,
            ..DetectorParameters::published(OperationMapping::preset(preset, max_extensions))
        };
        let mut detector = Detector::new(parameters).unwrap();
        let mut found: Vec<OraclePath> = Vec::new();
        for (number, event) in machine.events.iter().enumerate() {
            let mut emit = |path: &CompletedPath| found.push((path.path.start.0, path.path.outcomes().collect()));
            detector.process_event(event, &EventCounts::default(), &mut emit);
            let all = &machine.ended_paths[..found.len().min(machine.ended_paths.len())];
            assert!(
                found == all,
                "seed {seed}: {:x?} instead of {:x?}\n{}",
                found.last(),
                all.last(),
                format_context(&machine.events, number)
            );
        }
        assert_eq!(found.len(), machine.ended_paths.len(), "seed {seed}");
        assert_eq!(detector.counts().guessed_repairs, 0);
    }
}

#[test]
fn entries_of_dead_frames_do_not_displace_live_ones() {
    check_against_oracle(MappingPreset::BallLarus, 0, 1000, false, false);
    check_against_oracle(MappingPreset::BallLarus, 0, 4, false, false);
    check_against_oracle(MappingPreset::BallLarus, 0, 1, false, false);
}

#[test]
fn signal_handlers_may_be_left_by_a_jump() {
    check_against_oracle(MappingPreset::BallLarus, 0, 1000, false, true);
    check_against_oracle(MappingPreset::BallLarus, 0, 4, false, true);
}

#[test]
fn coroutines_have_separate_path_stacks() {
    check_against_oracle(MappingPreset::BallLarus, 0, 1000, true, false);
    check_against_oracle(MappingPreset::BallLarus, 0, 3, true, false);
}

#[test]
fn paths_extended_across_calls_end_with_their_frames() {
    check_against_oracle(MappingPreset::ExtendedCalls, 1, 1000, false, false);
    check_against_oracle(MappingPreset::ExtendedCalls, 3, 1000, true, false);
}
