//! Parses the text file that describes the recorded processes. Its format is documented in `crates/waits-recorder/src/process.rs`.

use crate::ranks::RankList;
use anyhow::{Result, anyhow, bail};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// The description of a recorded process.
#[derive(Clone, Debug, Default)]
pub struct ProcessFile {
    /// The process ID.
    pub number: u32,
    /// Time in ticks at which recording of the process started.
    pub start: u64,
    /// The parent's process ID.
    pub parent: u32,
    /// Name of the host on which the process ran.
    pub host: String,
    /// The host's boot ID.
    pub boot: String,
    /// Whether ticks are counts of the time-stamp counter rather than nanoseconds.
    pub uses_cycle_counter: bool,
    /// Path of the executable.
    pub program: String,
    /// The process's MPI library, its rank, and the number of ranks; `None` without MPI.
    pub mpi: Option<MpiMembership>,
    /// Pairs of simultaneous times, by which ticks are converted: ticks, monotonic clock in ns, and ns since 1970.
    pub anchors: Vec<[u64; 3]>,
    /// For each MPI communicator, by its global number, the world ranks of its members.
    pub communicators: BTreeMap<u64, GroupMembers>,
    /// Executable mappings. Later ones replace earlier ones at the same addresses.
    pub maps: Vec<MappedImage>,
    /// Mappings of shared memory. Later ones replace earlier ones at the same addresses.
    pub shared: Vec<SharedMemoryMapping>,
    /// Notes of the recorder about calls that are missing or cannot be explained.
    pub notes: Vec<String>,
}

/// A process's MPI library, and its position in `MPI_COMM_WORLD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiMembership {
    /// Name of the MPI library.
    pub library: String,
    /// Rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Size of `MPI_COMM_WORLD`.
    pub size: u32,
}

/// World ranks of a communicator's members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMembers {
    /// Ranks in the group to which the process belongs.
    pub local: RankList,
    /// Ranks in the other group of an intercommunicator; `None` for other communicators.
    pub remote: Option<RankList>,
}

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedImage {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Offset of the mapping in the file, in bytes.
    pub offset: u64,
    /// Path of the mapped file.
    pub path: String,
}

/// A mapping of memory that processes may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemoryMapping {
    start: u64,
    end: u64,
    offset: u64,
    /// Device and inode of the mapped memory. Anonymous shared memory has them, too.
    file: (String, u64),
}

impl ProcessFile {
    /// Parses the process file of a program. Returns the process of the program and those of its forked children, in the order in which the
    /// file mentions them. If the last line has no newline, it is ignored, because the program was killed while it wrote the line.
    ///
    /// # Errors
    /// The text has a different format, or a line is corrupt.
    pub fn parse(path: &Path, text: &str) -> Result<Vec<ProcessFile>> {
        let mut files: Vec<ProcessFile> = Vec::new();
        let mut indices: HashMap<(u32, u64), usize> = HashMap::new();
        let mut current = None;
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = (1..).zip(complete.lines());
        match lines.next() {
            Some((_, "trodden-waits 2")) => {}
            Some((_, other)) if other.starts_with("trodden-waits ") => {
                bail!(
                    "{}: this version of trodden cannot read recordings of format `{other}`. Use the version that wrote the recording",
                    path.display()
                )
            }
            _ => bail!("{} is not a file of recorded processes: its first line is not `trodden-waits 2`", path.display()),
        }
        for (line_number, line) in lines {
            let corrupt = |what| anyhow!("{}:{line_number}: the recording is corrupt: {what}. Record again", path.display());
            if let Some(name) = line.strip_prefix("process ") {
                let (number, start) = parse_process_identity(name).map_err(corrupt)?;
                current = Some(*indices.entry((number, start)).or_insert_with(|| {
                    files.push(ProcessFile { number, start, ..ProcessFile::default() });
                    files.len() - 1
                }));
                continue;
            }
            let file =
                current.and_then(|at: usize| files.get_mut(at)).ok_or_else(|| corrupt("expected `process` before this line".into()))?;
            file.read_line(line).map_err(corrupt)?;
        }
        if files.is_empty() {
            bail!("{} is corrupt: it describes no process. Record again", path.display());
        }
        Ok(files)
    }

    fn read_line(&mut self, line: &str) -> Result<(), String> {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "parent" => self.parent = to_u32(parse_number(rest)?)?,
            "host" => self.host = rest.into(),
            "boot" => self.boot = rest.into(),
            "counter" => self.uses_cycle_counter = rest == "1",
            "program" => self.program = rest.into(),
            "anchor" => self.anchors.push(parse_numbers(rest)?.try_into().map_err(|_| "`anchor` needs three numbers")?),
            "mpi" => {
                let parts: Vec<&str> = rest.split(' ').collect();
                let [library, rank, size] = parts[..] else { return Err("`mpi` needs library, rank and size".into()) };
                self.mpi =
                    Some(MpiMembership { library: library.into(), rank: to_u32(parse_number(rank)?)?, size: to_u32(parse_number(size)?)? });
            }
            "communicator" | "more" => self.add_communicator_members(rest)?,
            "map" => match SharedMemoryMapping::parse(rest)? {
                Some(shared) => self.shared.push(shared),
                None => self.maps.extend(MappedImage::parse(rest)?),
            },
            "note" => self.notes.push(rest.into()),
            // Unknown lines are ignored, because newer recorders may write them.
            _ => {}
        }
        Ok(())
    }

    /// Returns a number for the object at an address. If the memory is shared, all processes that map it get the same number. Returns
    /// `None` if it is not shared.
    pub fn shared_object(&self, address: u64) -> Option<u64> {
        let memory = self.shared.iter().rev().find(|memory| (memory.start..memory.end).contains(&address))?;
        let mut hasher = DefaultHasher::new();
        (&memory.file, address - memory.start + memory.offset).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn add_communicator_members(&mut self, rest: &str) -> Result<(), String> {
        let mut parts = rest.split(' ');
        let members = self.communicators.entry(parse_number(parts.next().unwrap_or_default())?).or_default();
        for part in parts {
            match part {
                "local" => members.local = RankList::default(),
                "remote" => members.remote = Some(RankList::default()),
                _ => members.remote.as_mut().unwrap_or(&mut members.local).add(part)?,
            }
        }
        Ok(())
    }
}

fn parse_process_identity(text: &str) -> Result<(u32, u64), String> {
    let [number, start] = parse_numbers(text)?[..] else { return Err("`process` needs two numbers".into()) };
    Ok((to_u32(number)?, start))
}

fn parse_numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split(' ').map(parse_number).collect()
}

fn to_u32(number: u64) -> Result<u32, String> {
    number.try_into().map_err(|_| format!("`{number}` is too large"))
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

impl SharedMemoryMapping {
    /// Parses a line of `/proc/self/maps`. Returns `None` if the line is not a shared mapping of data.
    fn parse(line: &str) -> Result<Option<SharedMemoryMapping>, String> {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(5).collect();
        let [addresses, permissions, offset, device, inode] = fields[..] else { return Ok(None) };
        if !permissions.ends_with('s') || permissions.contains('x') {
            return Ok(None);
        }
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not an address"));
        let (start, end) = addresses.split_once('-').ok_or("a mapping without addresses")?;
        let file = (device.to_owned(), parse_number(inode)?);
        Ok(Some(SharedMemoryMapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, file }))
    }
}

impl MappedImage {
    /// Parses a line of `/proc/self/maps`. Returns `None` if the line does not map a file.
    fn parse(line: &str) -> Result<Option<MappedImage>, String> {
        let mut fields = line.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not an address"));
        let (start, end) = fields.next().and_then(|f| f.split_once('-')).ok_or("a mapping without addresses")?;
        let offset = fields.nth(1).ok_or("a mapping without an offset")?;
        // The path may contain spaces, so it is the rest of the line from the first slash.
        let path = line.find('/').map(|at| line[at..].trim_end().trim_end_matches(" (deleted)").to_owned());
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
        Ok(path.map(|path| MappedImage { start, end, offset, path }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "trodden-waits 2\nprocess 12 77\nparent 3\nhost n1\nboot b\ncounter 1\nprogram /bin/a\nanchor 1 2 3\nmpi openmpi 1 \
        4\ncommunicator 9 local 0-2 5\nmore 9 7\nmap 10-20 r-xp 00001000 fe:00 1  /a b.so\nnote x y\ncut";

    #[test]
    fn truncated_last_line_is_ignored() {
        let [file] = &ProcessFile::parse(Path::new("p"), TEXT).unwrap()[..] else { panic!("one process") };
        assert_eq!((file.number, file.start, file.parent, file.uses_cycle_counter), (12, 77, 3, true));
        assert_eq!(file.mpi, Some(MpiMembership { library: "openmpi".into(), rank: 1, size: 4 }));
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|place| file.communicators[&9].local.get(place).flatten()),
            [Some(0), Some(1), Some(2), Some(5), Some(7), None]
        );
        assert_eq!(file.maps, [MappedImage { start: 16, end: 32, offset: 4096, path: "/a b.so".into() }]);
        assert_eq!(file.notes, ["x y"]);
    }

    #[test]
    fn object_in_shared_memory_has_the_same_number_wherever_it_is_mapped() {
        let at = |line: &str| ProcessFile::parse(Path::new("p"), &TEXT.replace("note x y", line)).unwrap().remove(0);
        let (one, other) =
            (at("map 5000-7000 rw-s 00000000 00:01 77 /dev/zero (deleted)"), at("map 9000-a000 rw-s 1000 00:01 77 /dev/zero"));
        assert_eq!(one.shared_object(0x6010), other.shared_object(0x9010));
        assert_ne!(one.shared_object(0x6010), one.shared_object(0x6018));
        assert_eq!((one.shared_object(0x7000), one.maps.len()), (None, 1));
        assert!(ProcessFile::parse(Path::new("p"), &TEXT.replace("note x y", "map 5000-x rw-s 0 00:01 77")).is_err());
    }

    #[test]
    fn lines_of_several_processes_may_alternate() {
        let text = "trodden-waits 2\nprocess 1 5\nparent 9\nprocess 2 6\nparent 1\nnote b\nprocess 1 5\nnote a\nprocess 1 7\nnote c\n";
        let files = ProcessFile::parse(Path::new("p"), text).unwrap();
        let found: Vec<_> = files.iter().map(|file| (file.number, file.start, file.parent, file.notes.concat())).collect();
        assert_eq!(found, [(1, 5, 9, "a".into()), (2, 6, 1, "b".into()), (1, 7, 0, "c".into())]);
    }

    #[test]
    fn errors_name_the_corrupt_line() {
        let text = TEXT.replace("anchor 1 2 3", "anchor 1 x 3");
        let error = ProcessFile::parse(Path::new("p.process"), &text).unwrap_err().to_string();
        assert!(error.starts_with("p.process:8: the recording is corrupt: `x` is not a number"), "{error}");
        assert!(ProcessFile::parse(Path::new("p"), "junk\n").is_err());
        assert!(ProcessFile::parse(Path::new("p"), &TEXT.replace("0-2", "0-99999999999")).is_err());
    }
}
