//! Checks branch prediction against expectations from theory and against an independent implementation. Also checks that the two
//! processor models agree on programs that each stress one part of the processor.

use std::collections::{HashMap, VecDeque};
use trodden_hardware::processor::{
    CacheParameters, DirectionPredictor, FastModel, Instruction, InstructionClass, ProcessorParameters, ProcessorTotals, ReferenceModel,
};
use trodden_hardware::{Address, BranchKind, RetiredBranch};

type Program = Vec<(Instruction, Option<RetiredBranch>)>;

const CODE_START: u64 = 0x40_0000;
const ITERATIONS: u64 = 20_000;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn plain_instruction(address: u64, sources: [u8; 4], destination: u8) -> (Instruction, Option<RetiredBranch>) {
    (Instruction { address: Address(address), sources, destinations: [destination, 0], ..Instruction::default() }, None)
}

/// Returns independent additions. Each reads register 40, which is never written.
fn independent_additions(address: u64, number: u64) -> impl Iterator<Item = (Instruction, Option<RetiredBranch>)> {
    (0..number).map(move |k| plain_instruction(address + 4 * k, [40, 0, 0, 0], 1 + (k % 3) as u8))
}

fn conditional(address: u64, target: u64, is_taken: bool) -> (Instruction, Option<RetiredBranch>) {
    let branch = RetiredBranch {
        address: Address(address),
        target: Address(target),
        fall_through: Address(address + 4),
        kind: BranchKind::Conditional,
        is_taken,
        instructions: 1,
        stack: None,
    };
    (Instruction { address: Address(address), sources: [25, 0, 0, 0], ..Instruction::default() }, Some(branch))
}

/// Returns a loop that contains `padding` instructions and one branch. `is_taken_in` says whether the branch is taken in an iteration.
fn branch_in_loop(padding: u64, mut is_taken_in: impl FnMut(u64) -> bool) -> Program {
    let mut program = Program::new();
    let branch = CODE_START + 4 * padding;
    for iteration in 0..ITERATIONS {
        let is_taken = is_taken_in(iteration);
        program.extend(independent_additions(CODE_START, padding));
        program.push(conditional(branch, branch + 8, is_taken));
        program.extend((!is_taken).then(|| plain_instruction(branch + 4, [40, 0, 0, 0], 4)));
        program.push(plain_instruction(branch + 8, [40, 0, 0, 0], 5));
        program.push(conditional(branch + 12, CODE_START, iteration + 1 < ITERATIONS));
    }
    program
}

fn nested_loops(inner: u64) -> Program {
    let mut program = Program::new();
    let outer = ITERATIONS / inner;
    for round in 0..outer {
        program.extend(independent_additions(CODE_START, 2));
        for iteration in 0..inner {
            program.extend(independent_additions(CODE_START + 8, 3));
            program.push(conditional(CODE_START + 20, CODE_START + 8, iteration + 1 < inner));
        }
        program.push(conditional(CODE_START + 24, CODE_START, round + 1 < outer));
    }
    program
}

fn run_fast(parameters: ProcessorParameters, program: &Program) -> ProcessorTotals {
    let mut model = FastModel::new(parameters).unwrap();
    program.iter().for_each(|(instruction, branch)| model.retire(instruction, branch.as_ref(), &mut |_, _| 0));
    model.totals()
}

fn run_reference(parameters: ProcessorParameters, program: &Program) -> ProcessorTotals {
    let mut model = ReferenceModel::new(parameters).unwrap();
    program.iter().for_each(|(instruction, branch)| model.retire(instruction, branch.as_ref(), &mut |_, _| 0));
    model.finish(&mut |_, _| 0);
    model.totals()
}

fn with_predictor(direction: DirectionPredictor) -> ProcessorParameters {
    let mut parameters = ProcessorParameters::default();
    parameters.predictor.direction = direction;
    parameters
}

/// Returns each model's mispredictions per loop iteration.
fn misprediction_rates(parameters: ProcessorParameters, program: &Program) -> [f64; 2] {
    [run_fast, run_reference].map(|run| run(parameters, program).mispredictions as f64 / ITERATIONS as f64)
}

#[test]
fn periodic_branches_are_predicted_by_history() {
    for direction in [DirectionPredictor::Gshare, DirectionPredictor::Combined] {
        for period in [1, 2, 3, 4, 5] {
            for padding in [0, 2, 10, 40] {
                for share in misprediction_rates(with_predictor(direction), &branch_in_loop(padding, |i| i % period == 0)) {
                    assert!(share < 0.01, "{direction:?}, period {period}, {padding} instructions before: {share}");
                }
            }
        }
    }
}

#[test]
fn bimodal_predictor_misses_the_rarer_direction() {
    // The branch is taken once in `period` iterations, so a two-bit counter stays at "not taken".
    for (period, expected) in [(3, 1.0 / 3.0), (5, 0.2), (8, 0.125)] {
        for share in misprediction_rates(with_predictor(DirectionPredictor::Bimodal), &branch_in_loop(10, |i| i % period == 0)) {
            assert!((share - expected).abs() < 0.01, "period {period}: {share}");
        }
    }
}

#[test]
fn random_branches_are_not_predictable() {
    for direction in [DirectionPredictor::Bimodal, DirectionPredictor::Gshare, DirectionPredictor::Combined] {
        let mut random = Random(0x1234_5678_9abc_def1);
        for share in misprediction_rates(with_predictor(direction), &branch_in_loop(10, |_| random.below(2) == 0)) {
            assert!((share - 0.5).abs() < 0.02, "{direction:?}: {share}");
        }
    }
}

#[test]
fn short_inner_loop_is_learnt_and_long_one_is_missed_once_per_round() {
    for share in misprediction_rates(ProcessorParameters::default(), &nested_loops(5)) {
        assert!(share < 0.01, "{share}");
    }
    // A history of 12 branches does not distinguish the last of 40 iterations from the others.
    for share in misprediction_rates(ProcessorParameters::default(), &nested_loops(40)) {
        assert!((share - 1.0 / 40.0).abs() < 0.002, "{share}");
    }
}

/// An independent implementation of the combined predictor, from McFarling's description. Its tables are maps, and training is immediate.
#[derive(Default)]
struct IndependentPredictor {
    counters: HashMap<(u8, u64), i8>,
    history: VecDeque<bool>,
}

impl IndependentPredictor {
    fn predicts_taken(&self, key: (u8, u64)) -> bool {
        self.counters.get(&key).copied().unwrap_or(2) > 1
    }

    fn move_counter(&mut self, key: (u8, u64), is_increase: bool) {
        let counter = self.counters.entry(key).or_insert(2);
        *counter = (*counter + if is_increase { 1 } else { -1 }).clamp(0, 3);
    }

    /// Predicts and trains. Returns true if the branch was mispredicted.
    fn branch(&mut self, address: u64, is_taken: bool) -> bool {
        let history = self.history.iter().enumerate().map(|(at, taken)| u64::from(*taken) << at).sum::<u64>();
        let [gshare, bimodal, meta] = [(0, (address ^ history) % 8192), (1, address % 8192), (2, address % 1024)];
        let (by_history, by_address) = (self.predicts_taken(gshare), self.predicts_taken(bimodal));
        let predicted = if self.predicts_taken(meta) { by_history } else { by_address };
        if by_history != by_address {
            self.move_counter(meta, by_history == is_taken);
        }
        self.move_counter(gshare, is_taken);
        self.move_counter(bimodal, is_taken);
        self.history.push_front(is_taken);
        self.history.truncate(12);
        predicted != is_taken
    }
}

#[test]
fn mispredictions_match_an_independent_predictor() {
    // Each branch commits before the next one is fetched, so training is not delayed.
    let mut random = Random(77);
    let bias: Vec<u64> = (0..16).map(|_| random.below(100)).collect();
    let mut program = Program::new();
    let mut independent = IndependentPredictor::default();
    let mut expected = 0;
    let mut conditions = VecDeque::from([false; 4]);
    for round in 0..4_000u64 {
        let at = round % 16;
        let address = CODE_START + at * 0x100;
        // Some branches depend on earlier branches; the others are random.
        let is_taken = if at.is_multiple_of(3) { conditions[1] ^ conditions[3] } else { random.below(100) < bias[at as usize] };
        conditions.push_front(is_taken);
        conditions.pop_back();
        program.extend((0..200).map(|k| plain_instruction(address + k % 8 * 4, [1, 0, 0, 0], 1)));
        let mut branch = conditional(address + 32, address + 48, is_taken);
        branch.0.sources = [0; 4];
        program.push(branch);
        expected += u64::from(independent.branch(address + 32, is_taken));
    }
    for run in [run_fast, run_reference] {
        assert_eq!(run(ProcessorParameters::default(), &program).mispredictions, expected);
    }
}

/// Returns a loop of loads, stores and arithmetic of all classes, on random registers.
fn random_mix(random: &mut Random) -> Program {
    const CLASSES: [InstructionClass; 4] =
        [InstructionClass::Integer, InstructionClass::Multiply, InstructionClass::Float, InstructionClass::FloatMultiply];
    let mut program = Program::new();
    for iteration in 0..10_000 {
        for k in 0..12 {
            let sources = [random.below(20) as u8, random.below(20) as u8, 0, 0];
            let (mut instruction, _) = plain_instruction(CODE_START + 4 * k, sources, 1 + random.below(19) as u8);
            instruction.class = CLASSES[random.below(4) as usize];
            let data = Some(Address(0x1000_0000 + random.below(1 << 16) * 8));
            match random.below(20) {
                0..4 => instruction.load = data,
                4..6 => instruction.store = data,
                _ => {}
            }
            program.push((instruction, None));
        }
        program.push(conditional(CODE_START + 48, CODE_START, iteration < 9_999));
    }
    program
}

/// Returns straight-line code of the given size in bytes, executed four times.
fn straight_code(bytes: u64) -> Program {
    let pass = || independent_additions(CODE_START, bytes / 4).chain([conditional(CODE_START + bytes, CODE_START, true)]);
    (0..4).flat_map(|_| pass()).collect()
}

fn load_instruction(address: u64, data: u64, source: u8, destination: u8) -> (Instruction, Option<RetiredBranch>) {
    let (instruction, _) = plain_instruction(address, [source, 0, 0, 0], destination);
    (Instruction { load: Some(Address(data)), ..instruction }, None)
}

/// Returns a chain of dependent loads that cycles through the given number of cache blocks.
fn pointer_chase(blocks: u64) -> Program {
    let step =
        |k: u64| [load_instruction(CODE_START, 0x1000_0000 + k * 7919 % blocks * 64, 1, 1), conditional(CODE_START + 4, CODE_START, true)];
    (0..20_000).flat_map(step).collect()
}

/// Returns programs whose execution time is each dominated by one part of the processor.
fn stressing_programs() -> Vec<(&'static str, Program)> {
    let mut random = Random(5);
    let looped = |k: u64, source: u8, destination: u8| plain_instruction(CODE_START + k % 16 * 4, [source, 0, 0, 0], destination);
    vec![
        ("straight code of 16 KB", straight_code(16 << 10)),
        ("straight code of 256 KB", straight_code(256 << 10)),
        ("straight code of 2 MB", straight_code(2 << 20)),
        ("chain of loads in 16 KB", pointer_chase(256)),
        ("chain of loads in 256 KB", pointer_chase(4096)),
        ("chain of loads in 4 MB", pointer_chase(65_536)),
        ("dependent additions", (0..40_000).map(|k| looped(k, 1, 1)).collect()),
        ("independent additions", (0..40_000).map(|k| looped(k, 40, 1 + (k % 3) as u8)).collect()),
        ("independent loads", (0..40_000).map(|k| load_instruction(CODE_START + k % 16 * 4, 0x1000_0000 + k % 8 * 8, 40, 1)).collect()),
        ("random branch", branch_in_loop(6, |_| random.below(2) == 0)),
        ("period 3", branch_in_loop(2, |i| i % 3 == 0)),
        ("mixed", random_mix(&mut random)),
    ]
}

fn processor_configurations() -> Vec<(&'static str, ProcessorParameters)> {
    let published = ProcessorParameters::default();
    let mut narrow = ProcessorParameters { width: 2, reorder_buffer: 32, fetch_queue: 4, load_store_queue: 8, ..published };
    narrow.memory_ports = 1;
    let wide = ProcessorParameters { width: 8, reorder_buffer: 256, fetch_queue: 32, integer_units: 8, memory_ports: 4, ..published };
    let mut slow = with_predictor(DirectionPredictor::Bimodal);
    slow.memory_cycles = 300;
    slow.l2 = CacheParameters { size: 256 << 10, associativity: 1, block: 64, latency: 20 };
    vec![("published", published), ("narrow", narrow), ("wide", wide), ("slow memory", slow)]
}

#[test]
fn models_agree_within_three_percent_on_every_program_and_processor() {
    let mut differing = Vec::new();
    for (program_name, program) in stressing_programs() {
        for (processor, parameters) in processor_configurations() {
            let (one, other) = (run_fast(parameters, &program), run_reference(parameters, &program));
            let difference = 100.0 * (one.cycles as f64 / other.cycles as f64 - 1.0);
            if difference.abs() >= 3.0 {
                differing.push(format!("{program_name}, {processor}: {difference:.2} % ({} and {} cycles)", one.cycles, other.cycles));
            }
            assert_eq!(one.instructions, other.instructions);
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
