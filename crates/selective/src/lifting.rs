//! A complete search for compact numbers that chooses one bit of all numbers at a time, from the lowest bit.
//!
//! The numbers below a span are spread evenly over the residues of a power of two. If nearly all numbers are used, the coefficients' lowest
//! bits must divide the set of paths into nearly equal halves, the next bits must divide each half, and so on. The bits of the rows form a
//! linear code over GF(2): bits of independent paths can be chosen, and the other bits follow. A group of paths that can be divided in only
//! one way gives an equation. The other groups are tried one by one, so that a wrong choice is detected early. Unlike the search path by
//! path ([`super::optimal`]), this search considers all paths at each bit. Once the modulus reaches the span, elimination decides whether
//! integers exist. Mirrored numbers (`span - 1 - number`) are tried only once.

use super::lattice::{Lattice, NumberSearchResult};
use trodden_flow::numbering::sequence::ShuffleRng;

/// Maximum number of paths. A set of choices is a word of 64 bits, one of which represents the constant 1.
pub const MAX_LIFTED_PATHS: usize = 63;
/// The bit of the constant 1 in a set of choices.
const CONSTANT_ONE: u64 = 1 << 63;

/// Counts a step of the search, and returns false if the search must end.
pub type CountStep<'a> = &'a mut dyn FnMut() -> bool;

/// Finds different numbers from 0 to `span - 1` for all paths of a lattice with at most [`MAX_LIFTED_PATHS`] paths. `shuffle` decides which
/// value of each bit is tried first.
pub fn find_numbers(lattice: &Lattice, span: u64, count_step: CountStep, shuffle: &mut ShuffleRng) -> NumberSearchResult {
    let coefficients = vec![0i64; lattice.rank()];
    let parities = lattice.rows.iter().map(|row| row.iter().enumerate().fold(0u64, |p, (at, v)| p | ((*v as u64 & 1) << at))).collect();
    let mut search = Lifting { lattice, span, parities, count_step, shuffle };
    let values = vec![0i64; lattice.rows.len()];
    search.choose_bits_from_level(0, &coefficients, &values)
}

struct Lifting<'a> {
    lattice: &'a Lattice,
    span: u64,
    /// For each row, the set of its odd entries.
    parities: Vec<u64>,
    count_step: CountStep<'a>,
    shuffle: &'a mut ShuffleRng,
}

/// Paths whose numbers have the same lower bits. From `min_set` to `max_set` of them may have the next bit set.
struct PathGroup {
    members: Vec<usize>,
    min_set: usize,
    max_set: usize,
}

/// The next bit of a path's number, as a function of the choices.
struct PathNumberBit {
    group: usize,
    /// The bit if all choices are zero.
    base: bool,
    /// The choices whose sum modulo 2 is added to the bit.
    choices: u64,
    /// The choice that is made for this path, or `None` if its bit follows from earlier choices.
    own: Option<u32>,
}

/// Linear equations for one bit of all coefficients. Each equation is stored at the index of its lowest coefficient.
struct BitEquations {
    by_coefficient: Vec<Equation>,
    choice_count: u32,
}

/// An equation: the coefficients in `vector` and the choices in `choices` have the same sum modulo 2. Unused if `vector` is empty.
#[derive(Clone, Copy, Default)]
struct Equation {
    vector: u64,
    choices: u64,
}

impl BitEquations {
    /// Reduces a sum until there is no equation for its lowest coefficient.
    fn reduce(&self, mut sum: Equation) -> Equation {
        while sum.vector != 0 {
            let equation = self.by_coefficient[sum.vector.trailing_zeros() as usize];
            if equation.vector == 0 {
                break;
            }
            sum.vector ^= equation.vector;
            sum.choices ^= equation.choices;
        }
        sum
    }

    fn add(&mut self, equation: Equation) {
        self.by_coefficient[equation.vector.trailing_zeros() as usize] = equation;
    }

    /// Adds an equation with a known sum. Returns false if it contradicts the others.
    fn add_equation_with_known_sum(&mut self, vector: u64, sum: bool) -> bool {
        let reduced = self.reduce(Equation { vector, choices: if sum { CONSTANT_ONE } else { 0 } });
        if reduced.vector != 0 {
            self.add(reduced);
        }
        reduced.vector != 0 || reduced.choices == 0
    }

    /// Returns the choices that a row's bit depends on, and the row's new choice, if it has one.
    fn assign_path_number_bit(&mut self, parities: u64) -> (u64, Option<u32>) {
        let reduced = self.reduce(Equation { vector: parities, choices: 0 });
        if reduced.vector == 0 {
            return (reduced.choices, None);
        }
        let own = self.choice_count;
        self.choice_count += 1;
        self.add(Equation { vector: reduced.vector, choices: reduced.choices ^ 1 << own });
        (1 << own, Some(own))
    }

    /// Returns the bits of all coefficients. `given` has the bits that no equation determines.
    fn solve(&self, given: u64, choices: u64) -> u64 {
        let mut bits = given;
        for (at, equation) in self.by_coefficient.iter().enumerate().rev().filter(|(_, e)| e.vector != 0) {
            let sum = (equation.choices & choices).count_ones() + (equation.vector & bits).count_ones();
            bits |= u64::from(sum & 1) << at;
        }
        bits
    }
}

impl Lifting<'_> {
    /// Chooses the bits of coefficients from `level` on. `coefficients` have the lower bits, and `values` are the numbers that these give
    /// the paths.
    fn choose_bits_from_level(&mut self, level: u32, coefficients: &[i64], values: &[i64]) -> NumberSearchResult {
        if 1u64 << level >= self.span {
            return self.solve_exactly(values, (1 << level) - 1);
        }
        let Some(groups) = self.group_paths(level, values) else { return NumberSearchResult::NoNumbers };
        let Some(mut equations) = self.derive_equations(&groups, level, values) else { return NumberSearchResult::NoNumbers };
        let place = |(group, row): (usize, usize)| {
            let (choices, own) = equations.assign_path_number_bit(self.parities[row]);
            PathNumberBit { group, base: values[row] >> level & 1 == 1, choices, own }
        };
        let members = groups.iter().enumerate().flat_map(|(at, g)| g.members.iter().map(move |row| (at, *row)));
        let places: Vec<PathNumberBit> = members.map(place).collect();
        let mut counts: Vec<[usize; 2]> = groups.iter().map(|g| [g.members.len() - g.min_set, g.max_set]).collect();
        self.choose_bits(&places, &mut counts, CONSTANT_ONE, &mut |search, choices| {
            search.lift_next_level(level, coefficients, values, &equations, choices)
        })
    }

    /// Decides whether integer coefficients give exactly these numbers.
    fn solve_exactly(&self, values: &[i64], mask: i64) -> NumberSearchResult {
        let mut coefficients: Vec<i64> = Vec::with_capacity(self.lattice.rank());
        for ((row, pivot), value) in self.lattice.rows.iter().zip(&self.lattice.pivots).zip(values) {
            let known = row.iter().zip(&coefficients).try_fold(0i64, |sum, (a, y)| sum.checked_add(a.checked_mul(*y)?));
            // On overflow, coefficients that do not fit into a word may exist. They would be useless, but their absence is not proven.
            let Some(left) = known.and_then(|known| (value & mask).checked_sub(known)) else { return NumberSearchResult::Unfinished };
            match pivot {
                Some(pivot) if left % pivot == 0 => coefficients.push(left / pivot),
                None if left == 0 => {}
                _ => return NumberSearchResult::NoNumbers,
            }
        }
        NumberSearchResult::Numbers(coefficients)
    }

    /// Returns how many numbers below the span have this residue modulo `2^bits`.
    fn count_with_residue(&self, residue: u64, bits: u32) -> usize {
        (self.span.saturating_sub(residue)).div_ceil(1 << bits) as usize
    }

    /// Returns the groups, the most constrained ones first, or `None` if a group has more paths than numbers.
    fn group_paths(&self, level: u32, values: &[i64]) -> Option<Vec<PathGroup>> {
        let mut by_residue: Vec<(u64, usize)> = values.iter().enumerate().map(|(row, v)| (*v as u64 & ((1 << level) - 1), row)).collect();
        by_residue.sort_unstable();
        let mut groups = Vec::new();
        for of_group in by_residue.chunk_by(|a, b| a.0 == b.0) {
            let (residue, count) = (of_group[0].0, of_group.len());
            let (clear, set) = (self.count_with_residue(residue, level + 1), self.count_with_residue(residue + (1 << level), level + 1));
            let (min_set, max_set) = (count.saturating_sub(clear), set.min(count));
            if min_set > max_set {
                return None;
            }
            groups.push(PathGroup { members: of_group.iter().map(|(_, row)| *row).collect(), min_set, max_set });
        }
        groups.sort_by_key(|g| ((g.max_set - g.min_set + 1) << 16) / (g.members.len() + 1) + (g.members.len() << 8));
        Some(groups)
    }

    /// Returns a path whose bit may be assumed clear, because the bit is clear either in the numbers or in the mirrored numbers.
    fn find_symmetric_row(&self, level: u32, values: &[i64]) -> Option<usize> {
        match (self.span % 4, level) {
            (0 | 2, 0) => Some(0),
            (3, 1) => values.iter().position(|v| v & 1 == 0),
            (1, 1) => values.iter().position(|v| v & 1 == 1),
            _ => None,
        }
    }

    /// Returns the equations that hold before any bit is chosen, or `None` if they contradict each other.
    fn derive_equations(&self, groups: &[PathGroup], level: u32, values: &[i64]) -> Option<BitEquations> {
        let mut equations = BitEquations { by_coefficient: vec![Equation::default(); self.lattice.rank()], choice_count: 0 };
        let base = |row: usize| values[row] >> level & 1 == 1;
        let symmetric_row =
            self.find_symmetric_row(level, values).is_none_or(|row| equations.add_equation_with_known_sum(self.parities[row], base(row)));
        let of_group = |group: &PathGroup| {
            let vector = group.members.iter().fold(0, |sum, row| sum ^ self.parities[*row]);
            let sum = group.members.iter().fold(group.max_set % 2 == 1, |sum, row| sum ^ base(*row));
            equations.add_equation_with_known_sum(vector, sum)
        };
        let known = symmetric_row && groups.iter().filter(|g| g.min_set == g.max_set).all(of_group);
        known.then_some(equations)
    }

    /// Chooses the next bit of each path in `places`. For each group, `counts` says how many numbers with a clear bit, and how many with a
    /// set bit, are still free.
    fn choose_bits(
        &mut self,
        places: &[PathNumberBit],
        counts: &mut [[usize; 2]],
        choices: u64,
        next: &mut dyn FnMut(&mut Self, u64) -> NumberSearchResult,
    ) -> NumberSearchResult {
        let Some((place, rest)) = places.split_first() else { return next(self, choices) };
        if !(self.count_step)() {
            return NumberSearchResult::Unfinished;
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
            let step = self.choose_bits(rest, counts, place.own.map_or(choices, |own| choices | u64::from(bit) << own), next);
            counts[group][bit_of_number] += 1;
            if !matches!(step, NumberSearchResult::NoNumbers) {
                return step;
            }
        }
        NumberSearchResult::NoNumbers
    }

    /// Continues with the next level. Coefficients that no equation determines may have either bit.
    fn lift_next_level(
        &mut self,
        level: u32,
        coefficients: &[i64],
        values: &[i64],
        equations: &BitEquations,
        choices: u64,
    ) -> NumberSearchResult {
        let free: Vec<usize> = (0..equations.by_coefficient.len()).filter(|at| equations.by_coefficient[*at].vector == 0).collect();
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
            let step = self.choose_bits_from_level(level + 1, &coefficients, &values);
            free_bits += 1;
            if !matches!(step, NumberSearchResult::NoNumbers) || free_bits >> free.len() != 0 {
                return step;
            }
            if !(self.count_step)() {
                return NumberSearchResult::Unfinished;
            }
        }
    }
}
