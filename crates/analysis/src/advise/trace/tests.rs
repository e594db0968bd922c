//! Checks value numbering on random paths against an interpreter: values with the same number must be equal in every run, for any content
//! of memory and any targets of pointers. A second test compares expressions as text, to check that no repeated computation is missed.

use super::*;
use std::collections::HashMap;
use trodden_testkit::Random;

const PROGRAMS: u64 = 4000;
const RUNS: u64 = 8;
/// Distance between objects, in bytes.
const OBJECT_DISTANCE: i64 = 1_000_000;

// Values defined before the path: numbers, objects, pointers to any address, and a constant object.
const NUMBERS: u32 = 3;
const OBJECTS: u32 = 2;
const POINTERS: u32 = 3;
const CONSTANT_OBJECT: u32 = NUMBERS + OBJECTS + POINTERS;
const OPERATIONS: [&str; 5] = ["add i64", "sub i64", "getelementptr i8", "load i32", "load i64"];

struct Program {
    unit: UnitProperties,
    walk: ExecutedBlockPath,
}

fn random_program(random: &mut Random) -> Program {
    let kind = |v: u32| match v {
        v if v < NUMBERS => ValueKind::Integer(i64::from(v) * 4),
        v if v < NUMBERS + OBJECTS || v == CONSTANT_OBJECT => ValueKind::Object,
        _ => ValueKind::Other,
    };
    let mut values: Vec<ValueProperties> = (0..=CONSTANT_OBJECT).map(|v| ValueProperties { kind: kind(v), object: None }).collect();
    // Values defined so far, which later steps may use as operands. Numbers and addresses are kept apart.
    let (mut numbers, mut addresses): (Vec<u32>, Vec<u32>) = ((0..NUMBERS).collect(), (NUMBERS..CONSTANT_OBJECT).collect());
    let mut blocks = Vec::new();
    for block in 0..3u32 {
        let mut properties = InstructionProperties::default();
        let (mut new_numbers, mut new_addresses) = (Vec::new(), Vec::new());
        for _ in 0..random.below(3) * u64::from(block > 0) {
            let (from, to) = if random.chance(50) { (&numbers, &mut new_numbers) } else { (&addresses, &mut new_addresses) };
            let incoming = vec![(Node(7), ValueId(0)), (Node(block - 1), ValueId(random.pick(from)))];
            properties.phis.push(Phi { result: add_value(&mut values), incoming });
            to.push(values.len() as u32 - 1);
        }
        numbers.extend(new_numbers);
        addresses.extend(new_addresses);
        for _ in 0..3 + random.below(8) {
            let what = random_action(random, &mut values, &mut numbers, &mut addresses);
            properties.steps.push(BlockStep { what, position: None });
        }
        blocks.push(properties);
    }
    let function = FunctionProperties { name: "f".into(), values, blocks };
    let unit = UnitProperties {
        version: PROPERTIES_VERSION,
        files: Vec::new(),
        scopes: Vec::new(),
        operations: OPERATIONS.map(String::from).to_vec(),
        classes: vec![None, Some(MemoryClassId(0)), Some(MemoryClassId(0)), None],
        functions: vec![function],
    };
    Program {
        unit,
        walk: ExecutedBlockPath { id: 0, count: 1, blocks: vec![Node(0), Node(1), Node(2)], edges: Vec::new(), sums: Vec::new() },
    }
}

fn add_value(values: &mut Vec<ValueProperties>) -> ValueId {
    values.push(ValueProperties { kind: ValueKind::Other, object: None });
    ValueId(values.len() as u32 - 1)
}

fn random_action(random: &mut Random, values: &mut Vec<ValueProperties>, numbers: &mut Vec<u32>, addresses: &mut Vec<u32>) -> BlockAction {
    let number = |random: &mut Random| ValueId(random.pick(numbers));
    let address = ValueId(random.pick(addresses));
    let wide = random.index(2);
    let class = random.pick(&[None, None, Some(MemoryClassId(0)), Some(MemoryClassId(1)), Some(MemoryClassId(2)), Some(MemoryClassId(3))]);
    let access = AccessedMemory { address, size: [4, 8][wide], class };
    let operation = OperationId(3 + wide as u32);
    match random.below(20) {
        0 => BlockAction::Clobber,
        1..=4 => BlockAction::Store { value: number(random), operation, access },
        5..=9 => {
            let rom = random.chance(15);
            let access = if rom { AccessedMemory { address: ValueId(CONSTANT_OBJECT), class: None, ..access } } else { access };
            let result = add_value(values);
            numbers.push(result.0);
            BlockAction::Load { result, operation, access, constant: rom }
        }
        10..=12 => {
            let result = add_value(values);
            addresses.push(result.0);
            BlockAction::Offset { result, base: address, bytes: random.pick(&[-4, 0, 4, 8]) }
        }
        13 => {
            let operands = vec![address, number(random)];
            let result = add_value(values);
            addresses.push(result.0);
            BlockAction::Compute { result, operation: OperationId(2), operands }
        }
        _ => {
            let operands = vec![number(random), number(random)];
            let result = add_value(values);
            numbers.push(result.0);
            BlockAction::Compute { result, operation: OperationId(random.below(2) as u32), operands }
        }
    }
}

/// One run of a unit. A run that accesses memory as an incompatible type is discarded, because that is undefined behaviour.
struct UnitRun<'a> {
    unit: &'a UnitProperties,
    values: HashMap<ValueId, i64>,
    memory: HashMap<i64, (u8, Option<MemoryClassId>)>,
    seed: u64,
    results: HashMap<StepPosition, i64>,
}

impl<'a> UnitRun<'a> {
    fn run(program: &'a Program, random: &mut Random) -> Option<HashMap<StepPosition, i64>> {
        let mut values: HashMap<ValueId, i64> = (0..NUMBERS).map(|v| (ValueId(v), i64::from(v) * 4)).collect();
        values.extend((NUMBERS..NUMBERS + OBJECTS).chain([CONSTANT_OBJECT]).map(|v| (ValueId(v), i64::from(v) * OBJECT_DISTANCE)));
        for v in NUMBERS + OBJECTS..CONSTANT_OBJECT {
            let object = random.pick(&[NUMBERS, NUMBERS + 1, NUMBERS + OBJECTS]);
            values.insert(ValueId(v), i64::from(object) * OBJECT_DISTANCE + random.pick(&[0, 4, 8]));
        }
        let seed = random.number();
        let mut machine = UnitRun { unit: &program.unit, values, memory: HashMap::new(), seed, results: HashMap::new() };
        for (at, block) in program.walk.blocks.iter().enumerate() {
            let properties = &program.unit.functions[0].blocks[block.index()];
            let before = at.checked_sub(1).map(|b| program.walk.blocks[b]);
            let incoming = |p: &Phi| p.incoming.iter().find(|(from, _)| Some(*from) == before).map(|(_, v)| (p.result, machine.values[v]));
            let phis: Vec<_> = properties.phis.iter().filter_map(incoming).collect();
            machine.values.extend(phis);
            for (place, step) in (0..).zip(&properties.steps) {
                let results = machine.step(&step.what)?;
                machine.results.insert((*block, place), results);
            }
        }
        Some(machine.results)
    }

    fn step(&mut self, what: &BlockAction) -> Option<i64> {
        let results = match what {
            BlockAction::Compute { operation, operands, .. } => {
                let [a, b] = [0, 1].map(|i| self.values[&operands[i]]);
                match operation.0 {
                    0 => a.wrapping_add(b),
                    1 => a.wrapping_sub(b),
                    _ => a + b.rem_euclid(8) * 4,
                }
            }
            BlockAction::Offset { base, bytes, .. } => self.values[base] + bytes,
            BlockAction::Load { access, .. } => self.load(access)?,
            BlockAction::Store { value, access, .. } => self.store(self.values[value], access)?,
            BlockAction::Clobber => {
                self.seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
                self.memory.clear();
                0
            }
        };
        if let BlockAction::Compute { result, .. } | BlockAction::Offset { result, .. } | BlockAction::Load { result, .. } = what {
            self.values.insert(*result, results);
        }
        Some(results)
    }

    fn load(&mut self, access: &AccessedMemory) -> Option<i64> {
        let at = self.values[&access.address];
        let mut bytes = [0; 8];
        for (i, byte) in bytes.iter_mut().enumerate().take(access.size as usize) {
            *byte = self.byte(at + i as i64, access.class)?;
        }
        Some(i64::from_le_bytes(bytes))
    }

    fn store(&mut self, value: i64, access: &AccessedMemory) -> Option<i64> {
        let at = self.values[&access.address];
        for (i, byte) in value.to_le_bytes().into_iter().enumerate().take(access.size as usize) {
            self.byte(at + i as i64, access.class)?;
            self.memory.insert(at + i as i64, (byte, access.class));
        }
        // Truncate the value to the width of the access.
        let mut bytes = [0; 8];
        bytes[..access.size as usize].copy_from_slice(&value.to_le_bytes()[..access.size as usize]);
        Some(i64::from_le_bytes(bytes))
    }

    /// Returns a byte, or `None` if it was last accessed as an incompatible type, which is undefined behaviour.
    fn byte(&mut self, at: i64, class: Option<MemoryClassId>) -> Option<u8> {
        let rom = at >= i64::from(CONSTANT_OBJECT) * OBJECT_DISTANCE;
        let seed = if rom { 7 } else { self.seed };
        let (byte, last) = *self.memory.entry(at).or_insert_with(|| (Random::new(seed ^ at as u64).number() as u8, class));
        let above = |c: MemoryClassId| std::iter::successors(Some(c), |c| self.unit.classes[c.0 as usize]).collect::<Vec<_>>();
        let forbidden =
            |a: MemoryClassId, b: MemoryClassId| above(a).last() == above(b).last() && !above(a).contains(&b) && !above(b).contains(&a);
        let clash = last.zip(class).is_some_and(|(a, b)| forbidden(a, b));
        (!clash).then_some(byte)
    }
}

fn find_results(program: &Program) -> Vec<(StepPosition, StepResult)> {
    let mut found = Vec::new();
    ValueTracer::new(&program.unit, &program.unit.functions[0]).trace_path(&program.walk, |place, finds| found.push((place, finds)));
    found
}

#[test]
fn known_results_are_equal_in_every_run() {
    let mut random = Random::new(1);
    let (mut known, mut checked) = (0, 0);
    for _ in 0..PROGRAMS {
        let program = random_program(&mut random);
        let found = find_results(&program);
        for _ in 0..RUNS {
            let Some(results) = UnitRun::run(&program, &mut random) else { continue };
            checked += 1;
            for (place, finds) in &found {
                if let StepResult::Known(from) = finds {
                    assert_eq!(results[place], results[from], "{place:?} from {from:?} of {:?}", program.unit.functions[0]);
                    known += 1;
                }
            }
        }
    }
    assert!(known > PROGRAMS && checked > PROGRAMS, "too little was tested: {known} known results in {checked} runs");
}

/// Sums and differences are expanded to text, down to values that are not computed on the path. Equal texts are equal values.
#[test]
fn computation_is_known_only_if_an_equal_expression_was_computed() {
    let mut random = Random::new(2);
    for _ in 0..PROGRAMS {
        let mut program = random_program(&mut random);
        // Remove loads and offsets, because the text compared below does not express them.
        for block in &mut program.unit.functions[0].blocks {
            block.steps.retain(|s| matches!(s.what, BlockAction::Compute { operation, .. } if operation.0 < 2));
        }
        let mut texts: HashMap<ValueId, String> = HashMap::new();
        let mut seen: HashMap<String, StepPosition> = HashMap::new();
        let constant = |text: &str| !text.contains('v');
        let name = |v: &ValueId, texts: &HashMap<ValueId, String>| {
            texts.get(v).cloned().unwrap_or_else(|| if v.0 < NUMBERS { format!("#{}", v.0) } else { format!("v{}", v.0) })
        };
        let mut expected = Vec::new();
        for (at, block) in program.walk.blocks.iter().enumerate() {
            let properties = &program.unit.functions[0].blocks[block.index()];
            let arriving =
                properties.phis.iter().filter(|_| at > 0).map(|p| (p.result, name(&p.incoming[1].1, &texts))).collect::<Vec<_>>();
            texts.extend(arriving);
            for (place, step) in (0..).zip(&properties.steps) {
                let BlockAction::Compute { result, operation, operands } = &step.what else { unreachable!("others were removed") };
                let mut names: Vec<String> = operands.iter().map(|o| name(o, &texts)).collect();
                if operation.0 == 0 {
                    names.sort();
                }
                let text = format!("({} {})", OPERATIONS[operation.0 as usize].replace('i', "-"), names.join(" "));
                let always_constant = operands.iter().all(|o| o.0 < NUMBERS);
                let finds = match seen.get(&text) {
                    _ if constant(&text) && !always_constant => StepResult::Constant,
                    Some(from) => StepResult::Known(*from),
                    None => StepResult::New,
                };
                seen.entry(text.clone()).or_insert((*block, place));
                texts.insert(*result, text);
                expected.push(((*block, place), finds));
            }
        }
        assert_eq!(find_results(&program), expected);
    }
}
