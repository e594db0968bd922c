//! A complete search for compact numbers, bit by bit from the lowest.
//!
//! The numbers below a span are spread evenly over the residues of a power of two: of the numbers below `span`, `(span - residue) /
//! 2^bits`, rounded up, have that residue. Where nearly all numbers are taken, a choice of the coefficients' lowest bit has to
//! halve the paths nearly evenly, the next bit has to halve either half, and so on. A bit of all coefficients is a word of a linear
//! code over two elements: bits of independent paths can be chosen, those of the others follow. A group of paths whose numbers
//! agree so far and that can be divided in one manner only gives an equation, since the sum of its bits is known; what the equations
//! leave is chosen group by group, so that one that does not halve is noticed early. All paths take part in every bit, while a
//! search that gives one path its number after the other knows nothing of most of them for long.
//!
//! When the modulus has reached the span, residues are the numbers; whether integers give them is then seen by
//! elimination. Numbers that are mirrored (`span - 1 - number`) can be had as well, so one of the two is tried only.

use super::lattice::{Lattice, NumberSearch};
use trodden_flow::numbering::sequence::Shuffle;

/// Sets of coefficients are words, with a bit to spare.
pub const MOST_PATHS: usize = 63;
/// In a set of choices: one that is always made.
const ALWAYS: u64 = 1 << 63;

/// What is spent: `false` ends the search.
pub type Patience<'a> = &'a mut dyn FnMut() -> bool;

/// Numbers from 0 to `span - 1` for all paths of a lattice of at most [`MOST_PATHS`], all different. Bits are tried in
/// the order of `shuffle`.
pub fn find(lattice: &Lattice, span: u64, patience: Patience, shuffle: &mut Shuffle) -> NumberSearch {
    let coefficients = vec![0i64; lattice.rank()];
    let parities = lattice.rows.iter().map(|row| row.iter().enumerate().fold(0u64, |p, (at, v)| p | ((*v as u64 & 1) << at))).collect();
    let mut search = Lifting { lattice, span, parities, patience, shuffle };
    let values = vec![0i64; lattice.rows.len()];
    search.lift(0, &coefficients, &values)
}

struct Lifting<'a> {
    lattice: &'a Lattice,
    span: u64,
    /// Of each row which coefficients are odd.
    parities: Vec<u64>,
    patience: Patience<'a>,
    shuffle: &'a mut Shuffle,
}

/// Paths whose numbers agree so far, and how many of them may have the next bit.
struct Group {
    members: Vec<usize>,
    least: usize,
    most: usize,
}

/// A path while bits are chosen.
struct Place {
    group: usize,
    /// The next bit of its number as it is.
    base: bool,
    /// The choices whose sum changes it; one that is its own, if there is one.
    choices: u64,
    own: Option<u32>,
}

/// Equations for a bit of all coefficients, each at the place of its lowest coefficient.
struct Equations {
    of: Vec<Equation>,
    /// Choices that they have.
    chosen: u32,
}

/// The sum of the coefficients in `vector` is that of `choices`. No vector: there is no such equation.
#[derive(Clone, Copy, Default)]
struct Equation {
    vector: u64,
    choices: u64,
}

impl Equations {
    /// What is left of a sum when no equation is about its lowest coefficient any more.
    fn reduce(&self, mut sum: Equation) -> Equation {
        while sum.vector != 0 {
            let equation = self.of[sum.vector.trailing_zeros() as usize];
            if equation.vector == 0 {
                break;
            }
            sum.vector ^= equation.vector;
            sum.choices ^= equation.choices;
        }
        sum
    }

    /// Adds one that was reduced, and is not empty.
    fn add(&mut self, equation: Equation) {
        self.of[equation.vector.trailing_zeros() as usize] = equation;
    }

    /// Adds one whose sum is known. False: it contradicts the others.
    fn require(&mut self, vector: u64, sum: bool) -> bool {
        let reduced = self.reduce(Equation { vector, choices: if sum { ALWAYS } else { 0 } });
        if reduced.vector != 0 {
            self.add(reduced);
        }
        reduced.vector != 0 || reduced.choices == 0
    }

    /// The choices that the bit of a row follows from, and the one that is its own.
    fn place(&mut self, parities: u64) -> (u64, Option<u32>) {
        let reduced = self.reduce(Equation { vector: parities, choices: 0 });
        if reduced.vector == 0 {
            return (reduced.choices, None);
        }
        let own = self.chosen;
        self.chosen += 1;
        self.add(Equation { vector: reduced.vector, choices: reduced.choices ^ 1 << own });
        (1 << own, Some(own))
    }

    /// Coefficients, those that no equation is about given.
    fn solve(&self, given: u64, choices: u64) -> u64 {
        let mut bits = given;
        for (at, equation) in self.of.iter().enumerate().rev().filter(|(_, e)| e.vector != 0) {
            let sum = (equation.choices & choices).count_ones() + (equation.vector & bits).count_ones();
            bits |= u64::from(sum & 1) << at;
        }
        bits
    }
}

impl Lifting<'_> {
    /// Chooses the bits of coefficients from `level` on, those below being chosen; `values` are what coefficients give, modulo the word.
    fn lift(&mut self, level: u32, coefficients: &[i64], values: &[i64]) -> NumberSearch {
        if 1u64 << level >= self.span {
            return self.exactly(values, (1 << level) - 1);
        }
        let Some(groups) = self.groups(level, values) else { return NumberSearch::Nothing };
        let Some(mut equations) = self.equations(&groups, level, values) else { return NumberSearch::Nothing };
        let place = |(group, row): (usize, usize)| {
            let (choices, own) = equations.place(self.parities[row]);
            Place { group, base: values[row] >> level & 1 == 1, choices, own }
        };
        let members = groups.iter().enumerate().flat_map(|(at, g)| g.members.iter().map(move |row| (at, *row)));
        let places: Vec<Place> = members.map(place).collect();
        let mut counts: Vec<[usize; 2]> = groups.iter().map(|g| [g.members.len() - g.least, g.most]).collect();
        self.choose(&places, &mut counts, ALWAYS, &mut |search, choices| search.next(level, coefficients, values, &equations, choices))
    }

    /// Whether integers give these numbers.
    fn exactly(&self, values: &[i64], mask: i64) -> NumberSearch {
        let mut coefficients: Vec<i64> = Vec::with_capacity(self.lattice.rank());
        for ((row, pivot), value) in self.lattice.rows.iter().zip(&self.lattice.pivots).zip(values) {
            let known = row.iter().zip(&coefficients).try_fold(0i64, |sum, (a, y)| sum.checked_add(a.checked_mul(*y)?));
            // Numbers beyond the word would be a solution, but none that could be used; nothing is claimed of them.
            let Some(left) = known.and_then(|known| (value & mask).checked_sub(known)) else { return NumberSearch::Unfinished };
            match pivot {
                Some(pivot) if left % pivot == 0 => coefficients.push(left / pivot),
                None if left == 0 => {}
                _ => return NumberSearch::Nothing,
            }
        }
        NumberSearch::Numbers(coefficients)
    }

    /// How many numbers have a residue.
    fn room(&self, residue: u64, bits: u32) -> usize {
        (self.span.saturating_sub(residue)).div_ceil(1 << bits) as usize
    }

    /// Groups, those that say most about each of their paths first; none if one has no room.
    fn groups(&self, level: u32, values: &[i64]) -> Option<Vec<Group>> {
        let mut by_residue: Vec<(u64, usize)> = values.iter().enumerate().map(|(row, v)| (*v as u64 & ((1 << level) - 1), row)).collect();
        by_residue.sort_unstable();
        let mut groups = Vec::new();
        for of_group in by_residue.chunk_by(|a, b| a.0 == b.0) {
            let (residue, count) = (of_group[0].0, of_group.len());
            let (clear, set) = (self.room(residue, level + 1), self.room(residue + (1 << level), level + 1));
            let (least, most) = (count.saturating_sub(clear), set.min(count));
            if least > most {
                return None;
            }
            groups.push(Group { members: of_group.iter().map(|(_, row)| *row).collect(), least, most });
        }
        groups.sort_by_key(|g| ((g.most - g.least + 1) << 16) / (g.members.len() + 1) + (g.members.len() << 8));
        Some(groups)
    }

    /// A path whose bit is clear in numbers or in the mirrored ones, set in the others.
    fn forced(&self, level: u32, values: &[i64]) -> Option<usize> {
        match (self.span % 4, level) {
            (0 | 2, 0) => Some(0),
            (3, 1) => values.iter().position(|v| v & 1 == 0),
            (1, 1) => values.iter().position(|v| v & 1 == 1),
            _ => None,
        }
    }

    /// What is known of bits before any is chosen; none if it is a contradiction.
    fn equations(&self, groups: &[Group], level: u32, values: &[i64]) -> Option<Equations> {
        let mut equations = Equations { of: vec![Equation::default(); self.lattice.rank()], chosen: 0 };
        let base = |row: usize| values[row] >> level & 1 == 1;
        let forced = self.forced(level, values).is_none_or(|row| equations.require(self.parities[row], base(row)));
        let of_group = |group: &Group| {
            let vector = group.members.iter().fold(0, |sum, row| sum ^ self.parities[*row]);
            let sum = group.members.iter().fold(group.most % 2 == 1, |sum, row| sum ^ base(*row));
            equations.require(vector, sum)
        };
        let known = forced && groups.iter().filter(|g| g.least == g.most).all(of_group);
        known.then_some(equations)
    }

    /// Chooses bits of the places. `counts`: how many of each group may still be clear, and set.
    fn choose(
        &mut self,
        places: &[Place],
        counts: &mut [[usize; 2]],
        choices: u64,
        next: &mut dyn FnMut(&mut Self, u64) -> NumberSearch,
    ) -> NumberSearch {
        let Some((place, rest)) = places.split_first() else { return next(self, choices) };
        if !(self.patience)() {
            return NumberSearch::Unfinished;
        }
        let follows = (place.choices & choices).count_ones() & 1 == 1;
        let (first, values) = match place.own {
            Some(_) => (self.shuffle.number() & 1 == 1, 2),
            None => (follows, 1),
        };
        for bit in [first, !first].into_iter().take(values) {
            let (group, bit_of_number) = (place.group, usize::from(place.base ^ bit));
            if counts[group][bit_of_number] == 0 {
                continue;
            }
            counts[group][bit_of_number] -= 1;
            let step = self.choose(rest, counts, place.own.map_or(choices, |own| choices | u64::from(bit) << own), next);
            counts[group][bit_of_number] += 1;
            if !matches!(step, NumberSearch::Nothing) {
                return step;
            }
        }
        NumberSearch::Nothing
    }

    /// Goes on with coefficients that have the chosen bits. Coefficients that no bit depends on may have either.
    fn next(&mut self, level: u32, coefficients: &[i64], values: &[i64], equations: &Equations, choices: u64) -> NumberSearch {
        let free: Vec<usize> = (0..equations.of.len()).filter(|at| equations.of[*at].vector == 0).collect();
        let mut free_bits = 0u64;
        loop {
            let given = free.iter().enumerate().fold(0u64, |bits, (at, column)| bits | (free_bits >> at & 1) << column);
            let bits = equations.solve(given, choices);
            let coefficients: Vec<i64> = coefficients.iter().enumerate().map(|(at, y)| y + ((bits >> at & 1) << level) as i64).collect();
            let value = |(row, value): (&Vec<i64>, &i64)| {
                let set = row.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                set.fold(*value, |sum, (_, a)| sum.wrapping_add(a << level))
            };
            let values: Vec<i64> = self.lattice.rows.iter().zip(values).map(value).collect();
            let step = self.lift(level + 1, &coefficients, &values);
            free_bits += 1;
            if !matches!(step, NumberSearch::Nothing) || free_bits >> free.len() != 0 {
                return step;
            }
            if !(self.patience)() {
                return NumberSearch::Unfinished;
            }
        }
    }
}
