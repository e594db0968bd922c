//! External merge sort that sums rows with equal keys. Sorted runs in temporary files are merged (Knuth, "The Art of Computer Programming",
//! volume 3, section 5.4). Rows are summed early, whenever memory is full and in each merge. At most [`MERGE_FAN_IN`] runs are merged at a
//! time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::mem;

const MERGE_FAN_IN: usize = 64;
/// Size of a row in a file, in bytes.
const USER_PATH_ROW_SIZE: usize = 44;
/// Read buffer per run, in bytes. A merge needs 4 MiB in total.
const FILE_BUFFER_SIZE: usize = 1 << 16;

/// Executions of one path by one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserPathRow {
    /// Number that the aggregator assigned to the path's unit. A unit that is part of two images has two numbers.
    pub unit: u32,
    pub counter: u64,
    pub user: [u8; 16],
    pub reports: u64,
    pub count: u64,
}

impl UserPathRow {
    fn key(&self) -> (u32, u64, [u8; 16]) {
        (self.unit, self.counter, self.user)
    }

    fn add(&mut self, other: &UserPathRow) {
        self.reports = self.reports.saturating_add(other.reports);
        self.count = self.count.saturating_add(other.count);
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; USER_PATH_ROW_SIZE];
        bytes[..4].copy_from_slice(&self.unit.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.counter.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.user);
        bytes[28..36].copy_from_slice(&self.reports.to_le_bytes());
        bytes[36..].copy_from_slice(&self.count.to_le_bytes());
        out.write_all(&bytes)
    }

    fn read(input: &mut BufReader<File>) -> io::Result<Option<UserPathRow>> {
        let mut bytes = [0; USER_PATH_ROW_SIZE];
        match input.read_exact(&mut bytes) {
            // Files contain whole rows only, so the file has ended.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let unit = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        let user = bytes[12..28].try_into().expect("sixteen bytes");
        Ok(Some(UserPathRow { unit, counter: word(4), user, reports: word(28), count: word(36) }))
    }
}

/// Sorts and sums rows that arrive in any order.
pub struct UserPathRowSorter {
    rows: Vec<UserPathRow>,
    max_rows: usize,
    runs: Vec<File>,
}

impl UserPathRowSorter {
    /// Creates a sorter that uses at most `memory` bytes for rows (but at least 1024 rows).
    pub fn new(memory: usize) -> UserPathRowSorter {
        UserPathRowSorter { rows: Vec::new(), max_rows: (memory / size_of::<UserPathRow>()).max(1024), runs: Vec::new() }
    }

    pub fn add(&mut self, row: UserPathRow) -> io::Result<()> {
        if self.rows.len() == self.max_rows {
            self.sum_equal_keys();
            // Summing frees memory. If it freed little, write a run, because sorting again soon would cost more than it saves.
            if self.rows.len() > self.max_rows / 2 {
                self.write_rows_to_disk()?;
            }
        }
        if self.rows.capacity() == 0 {
            self.rows.reserve_exact(self.max_rows);
        }
        self.rows.push(row);
        Ok(())
    }

    /// Calls `visit` with the sum of each key's rows, in ascending order of keys.
    pub fn visit_sorted_rows(mut self, visit: &mut dyn FnMut(&UserPathRow) -> io::Result<()>) -> io::Result<()> {
        self.sum_equal_keys();
        if self.runs.is_empty() {
            return self.rows.iter().try_for_each(visit);
        }
        self.write_rows_to_disk()?;
        self.rows = Vec::new();
        while self.runs.len() > MERGE_FAN_IN {
            let some: Vec<File> = self.runs.drain(..MERGE_FAN_IN).collect();
            self.runs.push(write_run(|out| merge_runs(some, &mut |row| row.write(out)))?);
        }
        merge_runs(mem::take(&mut self.runs), visit)
    }

    fn sum_equal_keys(&mut self) {
        self.rows.sort_unstable();
        self.rows.dedup_by(|next, kept| {
            let same = next.key() == kept.key();
            if same {
                kept.add(next);
            }
            same
        });
    }

    fn write_rows_to_disk(&mut self) -> io::Result<()> {
        let rows = &self.rows;
        self.runs.push(write_run(|out| rows.iter().try_for_each(|row| row.write(out)))?);
        self.rows.clear();
        Ok(())
    }
}

/// Writes rows to a temporary file and rewinds it.
fn write_run(write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<File> {
    let mut out = BufWriter::with_capacity(FILE_BUFFER_SIZE, tempfile::tempfile()?);
    write(&mut out)?;
    let mut file = out.into_inner().map_err(|e| e.into_error())?;
    file.rewind()?;
    Ok(file)
}

fn merge_runs(runs: Vec<File>, visit: &mut dyn FnMut(&UserPathRow) -> io::Result<()>) -> io::Result<()> {
    let mut inputs: Vec<BufReader<File>> = runs.into_iter().map(|f| BufReader::with_capacity(FILE_BUFFER_SIZE, f)).collect();
    let mut heads = BinaryHeap::new();
    for (number, input) in inputs.iter_mut().enumerate() {
        heads.extend(UserPathRow::read(input)?.map(|row| Reverse((row, number))));
    }
    let mut current: Option<UserPathRow> = None;
    while let Some(Reverse((row, number))) = heads.pop() {
        heads.extend(UserPathRow::read(&mut inputs[number])?.map(|row| Reverse((row, number))));
        match &mut current {
            Some(sum) if sum.key() == row.key() => sum.add(&row),
            _ => {
                if let Some(sum) = current.replace(row) {
                    visit(&sum)?;
                }
            }
        }
    }
    current.map_or(Ok(()), |sum| visit(&sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn sums_are_right_with_any_amount_of_memory() {
        for (rows, memory) in [(0u64, 0), (500, 0), (200_000, 0), (200_000, 1 << 30)] {
            let (mut sorter, mut expected) = (UserPathRowSorter::new(memory), BTreeMap::new());
            let mut state = 7u64;
            for _ in 0..rows {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let user = [(state >> 33) as u8 % 16; 16];
                let row =
                    UserPathRow { unit: (state >> 60) as u32, counter: state >> 40 & 0x3ff, user, reports: 1, count: state >> 50 & 7 };
                let sum: &mut (u64, u64) = expected.entry(row.key()).or_default();
                *sum = (sum.0 + 1, sum.1 + row.count);
                sorter.add(row).unwrap();
            }
            assert_eq!(sorter.runs.len() > MERGE_FAN_IN, rows > 1000 && memory == 0);
            let mut found = Vec::new();
            sorter
                .visit_sorted_rows(&mut |row| {
                    found.push((row.key(), (row.reports, row.count)));
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
