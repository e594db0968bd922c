//! Maps machine blocks to blocks of the graph, and aligns the instructions of both versions.

use super::LoopCodePlace;
use super::compile::AssemblyBlockNames;
use super::machine::MachineBlock;
use super::nest::LoopBlocks;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, EdgeKind, FunctionMap};

pub struct CountedGraph {
    blocks: HashMap<String, u32>,
    executions: Vec<u64>,
    /// Number of executions of edges between IR blocks.
    edges: HashMap<(u32, u32), u64>,
    /// Number of executions of edges into a block that are invisible in the assembly: indirect branches and exceptions.
    unseen: HashMap<u32, u64>,
}

impl CountedGraph {
    /// Builds the graph of a function. `labels` holds the names of its blocks, in IR order.
    pub fn new(function: &FunctionMap, paths: &FunctionPaths, labels: &AssemblyBlockNames) -> CountedGraph {
        let nothing = Vec::new();
        let names = labels.get(function.plain_name()).unwrap_or(&nothing);
        // The plugin has split IR blocks. A block of the graph that continues another one belongs to the same IR block.
        let mut code = 0;
        let own: Vec<u32> = (0..function.blocks.len() as u32)
            .map(|at| {
                code = if function.blocks[at as usize].kind == BlockKind::Continuation { code } else { at };
                code
            })
            .collect();
        let of_module = (0..).zip(&function.blocks).filter(|(_, b)| b.kind == BlockKind::Code).map(|(at, _)| at);
        let blocks = names.iter().cloned().zip(of_module).collect();
        let (mut edges, mut unseen) = (HashMap::new(), HashMap::new());
        for (edge, count) in function.graph.flow_edges().zip(&paths.edges).filter(|(e, _)| e.to != function.exit()) {
            let (from, to) = (own[edge.from.index()], own[edge.to.index()]);
            let is_synthetic = matches!(function.blocks[edge.from.index()].kind, BlockKind::Landing | BlockKind::Dispatch);
            if is_synthetic || matches!(edge.kind, EdgeKind::Indirect(_) | EdgeKind::Unwind) {
                *unseen.entry(to).or_default() += count;
            } else {
                *edges.entry((from, to)).or_default() += count;
            }
        }
        CountedGraph { blocks, executions: paths.blocks.clone(), edges, unseen }
    }
}

#[derive(Debug, Default)]
pub struct LoopCode {
    parts: Vec<CodeInLoopPlace>,
}

#[derive(Debug)]
struct CodeInLoopPlace {
    place: LoopCodePlace,
    executions: u64,
    instructions: Vec<String>,
}

impl LoopCode {
    pub fn new(code: &[MachineBlock], graph: &CountedGraph, part: &LoopBlocks) -> LoopCode {
        let named: Vec<Option<u32>> = code.iter().map(|b| graph.blocks.get(b.name.as_ref()?).copied()).collect();
        let mut before = vec![Vec::new(); code.len()];
        for (at, block) in code.iter().enumerate() {
            block.next.iter().for_each(|next| before[*next].push(at));
        }
        let present: BTreeSet<u32> = named.iter().flatten().copied().collect();
        let mut side = LoopCode::default();
        for (at, block) in code.iter().enumerate() {
            let from = nearest_named_blocks(at, &named, |at| &before[at]);
            let place = match named[at] {
                Some(own) => part.is_own_block(own).then(|| (LoopCodePlace::Block(own), graph.executions_from(own, &from))),
                None => {
                    let to = nearest_named_blocks(at, &named, |at| &code[at].next);
                    let place = graph.place_between(&from, &to, part).or_else(|| graph.place_around_duplicate(&from, &to, part, &present));
                    place.or_else(|| graph.place_landing(&from, &to, part))
                }
            };
            if let Some((place, executions)) = place {
                side.parts.push(CodeInLoopPlace { place, executions, instructions: block.instructions.clone() });
            }
        }
        side
    }

    pub fn executions(&self, place: LoopCodePlace) -> u64 {
        self.parts.iter().filter(|p| p.place == place).map(|p| p.executions).max().unwrap_or(0)
    }

    pub fn instructions(&self, place: LoopCodePlace) -> Vec<&str> {
        self.parts.iter().filter(|p| p.place == place).flat_map(|p| p.instructions.iter().map(String::as_str)).collect()
    }

    /// Returns the number of machine instructions that were executed in the loop.
    pub fn executed_instructions(&self) -> u128 {
        self.parts.iter().map(|p| u128::from(p.executions) * p.instructions.len() as u128).sum()
    }
}

/// Returns the nearest named blocks that are reached through unnamed ones.
fn nearest_named_blocks<'a>(start: usize, named: &[Option<u32>], next: impl Fn(usize) -> &'a Vec<usize>) -> BTreeSet<u32> {
    let (mut found, mut seen, mut work) = (BTreeSet::new(), BTreeSet::from([start]), vec![start]);
    while let Some(at) = work.pop() {
        for block in next(at) {
            match named[*block] {
                Some(block) => {
                    found.insert(block);
                }
                None if seen.insert(*block) => work.push(*block),
                None => {}
            }
        }
    }
    found
}

impl CountedGraph {
    /// Returns the number of times that a block's machine code ran after the predecessors `from`. This is less than the block's count if
    /// the code generator has duplicated the block into other predecessors. If the graph has no edge from a predecessor to the block, the
    /// code was restructured more deeply, and the block's count is returned.
    fn executions_from(&self, block: u32, from: &BTreeSet<u32>) -> u64 {
        let all = self.executions[block as usize];
        let seen: Option<u64> = from.iter().map(|f| self.edges.get(&(*f, block)).copied()).sum();
        seen.map_or(all, |seen| all.min(seen + self.unseen.get(&block).copied().unwrap_or(0)))
    }

    /// Assigns an unnamed block to the hottest edge in the loop from one of its named predecessors to one of its named successors. Its
    /// executions are the sum over all such edges.
    fn place_between(&self, from: &BTreeSet<u32>, to: &BTreeSet<u32>, part: &LoopBlocks) -> Option<(LoopCodePlace, u64)> {
        let pairs = from.iter().flat_map(|f| to.iter().map(move |t| (*f, *t))).filter(|(f, t)| part.is_own_edge(*f, *t));
        let on: Vec<((u32, u32), u64)> = pairs.filter_map(|pair| Some((pair, *self.edges.get(&pair)?))).collect();
        let (edge, _) = on.iter().max_by_key(|(_, count)| *count)?;
        Some((LoopCodePlace::Edge(edge.0, edge.1), on.iter().map(|(_, count)| count).sum()))
    }

    /// Like `place_between`, for an unnamed block beside a block that has no code of its own, because it was duplicated into its
    /// predecessors. Code that all predecessors lead to belongs to the edges out of the duplicated block; other code belongs to the edges
    /// into it.
    fn place_around_duplicate(
        &self,
        from: &BTreeSet<u32>,
        to: &BTreeSet<u32>,
        part: &LoopBlocks,
        present: &BTreeSet<u32>,
    ) -> Option<(LoopCodePlace, u64)> {
        let is_duplicated = |block: &u32| {
            part.is_own_block(*block) && !present.contains(block) && to.iter().any(|t| self.edges.contains_key(&(*block, *t)))
        };
        let duplicated = self.edges.keys().filter(|(f, _)| from.contains(f)).map(|(_, l)| *l).filter(is_duplicated).min()?;
        let into: Vec<(u32, u32)> = self.edges.keys().copied().filter(|(_, t)| *t == duplicated).collect();
        let all_come = into.iter().all(|(f, _)| from.contains(f));
        let sides = if all_come { to.iter().map(|t| (duplicated, *t)).collect() } else { into };
        let wanted = |(f, t): &(u32, u32)| part.is_own_edge(*f, *t) && (all_come || from.contains(f));
        let on: Vec<((u32, u32), u64)> = sides.into_iter().filter(wanted).filter_map(|e| Some((e, *self.edges.get(&e)?))).collect();
        let (edge, _) = on.iter().max_by_key(|(edge, count)| (*count, *edge))?;
        Some((LoopCodePlace::Edge(edge.0, edge.1), on.iter().map(|(_, count)| count).sum()))
    }

    /// Assigns a block before `to` that no direct branch reaches to the landing block of indirect branches, because it cannot be anything
    /// else.
    fn place_landing(&self, from: &BTreeSet<u32>, to: &BTreeSet<u32>, part: &LoopBlocks) -> Option<(LoopCodePlace, u64)> {
        let landed = to.iter().filter(|t| from.is_empty() && part.is_own_block(**t)).find_map(|t| Some((*t, *self.unseen.get(t)?)));
        landed.map(|(to, count)| (LoopCodePlace::Landing(to), count))
    }
}

/// Returns the places that have code in either version: first those of the plain version in layout order, then the others.
pub fn list_places(plain: &LoopCode, counted: &LoopCode) -> Vec<LoopCodePlace> {
    let mut all: Vec<LoopCodePlace> = Vec::new();
    for part in plain.parts.iter().chain(&counted.parts) {
        if !all.contains(&part.place) {
            all.push(part.place);
        }
    }
    all
}

/// A line with two columns: an instruction of each version, or an instruction of only one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstructionPair {
    pub plain: Option<String>,
    pub counted: Option<String>,
}

/// Aligns the instructions of both versions with the highest total similarity. Similarity is highest for equal instructions, lower if only
/// registers and labels differ, and lowest if only the mnemonics are equal.
pub fn align_instructions(plain: &[&str], counted: &[&str]) -> Vec<InstructionPair> {
    let (rows, columns) = (plain.len(), counted.len());
    let at = |row: usize, column: usize| row * (columns + 1) + column;
    // `best[at(r, c)]` is the highest total similarity of the instructions from r and c to the ends.
    let mut best = vec![0u32; (rows + 1) * (columns + 1)];
    let shapes = |side: &[&str]| side.iter().map(|i| mask_operands(i)).collect::<Vec<_>>();
    let (left, right) = (shapes(plain), shapes(counted));
    let similarity = |r: usize, c: usize| match () {
        () if plain[r] == counted[c] => 5,
        () if left[r] == right[c] => 4,
        () if left[r].split(' ').next() == right[c].split(' ').next() => 2,
        () => 0,
    };
    for r in (0..rows).rev() {
        for c in (0..columns).rev() {
            let both = match similarity(r, c) {
                0 => 0,
                score => score + best[at(r + 1, c + 1)],
            };
            best[at(r, c)] = both.max(best[at(r + 1, c)]).max(best[at(r, c + 1)]);
        }
    }
    let (mut r, mut c, mut lines) = (0, 0, Vec::new());
    while r < rows || c < columns {
        let both = r < rows && c < columns && similarity(r, c) > 0 && best[at(r, c)] == similarity(r, c) + best[at(r + 1, c + 1)];
        let first = !both && r < rows && (c == columns || best[at(r, c)] == best[at(r + 1, c)]);
        let (takes_plain, takes_counted) = (both || first, both || !first);
        lines.push(InstructionPair {
            plain: takes_plain.then(|| plain[r].to_owned()),
            counted: takes_counted.then(|| counted[c].to_owned()),
        });
        r += usize::from(takes_plain);
        c += usize::from(takes_counted);
    }
    lines
}

/// Returns an instruction with the names of registers and labels masked.
fn mask_operands(instruction: &str) -> String {
    let mut out = String::new();
    let mut skipping = false;
    for (at, c) in instruction.char_indices() {
        let is_word = c.is_ascii_alphanumeric() || c == '_';
        if c == '%' || instruction[at..].starts_with(".LBB") {
            out.push(c);
            skipping = true;
        } else if !(skipping && is_word) {
            skipping = false;
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(plain: &[&str], counted: &[&str]) -> Vec<String> {
        let mark = |line: InstructionPair| format!("{}|{}", line.plain.unwrap_or_default(), line.counted.unwrap_or_default());
        align_instructions(plain, counted).into_iter().map(mark).collect()
    }

    #[test]
    fn instruction_of_one_version_stands_alone() {
        let plain = ["movl %eax, %ecx", "addl $1, %ecx", "jne .LBB0_3"];
        let counted = ["movl %eax, %edx", "incq 8(%rbx)", "addl $1, %edx", "jne .LBB0_5"];
        assert_eq!(
            pairs(&plain, &counted),
            ["movl %eax, %ecx|movl %eax, %edx", "|incq 8(%rbx)", "addl $1, %ecx|addl $1, %edx", "jne .LBB0_3|jne .LBB0_5"]
        );
    }

    #[test]
    fn most_similar_instruction_is_aligned() {
        assert_eq!(pairs(&["addq $8, %rsi"], &["addq $5, %rax", "addq $8, %rdi"]), ["|addq $5, %rax", "addq $8, %rsi|addq $8, %rdi"]);
        assert_eq!(pairs(&["nop"], &[]), ["nop|"]);
        assert_eq!(pairs(&["nop"], &["retq"]), ["nop|", "|retq"]);
    }

    #[test]
    fn alignment_contains_every_instruction_once() {
        let words = ["a %x", "a %y", "b", "c .LBB0_1", "c .LBB0_2"];
        for seed in 0..200usize {
            let list = |from: usize| (0..(seed + from) % 7).map(|i| words[(seed * 7 + i * i + from) % 5]).collect::<Vec<_>>();
            let (plain, counted) = (list(1), list(3));
            let lines = align_instructions(&plain, &counted);
            assert_eq!(lines.iter().filter_map(|l| l.plain.as_deref()).collect::<Vec<_>>(), plain);
            assert_eq!(lines.iter().filter_map(|l| l.counted.as_deref()).collect::<Vec<_>>(), counted);
        }
    }

    fn machine_block(name: Option<&str>, instructions: usize, next: &[usize]) -> MachineBlock {
        MachineBlock { label: None, name: name.map(str::to_owned), instructions: vec!["nop".into(); instructions], next: next.to_vec() }
    }

    #[test]
    fn duplicated_block_is_placed_on_its_edges() {
        // The edges are 0 -> 1, 0 -> 2, 1 -> 2 and 2 -> 0. Block 2 was duplicated into block 1, and into code on the edge from block 0.
        let edges = HashMap::from([((0, 1), 30), ((0, 2), 70), ((1, 2), 30), ((2, 0), 99)]);
        let graph = CountedGraph { blocks: HashMap::new(), executions: vec![100, 30, 100], edges, unseen: HashMap::new() };
        let (part, present, to) = (LoopBlocks::new(0, &[0, 1, 2]), BTreeSet::from([0, 1]), BTreeSet::from([0]));
        assert_eq!(graph.place_around_duplicate(&BTreeSet::from([0]), &to, &part, &present), Some((LoopCodePlace::Edge(0, 2), 70)));
        assert_eq!(graph.place_around_duplicate(&BTreeSet::from([0, 1]), &to, &part, &present), Some((LoopCodePlace::Edge(2, 0), 99)));
        assert_eq!(graph.place_around_duplicate(&BTreeSet::from([0]), &to, &part, &BTreeSet::from([0, 1, 2])), None, "it has code");
    }

    #[test]
    fn duplicated_block_runs_less_often_itself() {
        let edges = HashMap::from([((1, 3), 60), ((2, 3), 40)]);
        let graph = CountedGraph { blocks: HashMap::new(), executions: vec![0, 60, 40, 105], edges, unseen: HashMap::from([(3, 5)]) };
        assert_eq!(graph.executions_from(3, &BTreeSet::from([1, 2])), 105);
        assert_eq!(graph.executions_from(3, &BTreeSet::from([2])), 45, "copied into block 1");
        assert_eq!(graph.executions_from(3, &BTreeSet::from([0, 2])), 105, "the graph has no edge from 0");
    }

    #[test]
    fn unnamed_code_is_placed_on_its_edge() {
        // The edges are 0 -> 1, 1 -> 2 and 2 -> 1, so 1 and 2 form the loop. One unnamed block is on the edge from 2 to 1, another one is
        // before the loop.
        let graph = CountedGraph {
            blocks: HashMap::from([("a".into(), 0), ("b".into(), 1), ("c".into(), 2)]),
            executions: vec![1, 11, 10],
            edges: HashMap::from([((0, 1), 1), ((1, 2), 10), ((2, 1), 10)]),
            unseen: HashMap::new(),
        };
        let code = [
            machine_block(Some("a"), 1, &[1]),
            machine_block(None, 4, &[2]),
            machine_block(Some("b"), 2, &[3]),
            machine_block(Some("c"), 3, &[4]),
            machine_block(None, 1, &[2]),
        ];
        let side = LoopCode::new(&code, &graph, &LoopBlocks::new(1, &[1, 2]));
        let parts: Vec<(LoopCodePlace, u64)> = side.parts.iter().map(|p| (p.place, p.executions)).collect();
        assert_eq!(parts, [(LoopCodePlace::Block(1), 11), (LoopCodePlace::Block(2), 10), (LoopCodePlace::Edge(2, 1), 10)]);
        assert_eq!(side.executed_instructions(), 11 * 2 + 10 * 3 + 10);
    }
}
