//! Machine blocks beside blocks of the graph, and instructions beside instructions.

use super::Place;
use super::compile::Labels;
use super::machine::MachineBlock;
use super::nest::LoopPart as Blocks;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, EdgeKind, FunctionMap};

/// A function's graph by the names that its blocks were given, with the run's counts.
pub struct Graph {
    /// Block of each name.
    blocks: HashMap<String, u32>,
    executions: Vec<u64>,
    /// Executions of edges between blocks of the module.
    edges: HashMap<(u32, u32), u64>,
    /// Arrivals by edges that assembly does not show: indirect branches, exceptions.
    unseen: HashMap<u32, u64>,
}

impl Graph {
    /// Of a function whose blocks have these names, in the module's order.
    pub fn new(function: &FunctionMap, paths: &FunctionPaths, labels: &Labels) -> Graph {
        let nothing = Vec::new();
        let names = labels.get(function.plain_name()).unwrap_or(&nothing);
        // A continuation is a part of the module's block before it.
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
        for (edge, count) in function.edges.iter().zip(&paths.edges).filter(|(e, _)| e.to != function.exit()) {
            let (from, to) = (own[edge.from.index()], own[edge.to.index()]);
            let is_made_up = matches!(function.blocks[edge.from.index()].kind, BlockKind::Landing | BlockKind::Dispatch);
            if is_made_up || matches!(edge.kind, EdgeKind::Indirect(_) | EdgeKind::Unwind) {
                *unseen.entry(to).or_default() += count;
            } else {
                *edges.entry((from, to)).or_default() += count;
            }
        }
        Graph { blocks, executions: paths.blocks.clone(), edges, unseen }
    }
}

/// One version of a loop's code.
#[derive(Debug, Default)]
pub struct PairSide {
    parts: Vec<Part>,
}

/// Machine code at a place.
#[derive(Debug)]
struct Part {
    place: Place,
    executions: u64,
    instructions: Vec<String>,
}

impl PairSide {
    /// The machine blocks of a loop, in the order in which they stand.
    pub fn new(code: &[MachineBlock], graph: &Graph, of: &Blocks) -> PairSide {
        let named: Vec<Option<u32>> = code.iter().map(|b| graph.blocks.get(b.name.as_ref()?).copied()).collect();
        let mut before = vec![Vec::new(); code.len()];
        for (at, block) in code.iter().enumerate() {
            block.next.iter().for_each(|next| before[*next].push(at));
        }
        let present: BTreeSet<u32> = named.iter().flatten().copied().collect();
        let mut side = PairSide::default();
        for (at, block) in code.iter().enumerate() {
            let from = nearest(at, &named, |at| &before[at]);
            let place = match named[at] {
                Some(own) => of.has(own).then(|| (Place::Block(own), graph.arrivals(own, &from))),
                None => {
                    let to = nearest(at, &named, |at| &code[at].next);
                    let place = graph.between(&from, &to, of).or_else(|| graph.around_lost(&from, &to, of, &present));
                    place.or_else(|| graph.landing(&from, &to, of))
                }
            };
            if let Some((place, executions)) = place {
                side.parts.push(Part { place, executions, instructions: block.instructions.clone() });
            }
        }
        side
    }

    /// How often the code at a place ran.
    pub fn executions(&self, place: Place) -> u64 {
        self.parts.iter().filter(|p| p.place == place).map(|p| p.executions).max().unwrap_or(0)
    }

    /// All instructions at a place.
    pub fn instructions(&self, place: Place) -> Vec<&str> {
        self.parts.iter().filter(|p| p.place == place).flat_map(|p| p.instructions.iter().map(String::as_str)).collect()
    }

    /// Machine instructions that the loop executed.
    pub fn executed(&self) -> u128 {
        self.parts.iter().map(|p| u128::from(p.executions) * p.instructions.len() as u128).sum()
    }
}

/// The blocks with names that are reached first, through blocks without.
fn nearest<'a>(start: usize, named: &[Option<u32>], next: impl Fn(usize) -> &'a Vec<usize>) -> BTreeSet<u32> {
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

impl Graph {
    /// How often a block's machine code ran that control comes to from these blocks. That is less often than the block
    /// if the code generator copied the block into others before it. Where control comes by edges that the graph does
    /// not have, the code generator changed more, and the block's count is taken.
    fn arrivals(&self, block: u32, from: &BTreeSet<u32>) -> u64 {
        let all = self.executions[block as usize];
        let seen: Option<u64> = from.iter().map(|f| self.edges.get(&(*f, block)).copied()).sum();
        seen.map_or(all, |seen| all.min(seen + self.unseen.get(&block).copied().unwrap_or(0)))
    }

    /// What a block without a name is: code on the edges between those before it and those behind it. Of a loop's edges
    /// the one executed most gives the place its name.
    fn between(&self, from: &BTreeSet<u32>, to: &BTreeSet<u32>, of: &Blocks) -> Option<(Place, u64)> {
        let pairs = from.iter().flat_map(|f| to.iter().map(move |t| (*f, *t))).filter(|(f, t)| of.has_edge(*f, *t));
        let on: Vec<((u32, u32), u64)> = pairs.filter_map(|pair| Some((pair, *self.edges.get(&pair)?))).collect();
        let (edge, _) = on.iter().max_by_key(|(_, count)| *count)?;
        Some((Place::Edge(edge.0, edge.1), on.iter().map(|(_, count)| count).sum()))
    }

    /// The same where a block stood between that has no code of its own any more, because it was copied into those
    /// before it: what comes from all of them is on the edges behind it, what comes from some on the edges before it.
    fn around_lost(&self, from: &BTreeSet<u32>, to: &BTreeSet<u32>, of: &Blocks, present: &BTreeSet<u32>) -> Option<(Place, u64)> {
        let is_lost = |block: &u32| of.has(*block) && !present.contains(block) && to.iter().any(|t| self.edges.contains_key(&(*block, *t)));
        let lost = self.edges.keys().filter(|(f, _)| from.contains(f)).map(|(_, l)| *l).filter(is_lost).min()?;
        let into: Vec<(u32, u32)> = self.edges.keys().copied().filter(|(_, t)| *t == lost).collect();
        let all_come = into.iter().all(|(f, _)| from.contains(f));
        let sides = if all_come { to.iter().map(|t| (lost, *t)).collect() } else { into };
        let wanted = |(f, t): &(u32, u32)| of.has_edge(*f, *t) && (all_come || from.contains(f));
        let on: Vec<((u32, u32), u64)> = sides.into_iter().filter(wanted).filter_map(|e| Some((e, *self.edges.get(&e)?))).collect();
        let (edge, _) = on.iter().max_by_key(|(edge, count)| (*count, *edge))?;
        Some((Place::Edge(edge.0, edge.1), on.iter().map(|(_, count)| count).sum()))
    }

    /// Where indirect branches arrive; nothing else leads there.
    fn landing(&self, from: &BTreeSet<u32>, to: &BTreeSet<u32>, of: &Blocks) -> Option<(Place, u64)> {
        let landed = to.iter().filter(|t| from.is_empty() && of.has(**t)).find_map(|t| Some((*t, *self.unseen.get(t)?)));
        landed.map(|(to, count)| (Place::Landing(to), count))
    }
}

/// All places of both versions: in the order of the plain code, what it lacks behind.
pub fn places(plain: &PairSide, counted: &PairSide) -> Vec<Place> {
    let mut all: Vec<Place> = Vec::new();
    for part in plain.parts.iter().chain(&counted.parts) {
        if !all.contains(&part.place) {
            all.push(part.place);
        }
    }
    all
}

/// A line of two columns: an instruction of each version, or of one alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinePair {
    /// Without counting.
    pub plain: Option<String>,
    /// With counting.
    pub counted: Option<String>,
}

/// Puts instructions beside each other: the alignment of the two lists in their order that has the most in common,
/// where equal instructions count most, those that differ in registers and targets less, those that only do the same
/// thing least.
pub fn align(plain: &[&str], counted: &[&str]) -> Vec<LinePair> {
    let (rows, columns) = (plain.len(), counted.len());
    let at = |row: usize, column: usize| row * (columns + 1) + column;
    // best[at(r, c)]: the most that what is behind r and c can have in common.
    let mut best = vec![0u32; (rows + 1) * (columns + 1)];
    let shapes = |side: &[&str]| side.iter().map(|i| shape(i)).collect::<Vec<_>>();
    let (left, right) = (shapes(plain), shapes(counted));
    let likeness = |r: usize, c: usize| match () {
        () if plain[r] == counted[c] => 5,
        () if left[r] == right[c] => 4,
        () if left[r].split(' ').next() == right[c].split(' ').next() => 2,
        () => 0,
    };
    for r in (0..rows).rev() {
        for c in (0..columns).rev() {
            let both = match likeness(r, c) {
                0 => 0,
                alike => alike + best[at(r + 1, c + 1)],
            };
            best[at(r, c)] = both.max(best[at(r + 1, c)]).max(best[at(r, c + 1)]);
        }
    }
    let (mut r, mut c, mut lines) = (0, 0, Vec::new());
    while r < rows || c < columns {
        let both = r < rows && c < columns && likeness(r, c) > 0 && best[at(r, c)] == likeness(r, c) + best[at(r + 1, c + 1)];
        let first = !both && r < rows && (c == columns || best[at(r, c)] == best[at(r + 1, c)]);
        let (takes_plain, takes_counted) = (both || first, both || !first);
        lines.push(LinePair { plain: takes_plain.then(|| plain[r].to_owned()), counted: takes_counted.then(|| counted[c].to_owned()) });
        r += usize::from(takes_plain);
        c += usize::from(takes_counted);
    }
    lines
}

/// An instruction without the names of registers and labels.
fn shape(instruction: &str) -> String {
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
        let mark = |line: LinePair| format!("{}|{}", line.plain.unwrap_or_default(), line.counted.unwrap_or_default());
        align(plain, counted).into_iter().map(mark).collect()
    }

    #[test]
    fn what_only_one_version_has_stands_alone() {
        let plain = ["movl %eax, %ecx", "addl $1, %ecx", "jne .LBB0_3"];
        let counted = ["movl %eax, %edx", "incq 8(%rbx)", "addl $1, %edx", "jne .LBB0_5"];
        assert_eq!(
            pairs(&plain, &counted),
            ["movl %eax, %ecx|movl %eax, %edx", "|incq 8(%rbx)", "addl $1, %ecx|addl $1, %edx", "jne .LBB0_3|jne .LBB0_5"]
        );
    }

    #[test]
    fn of_two_that_would_do_the_more_alike_is_taken() {
        assert_eq!(pairs(&["addq $8, %rsi"], &["addq $5, %rax", "addq $8, %rdi"]), ["|addq $5, %rax", "addq $8, %rsi|addq $8, %rdi"]);
        assert_eq!(pairs(&["nop"], &[]), ["nop|"]);
        assert_eq!(pairs(&["nop"], &["retq"]), ["nop|", "|retq"]);
    }

    #[test]
    fn every_instruction_is_in_the_alignment_once() {
        let words = ["a %x", "a %y", "b", "c .LBB0_1", "c .LBB0_2"];
        for seed in 0..200usize {
            let list = |from: usize| (0..(seed + from) % 7).map(|i| words[(seed * 7 + i * i + from) % 5]).collect::<Vec<_>>();
            let (plain, counted) = (list(1), list(3));
            let lines = align(&plain, &counted);
            assert_eq!(lines.iter().filter_map(|l| l.plain.as_deref()).collect::<Vec<_>>(), plain);
            assert_eq!(lines.iter().filter_map(|l| l.counted.as_deref()).collect::<Vec<_>>(), counted);
        }
    }

    fn machine(name: Option<&str>, instructions: usize, next: &[usize]) -> MachineBlock {
        MachineBlock { label: None, name: name.map(str::to_owned), instructions: vec!["nop".into(); instructions], next: next.to_vec() }
    }

    #[test]
    fn a_block_without_code_of_its_own_lives_on_around_its_edges() {
        // 0 -> 1 | 2, 1 -> 2, 2 -> 0; block 2 was copied into 1, and into code on the edge from 0.
        let edges = HashMap::from([((0, 1), 30), ((0, 2), 70), ((1, 2), 30), ((2, 0), 99)]);
        let graph = Graph { blocks: HashMap::new(), executions: vec![100, 30, 100], edges, unseen: HashMap::new() };
        let (of, present, to) = (Blocks::new(0, &[0, 1, 2]), BTreeSet::from([0, 1]), BTreeSet::from([0]));
        assert_eq!(graph.around_lost(&BTreeSet::from([0]), &to, &of, &present), Some((Place::Edge(0, 2), 70)));
        assert_eq!(graph.around_lost(&BTreeSet::from([0, 1]), &to, &of, &present), Some((Place::Edge(2, 0), 99)));
        assert_eq!(graph.around_lost(&BTreeSet::from([0]), &to, &of, &BTreeSet::from([0, 1, 2])), None, "it has code");
    }

    #[test]
    fn a_block_that_was_copied_into_others_runs_less_often_itself() {
        let edges = HashMap::from([((1, 3), 60), ((2, 3), 40)]);
        let graph = Graph { blocks: HashMap::new(), executions: vec![0, 60, 40, 105], edges, unseen: HashMap::from([(3, 5)]) };
        assert_eq!(graph.arrivals(3, &BTreeSet::from([1, 2])), 105);
        assert_eq!(graph.arrivals(3, &BTreeSet::from([2])), 45, "copied into block 1");
        assert_eq!(graph.arrivals(3, &BTreeSet::from([0, 2])), 105, "the graph has no edge from 0");
    }

    #[test]
    fn code_without_a_name_is_on_the_edge_around_it() {
        // Blocks 0 -> 1 <-> 2, the loop being 1 and 2; a block without a name stands on the edge from 2 to 1, another before the loop.
        let graph = Graph {
            blocks: HashMap::from([("a".into(), 0), ("b".into(), 1), ("c".into(), 2)]),
            executions: vec![1, 11, 10],
            edges: HashMap::from([((0, 1), 1), ((1, 2), 10), ((2, 1), 10)]),
            unseen: HashMap::new(),
        };
        let code = [
            machine(Some("a"), 1, &[1]),
            machine(None, 4, &[2]),
            machine(Some("b"), 2, &[3]),
            machine(Some("c"), 3, &[4]),
            machine(None, 1, &[2]),
        ];
        let side = PairSide::new(&code, &graph, &Blocks::new(1, &[1, 2]));
        let parts: Vec<(Place, u64)> = side.parts.iter().map(|p| (p.place, p.executions)).collect();
        assert_eq!(parts, [(Place::Block(1), 11), (Place::Block(2), 10), (Place::Edge(2, 1), 10)]);
        assert_eq!(side.executed(), 11 * 2 + 10 * 3 + 10);
    }
}
