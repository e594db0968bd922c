//! Encodes and decodes a function's regions in LLVM's coverage mapping (`CoverageMappingWriter.cpp`). Numbers are in LEB128, and regions
//! are ordered by file and line.

/// An encoded counter: two bits for the kind, then the index of a counter or expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionCounter(u64);

impl RegionCounter {
    pub const ZERO: RegionCounter = RegionCounter(0);
    pub const FIRST: RegionCounter = RegionCounter(1);

    /// Returns the counter whose value is computed by subtraction. `expression` is the index of the expression with the two operands.
    pub fn from_difference(expression: u64) -> RegionCounter {
        RegionCounter(expression << 2 | 2)
    }

    pub fn from_counter(number: u64) -> RegionCounter {
        RegionCounter(number << 2 | 1)
    }

    pub fn kind(self) -> RegionCounterKind {
        match self.0 & 3 {
            0 => RegionCounterKind::Zero,
            1 => RegionCounterKind::Plain(self.0 >> 2),
            2 => RegionCounterKind::Difference(self.0 >> 2),
            _ => RegionCounterKind::Sum(self.0 >> 2),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionCounterKind {
    Zero,
    /// A counter of the function, by its index.
    Plain(u64),
    /// The first operand of an expression minus the second. The number is the index of the expression.
    Difference(u64),
    /// The sum of the two operands of an expression. The number is the index of the expression.
    Sum(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    Code,
    /// The space between pieces of code. It determines the counts of those lines on which no other region starts.
    Gap,
    /// A macro expansion. The number is the index of the file with the expanded text.
    Expansion(u64),
    /// Any other kind, given by LLVM's number for it.
    Other(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRegion {
    pub kind: RegionKind,
    /// The counter of a region. A branch has two: for the condition being true, and for it being false.
    pub counters: Vec<RegionCounter>,
    /// Start of the region, as line and column.
    pub start: (u64, u64),
    /// End of the region, as line and column (exclusive).
    pub end: (u64, u64),
    /// Additional numbers, not interpreted here, that LLVM stores for conditions and decisions.
    pub others: Vec<u64>,
}

const BRANCH_KIND: u64 = 4;
const DECISION_KIND: u64 = 5;
const CONDITION_KIND: u64 = 6;
/// Flag in the number of a region's end column. It marks gap regions.
const GAP_FLAG: u64 = 1 << 31;
const EXPANSION_FLAG: u64 = 1 << 2;

impl CodeRegion {
    /// Returns true for branches, including branches that are conditions of a decision.
    pub fn is_branch(&self) -> bool {
        matches!(self.kind, RegionKind::Other(BRANCH_KIND | CONDITION_KIND))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRegions {
    /// The files in which the function has regions, as indices into the unit's list of files.
    pub files: Vec<u64>,
    /// The two operands of each expression.
    pub expressions: Vec<[RegionCounter; 2]>,
    /// The regions in each of the `files`.
    pub regions: Vec<Vec<CodeRegion>>,
}

impl FunctionRegions {
    pub fn read(bytes: &[u8]) -> Option<FunctionRegions> {
        let mut bytes = UnreadBytes(bytes);
        let files: Vec<u64> = bytes.read_list(UnreadBytes::read_leb128)?;
        let expressions = bytes.read_list(|bytes| Some([RegionCounter(bytes.read_leb128()?), RegionCounter(bytes.read_leb128()?)]))?;
        let mut regions = Vec::new();
        for _ in &files {
            let mut line = 0u64;
            regions.push(bytes.read_list(|bytes| read_region(bytes, &mut line))?);
        }
        Some(FunctionRegions { files, expressions, regions })
    }

    /// Encodes the regions. The regions of each file must be ordered by their first lines.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_leb128(&mut out, self.files.len() as u64);
        self.files.iter().for_each(|file| write_leb128(&mut out, *file));
        write_leb128(&mut out, self.expressions.len() as u64);
        self.expressions.iter().flatten().for_each(|counter| write_leb128(&mut out, counter.0));
        for regions in &self.regions {
            write_leb128(&mut out, regions.len() as u64);
            let mut line = 0;
            for region in regions {
                write_region(&mut out, region, line);
                line = region.start.0;
            }
        }
        out
    }
}

fn read_region(bytes: &mut UnreadBytes, line: &mut u64) -> Option<CodeRegion> {
    let head = bytes.read_leb128()?;
    let (mut kind, mut counters, mut others) = (RegionKind::Code, Vec::new(), Vec::new());
    if head & 3 != 0 {
        counters.push(RegionCounter(head));
    } else if head & EXPANSION_FLAG != 0 {
        kind = RegionKind::Expansion(head >> 3);
    } else if head >> 3 == 0 {
        counters.push(RegionCounter::ZERO);
    } else {
        kind = RegionKind::Other(head >> 3);
        let (sides, numbers) = match head >> 3 {
            BRANCH_KIND => (2, 0),
            CONDITION_KIND => (2, 3),
            DECISION_KIND => (0, 2),
            _ => (0, 0),
        };
        counters = (0..sides).map(|_| bytes.read_leb128().map(RegionCounter)).collect::<Option<_>>()?;
        others = (0..numbers).map(|_| bytes.read_leb128()).collect::<Option<_>>()?;
    }
    *line = line.checked_add(bytes.read_leb128()?)?;
    let (first_column, lines, last_column) = (bytes.read_leb128()?, bytes.read_leb128()?, bytes.read_leb128()?);
    if kind == RegionKind::Code && last_column & GAP_FLAG != 0 {
        kind = RegionKind::Gap;
    }
    Some(CodeRegion { kind, counters, start: (*line, first_column), end: (line.checked_add(lines)?, last_column & !GAP_FLAG), others })
}

fn write_region(out: &mut Vec<u8>, region: &CodeRegion, line_before: u64) {
    match region.kind {
        RegionKind::Code | RegionKind::Gap => write_leb128(out, region.counters[0].0),
        RegionKind::Expansion(file) => write_leb128(out, file << 3 | EXPANSION_FLAG),
        RegionKind::Other(kind) => {
            write_leb128(out, kind << 3);
            region.counters.iter().for_each(|counter| write_leb128(out, counter.0));
            region.others.iter().for_each(|number| write_leb128(out, *number));
        }
    }
    write_leb128(out, region.start.0 - line_before);
    write_leb128(out, region.start.1);
    write_leb128(out, region.end.0 - region.start.0);
    write_leb128(out, region.end.1 | if region.kind == RegionKind::Gap { GAP_FLAG } else { 0 });
}

/// Decodes a list of file names, in which the first one is the folder that relative names refer to. Returns `None` if the list is corrupt
/// or compressed.
pub fn read_file_names(bytes: &[u8]) -> Option<Vec<String>> {
    let mut bytes = UnreadBytes(bytes);
    let (count, _, compressed) = (bytes.read_leb128()?, bytes.read_leb128()?, bytes.read_leb128()?);
    let mut names: Vec<String> = Vec::new();
    for _ in 0..if compressed == 0 { count } else { return None } {
        let size = usize::try_from(bytes.read_leb128()?).ok()?;
        let name = String::from_utf8_lossy(bytes.take(size)?).into_owned();
        names.push(match names.first() {
            Some(folder) if !name.starts_with('/') => format!("{folder}/{name}"),
            _ => name,
        });
    }
    Some(names)
}

struct UnreadBytes<'a>(&'a [u8]);

impl<'a> UnreadBytes<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(taken)
    }

    fn read_leb128(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Reads the number of items, and then the items.
    fn read_list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.read_leb128()?;
        // Each item takes at least one byte, so the loop ends even if the number is corrupt.
        (0..count).map(|_| item(self)).collect()
    }
}

fn write_leb128(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_regions_can_be_decoded() {
        let bytes = [
            1, 1, 1, 1, 5, // one file; one expression of the first two counters
            1, 1, 11, 33, 17, 2, // one region, of code
        ];
        let regions = FunctionRegions::read(&bytes).unwrap();
        assert_eq!((regions.regions[0].len(), regions.regions[0][0].start, regions.regions[0][0].end), (1, (11, 33), (28, 2)));
        let mut all = regions.clone();
        let other = |kind, counters: usize, others: usize| CodeRegion {
            kind,
            counters: vec![RegionCounter::FIRST; counters],
            start: (300, 1),
            end: (301, 2),
            others: vec![7; others],
        };
        all.regions[0].extend([
            other(RegionKind::Gap, 1, 0),
            other(RegionKind::Other(BRANCH_KIND), 2, 0),
            other(RegionKind::Other(CONDITION_KIND), 2, 3),
            other(RegionKind::Other(DECISION_KIND), 0, 2),
            other(RegionKind::Other(2), 0, 0),
            other(RegionKind::Expansion(1), 0, 0),
        ]);
        assert_eq!(FunctionRegions::read(&all.write()), Some(all.clone()));
        assert_eq!(FunctionRegions::read(&all.write()[..20]), None);
    }
}
