//! The text file of recorded processes. Its lines are described in the recorder (`crates/waits-recorder/src/process.rs`).

use crate::ranks::RankList;
use anyhow::{Result, anyhow, bail};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// What a process says of itself.
#[derive(Clone, Debug, Default)]
pub struct ProcessFile {
    /// Its number, when its recording began (ticks), and its parent's number.
    pub number: u32,
    /// See `number`.
    pub start: u64,
    /// See `number`.
    pub parent: u32,
    /// Where it ran: host and boot.
    pub host: String,
    /// See `host`.
    pub boot: String,
    /// Whether its ticks are those of the time-stamp counter.
    pub is_counter: bool,
    /// The path of its program.
    pub program: String,
    /// MPI library, rank and size.
    pub mpi: Option<Mpi>,
    /// Ticks, monotonic clock, time since 1970: at the same time.
    pub anchors: Vec<[u64; 3]>,
    /// Groups of MPI, by handle.
    pub communicators: BTreeMap<u64, GroupMembers>,
    /// Executable mappings, in the order in which they were made.
    pub maps: Vec<MappedImage>,
    /// Memory that other processes may have, too.
    pub shared: Vec<SharedMemory>,
    /// What the recorder could not do.
    pub notes: Vec<String>,
}

/// A process's place in MPI_COMM_WORLD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// Its version, as MPI gives it.
    pub library: String,
    /// Rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Size of MPI_COMM_WORLD.
    pub size: u32,
}

/// World ranks of a communicator, and of the other group that it leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMembers {
    /// Ranks of its own group.
    pub local: RankList,
    /// Ranks of the other group of an intercommunicator.
    pub remote: Option<RankList>,
}

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedImage {
    /// Address of its first byte.
    pub start: u64,
    /// Address behind its last byte.
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file.
    pub path: String,
}

/// Memory that other processes may have, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    start: u64,
    end: u64,
    offset: u64,
    /// Device and number of its file; memory without a name has one as well.
    file: (String, u64),
}

impl ProcessFile {
    /// Reads the text: a program and its forked children, in order of their first lines.
    ///
    /// # Errors
    /// It is no such file, or a line of it is damaged; a last line without end is a killed program's, and left out.
    pub fn parse(path: &Path, text: &str) -> Result<Vec<ProcessFile>> {
        let mut files: Vec<ProcessFile> = Vec::new();
        let mut places: HashMap<(u32, u64), usize> = HashMap::new();
        let mut current = None;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = (1..).zip(whole.lines());
        match lines.next() {
            Some((_, "trodden-waits 2")) => {}
            Some((_, other)) if other.starts_with("trodden-waits ") => {
                bail!("{}: version `{other}` of the recording: use the trodden that recorded it", path.display())
            }
            _ => bail!("{}: not the file of recorded processes (its first line is not `trodden-waits 2`)", path.display()),
        }
        for (line_number, line) in lines {
            let damaged = |what| anyhow!("{}:{line_number}: {what}: the recording is damaged, record again", path.display());
            if let Some(name) = line.strip_prefix("process ") {
                let (number, start) = process_name(name).map_err(damaged)?;
                current = Some(*places.entry((number, start)).or_insert_with(|| {
                    files.push(ProcessFile { number, start, ..ProcessFile::default() });
                    files.len() - 1
                }));
                continue;
            }
            let file = current.and_then(|at: usize| files.get_mut(at)).ok_or_else(|| damaged("a line of no process".into()))?;
            file.line(line).map_err(damaged)?;
        }
        if files.is_empty() {
            bail!("{}: names no process: the recording is damaged, record again", path.display());
        }
        Ok(files)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "parent" => self.parent = short(number(rest)?)?,
            "host" => self.host = rest.into(),
            "boot" => self.boot = rest.into(),
            "counter" => self.is_counter = rest == "1",
            "program" => self.program = rest.into(),
            "anchor" => self.anchors.push(numbers(rest)?.try_into().map_err(|_| "`anchor` needs three numbers")?),
            "mpi" => {
                let parts: Vec<&str> = rest.split(' ').collect();
                let [library, rank, size] = parts[..] else { return Err("`mpi` needs library, rank and size".into()) };
                self.mpi = Some(Mpi { library: library.into(), rank: short(number(rank)?)?, size: short(number(size)?)? });
            }
            "communicator" | "more" => self.communicator(rest)?,
            "map" => match SharedMemory::parse(rest)? {
                Some(shared) => self.shared.push(shared),
                None => self.maps.extend(MappedImage::parse(rest)?),
            },
            "note" => self.notes.push(rest.into()),
            // Newer recorders may say more.
            _ => {}
        }
        Ok(())
    }

    /// A number for the object at an address that all processes which share its memory find; none if it is the process's own.
    pub fn shared_object(&self, address: u64) -> Option<u64> {
        let memory = self.shared.iter().rev().find(|memory| (memory.start..memory.end).contains(&address))?;
        let mut hasher = DefaultHasher::new();
        (&memory.file, address - memory.start + memory.offset).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn communicator(&mut self, rest: &str) -> Result<(), String> {
        let mut parts = rest.split(' ');
        let members = self.communicators.entry(number(parts.next().unwrap_or_default())?).or_default();
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

/// Number and start of a process.
fn process_name(text: &str) -> Result<(u32, u64), String> {
    let [number, start] = numbers(text)?[..] else { return Err("`process` needs two numbers".into()) };
    Ok((short(number)?, start))
}

fn numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split(' ').map(number).collect()
}

/// A number of 32 bits.
fn short(number: u64) -> Result<u32, String> {
    number.try_into().map_err(|_| format!("`{number}` is too large"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

impl SharedMemory {
    /// A line of `/proc/self/maps`; none if it is not of shared memory.
    fn parse(line: &str) -> Result<Option<SharedMemory>, String> {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(5).collect();
        let [addresses, permissions, offset, device, inode] = fields[..] else { return Ok(None) };
        if !permissions.ends_with('s') || permissions.contains('x') {
            return Ok(None);
        }
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not an address"));
        let (start, end) = addresses.split_once('-').ok_or("a mapping without addresses")?;
        let file = (device.to_owned(), number(inode)?);
        Ok(Some(SharedMemory { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, file }))
    }
}

impl MappedImage {
    /// A line of `/proc/self/maps`; none if it maps no file.
    fn parse(line: &str) -> Result<Option<MappedImage>, String> {
        let mut fields = line.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not an address"));
        let (start, end) = fields.next().and_then(|f| f.split_once('-')).ok_or("a mapping without addresses")?;
        let offset = fields.nth(1).ok_or("a mapping without an offset")?;
        // The path is the rest, with blanks in it.
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
    fn lines_are_read_and_a_cut_last_one_is_left_out() {
        let [file] = &ProcessFile::parse(Path::new("p"), TEXT).unwrap()[..] else { panic!("one process") };
        assert_eq!((file.number, file.start, file.parent, file.is_counter), (12, 77, 3, true));
        assert_eq!(file.mpi, Some(Mpi { library: "openmpi".into(), rank: 1, size: 4 }));
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|place| file.communicators[&9].local.get(place).flatten()),
            [Some(0), Some(1), Some(2), Some(5), Some(7), None]
        );
        assert_eq!(file.maps, [MappedImage { start: 16, end: 32, offset: 4096, path: "/a b.so".into() }]);
        assert_eq!(file.notes, ["x y"]);
    }

    #[test]
    fn an_object_in_shared_memory_has_one_number_wherever_it_is_mapped() {
        let at = |line: &str| ProcessFile::parse(Path::new("p"), &TEXT.replace("note x y", line)).unwrap().remove(0);
        let (one, other) =
            (at("map 5000-7000 rw-s 00000000 00:01 77 /dev/zero (deleted)"), at("map 9000-a000 rw-s 1000 00:01 77 /dev/zero"));
        assert_eq!(one.shared_object(0x6010), other.shared_object(0x9010));
        assert_ne!(one.shared_object(0x6010), one.shared_object(0x6018));
        assert_eq!((one.shared_object(0x7000), one.maps.len()), (None, 1));
        assert!(ProcessFile::parse(Path::new("p"), &TEXT.replace("note x y", "map 5000-x rw-s 0 00:01 77")).is_err());
    }

    #[test]
    fn blocks_of_several_processes_may_alternate() {
        let text = "trodden-waits 2\nprocess 1 5\nparent 9\nprocess 2 6\nparent 1\nnote b\nprocess 1 5\nnote a\nprocess 1 7\nnote c\n";
        let files = ProcessFile::parse(Path::new("p"), text).unwrap();
        let found: Vec<_> = files.iter().map(|file| (file.number, file.start, file.parent, file.notes.concat())).collect();
        assert_eq!(found, [(1, 5, 9, "a".into()), (2, 6, 1, "b".into()), (1, 7, 0, "c".into())]);
    }

    #[test]
    fn damaged_lines_are_errors_with_their_place() {
        let text = TEXT.replace("anchor 1 2 3", "anchor 1 x 3");
        let error = ProcessFile::parse(Path::new("p.process"), &text).unwrap_err().to_string();
        assert!(error.starts_with("p.process:8: `x` is not a number"), "{error}");
        assert!(ProcessFile::parse(Path::new("p"), "junk\n").is_err());
        assert!(ProcessFile::parse(Path::new("p"), &TEXT.replace("0-2", "0-99999999999")).is_err());
    }
}
