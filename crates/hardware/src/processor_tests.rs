//! Compares the two processor models on worked examples and random programs, and checks that every parameter has an effect.

use super::*;
use crate::replacement::XorshiftGenerator;
use crate::stream::{Address, BranchKind, RetiredBranch};

type ExecutedStream = Vec<(Instruction, Option<RetiredBranch>)>;

/// Returns the instructions that a random program executes. The program consists of short blocks with loops, and its data accesses have
/// some locality.
fn random_program(seed: u64, length: usize) -> ExecutedStream {
    let mut generator = XorshiftGenerator::default();
    (0..seed * 7 + 1).for_each(|_| {
        generator.draw_number();
    });
    let blocks: Vec<(Vec<Instruction>, u64, u64)> = (0..60u64).map(|number| random_block(number, &mut generator)).collect();
    let mut stream = ExecutedStream::new();
    let mut at = 0usize;
    while stream.len() < length {
        let (instructions, bias, target) = &blocks[at];
        for instruction in instructions {
            let mut executed = *instruction;
            let place = |generator: &mut XorshiftGenerator, base: Address| {
                Address(base.0 + generator.below(1 << 15) / 64 * generator.below(64) * 8)
            };
            executed.load = executed.load.map(|base| place(&mut generator, base));
            executed.store = executed.store.map(|base| place(&mut generator, base));
            stream.push((executed, None));
        }
        let last = instructions[instructions.len() - 1].address.0 + 4;
        let is_taken = generator.below(100) < *bias;
        let target = *target as usize;
        let branch = RetiredBranch {
            address: Address(last),
            target: Address(0x1000 + target as u64 * 256),
            fall_through: Address(last + 4),
            kind: BranchKind::Conditional,
            is_taken,
            instructions: instructions.len() as u32 + 1,
            stack: None,
        };
        let instruction = Instruction { address: Address(last), sources: [5, 0, 0, 0], ..Instruction::default() };
        stream.push((instruction, Some(branch)));
        at = if is_taken { target } else { (at + 1) % blocks.len() };
    }
    stream
}

fn random_block(number: u64, generator: &mut XorshiftGenerator) -> (Vec<Instruction>, u64, u64) {
    use InstructionClass::{Divide, Float, FloatDivide, FloatMultiply, Integer, Multiply};
    let classes = [Integer, Integer, Integer, Multiply, Float, Float, Float, FloatMultiply, Divide, FloatDivide];
    let mut instruction = |at: u64| {
        let mut register = || 1 + generator.below(14) as u8;
        let (sources, destinations) = ([register(), register(), 0, 0], [register(), 0]);
        let kind = generator.below(10);
        let place = Some(Address(0x10_0000 + generator.below(4) * 0x1_0000));
        let class = if kind < 4 { Integer } else { classes[generator.below(classes.len() as u64) as usize] };
        Instruction {
            address: Address(0x1000 + number * 256 + at * 4),
            class,
            sources,
            destinations,
            load: place.filter(|_| kind < 3),
            store: place.filter(|_| kind == 3),
        }
    };
    let size = 3 + number % 7;
    let instructions = (0..size).map(&mut instruction).collect();
    (instructions, [5, 20, 50, 80, 97][generator.below(5) as usize], generator.below(60))
}

fn run_fast(parameters: ProcessorParameters, stream: &ExecutedStream) -> ProcessorTotals {
    let mut model = FastModel::new(parameters).unwrap();
    stream.iter().for_each(|(instruction, branch)| model.retire(instruction, branch.as_ref(), &mut |_, _| 3));
    model.totals()
}

fn run_reference(parameters: ProcessorParameters, stream: &ExecutedStream) -> ProcessorTotals {
    let mut model = ReferenceModel::new(parameters).unwrap();
    stream.iter().for_each(|(instruction, branch)| model.retire(instruction, branch.as_ref(), &mut |_, _| 3));
    model.finish(&mut |_, _| 3);
    model.totals()
}

fn relative_difference(one: u64, other: u64) -> f64 {
    (one as f64 - other as f64).abs() / other as f64
}

/// Returns, for each parameter, its name and a processor that differs from the default only in this parameter.
fn processor_variants() -> Vec<(&'static str, ProcessorParameters)> {
    let base = ProcessorParameters::default();
    let change = |change: &dyn Fn(&mut ProcessorParameters)| {
        let mut parameters = base;
        change(&mut parameters);
        parameters
    };
    vec![
        ("width", change(&|p| p.width = 2)),
        ("reorder buffer", change(&|p| p.reorder_buffer = 16)),
        ("load/store queue", change(&|p| p.load_store_queue = 4)),
        ("fetch queue", change(&|p| p.fetch_queue = 2)),
        ("integer units", change(&|p| p.integer_units = 1)),
        ("multiply units", change(&|p| p.multiply_units = 1)),
        ("float units", change(&|p| p.float_units = 1)),
        ("float multiply units", change(&|p| p.float_multiply_units = 1)),
        ("memory ports", change(&|p| p.memory_ports = 1)),
        ("multiply cycles", change(&|p| p.multiply_cycles = 9)),
        ("divide cycles", change(&|p| p.divide_cycles = 40)),
        ("float cycles", change(&|p| p.float_cycles = 8)),
        ("float multiply cycles", change(&|p| p.float_multiply_cycles = 12)),
        ("float divide cycles", change(&|p| p.float_divide_cycles = 40)),
        ("instruction cache", change(&|p| p.l1_instruction.size = 1 << 10)),
        ("data cache", change(&|p| p.l1_data.size = 1 << 10)),
        ("data cache associativity", change(&|p| p.l1_data.associativity = 4)),
        ("data cache latency", change(&|p| p.l1_data.latency = 3)),
        ("second-level cache", change(&|p| p.l2.size = 16 << 10)),
        ("second-level latency", change(&|p| p.l2.latency = 25)),
        ("memory", change(&|p| p.memory_cycles = 300)),
        ("direction", change(&|p| p.predictor.direction = DirectionPredictor::Bimodal)),
        ("gshare", change(&|p| p.predictor.gshare_entries = 64)),
        ("history", change(&|p| p.predictor.history_bits = 2)),
        ("bimodal", change(&|p| p.predictor.bimodal_entries = 16)),
        ("meta", change(&|p| p.predictor.meta_entries = 1)),
        ("targets", change(&|p| (p.predictor.target_entries, p.predictor.target_associativity) = (4, 1))),
        ("misprediction", change(&|p| p.predictor.misprediction_cycles = 12)),
        ("branch queue", change(&|p| p.branch_queue = 1)),
    ]
}

#[test]
fn chain_of_additions_takes_one_cycle_each() {
    let add = |at: u64| {
        let instruction =
            Instruction { address: Address(0x1000 + at % 8 * 4), sources: [1, 0, 0, 0], destinations: [1, 0], ..Instruction::default() };
        (instruction, None)
    };
    let chain: ExecutedStream = (0..1000).map(add).collect();
    let free: ExecutedStream = chain.iter().map(|(i, b)| (Instruction { sources: [0; 4], ..*i }, *b)).collect();
    for run in [run_fast, run_reference] {
        let dependent = run(ProcessorParameters::default(), &chain).cycles;
        let independent = run(ProcessorParameters::default(), &free).cycles;
        // The remaining 110 cycles load the code block from memory.
        assert!((1110..1125).contains(&dependent), "{dependent}");
        assert!((360..375).contains(&independent), "{independent}");
    }
}

#[test]
fn models_agree_within_three_percent_on_random_programs() {
    for seed in 0..2 {
        let stream = random_program(seed, 20_000);
        for (name, parameters) in [("published", ProcessorParameters::default())].into_iter().chain(processor_variants()) {
            let (one, other) = (run_fast(parameters, &stream), run_reference(parameters, &stream));
            let differs = relative_difference(one.cycles, other.cycles);
            assert!(differs < 0.03, "seed {seed}, {name}: {one:?} {other:?}: {:.2} %", 100.0 * differs);
            assert_eq!(one.instructions, other.instructions);
        }
    }
}

#[test]
fn every_parameter_changes_cycles_of_both_models_in_the_same_direction() {
    let streams: Vec<ExecutedStream> = (0..2).map(|seed| random_program(seed, 20_000)).collect();
    let base = ProcessorParameters::default();
    for (name, parameters) in processor_variants() {
        let sum = |run: fn(ProcessorParameters, &ExecutedStream) -> ProcessorTotals, p| {
            streams.iter().map(|s| run(p, s).cycles).sum::<u64>() as i64
        };
        let moved = sum(run_fast, parameters) - sum(run_fast, base);
        let expected = sum(run_reference, parameters) - sum(run_reference, base);
        assert!(expected != 0 && moved.signum() == expected.signum(), "{name}: {moved} and {expected} cycles");
    }
}

#[test]
fn larger_branch_queue_stalls_less_with_frozen_predictions() {
    let stream = random_program(9, 20_000);
    let mut base = FastModel::new(ProcessorParameters::default()).unwrap();
    let mut outcomes = Vec::new();
    for (instruction, branch) in &stream {
        base.retire(instruction, branch.as_ref(), &mut |_, _| 0);
        outcomes.extend(branch.and_then(|_| base.last_outcome()));
    }
    let mut last = u64::MAX;
    for entries in [1, 2, 4, 8, 64] {
        let mut model = FastModel::new(ProcessorParameters { branch_queue: entries, ..ProcessorParameters::default() }).unwrap();
        let mut frozen = outcomes.iter();
        for (instruction, branch) in &stream {
            branch.and_then(|_| frozen.next()).into_iter().for_each(|o| model.freeze_next_prediction(*o));
            model.retire(instruction, branch.as_ref(), &mut |_, _| 4);
        }
        let totals = model.totals();
        assert!(totals.queue_stalls <= last && totals.cycles >= base.totals().cycles);
        assert_eq!(totals.mispredictions, base.totals().mispredictions);
        last = totals.queue_stalls;
    }
    assert_eq!(last, 0);
}

#[test]
fn parameters_are_parsed_and_checked() {
    let read = ProcessorParameters::from_toml(
        "width = 8\n[predictor]\nhistory-bits = 4\n[l2]\nsize = 1048576\nassociativity = 8\nblock = 64\nlatency = 12\n",
    )
    .unwrap();
    assert_eq!((read.width, read.predictor.history_bits, read.l2.associativity, read.fetch_queue), (8, 4, 8, 16));
    for (text, word) in [("width = 0", "at least 1"), ("speed = 1", "unknown field"), ("[predictor]\nmeta-entries = 3", "power of two")] {
        let error = ProcessorParameters::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
