//! Parses `perf script` output: branch stacks, single branches, mappings, ends of threads.
//!
//! Branches come in two forms. With `-F ...,brstack` each sample is a line with a window of branches, newest first: `PID/TID TIME:
//! 0xFROM/0xTO/P/-/-/CYCLES 0xFROM/0xTO/...`. With `--itrace=b -F ...,ip,addr` each branch is a line, `PID/TID TIME: FROM => TO`. Other
//! fields may precede them. From `--show-mmap-events` and `--show-task-events`, the parser reads mappings, forks and exits. Where perf
//! reports lost records, all affected paths are interrupted.

use trodden_binary::MappedFile;

/// Start of the kernel's half of the address space.
const KERNEL_START: u64 = 1 << 63;

/// A thread of a process; both numbers are 0 if the text does not name the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScriptThread {
    /// Process id.
    pub process: u32,
    /// Thread id.
    pub thread: u32,
}

/// A taken branch. `None` is an address outside the traced programs: in the kernel, or not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptRecord {
    /// Address of the branch.
    pub from: Option<u64>,
    /// Target of the branch.
    pub to: Option<u64>,
}

/// The contents of a line of `perf script` output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptLine {
    /// Nothing of interest.
    Nothing,
    /// A sample with the branches that preceded it, oldest first.
    Window(ScriptThread, Vec<ScriptRecord>),
    /// One branch of a complete trace.
    Branch(ScriptThread, ScriptRecord),
    /// A file was mapped.
    Mapping(MappedFile),
    /// A process was forked, and has the same mappings as its parent.
    Fork {
        /// The new process.
        process: u32,
        /// Its parent.
        parent: u32,
    },
    /// A thread ended.
    Exit(ScriptThread),
    /// Events were lost: those of this thread, or (`None`) of any thread.
    Lost(Option<ScriptThread>),
}

/// Parses a line.
///
/// # Errors
/// The error describes the fault in the line.
pub fn parse_script_line(line: &str) -> Result<ScriptLine, String> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with('#') {
        return Ok(ScriptLine::Nothing);
    }
    if let Some((_, event)) = line.split_once("PERF_RECORD_") {
        return parse_event(event);
    }
    if line.contains("instruction trace error") || line.contains("auxtrace error") {
        return Ok(ScriptLine::Lost(parse_named_thread(line)));
    }
    match line.split_once(" => ") {
        Some((from, to)) => parse_branch(from, to),
        None => parse_window(line),
    }
}

fn parse_branch(left: &str, right: &str) -> Result<ScriptLine, String> {
    let from = left.split_whitespace().last().and_then(hexadecimal);
    let to = right.split_whitespace().next().and_then(hexadecimal);
    match (from, to) {
        (Some(from), Some(to)) => {
            Ok(ScriptLine::Branch(parse_thread(left), ScriptRecord { from: program_address(from), to: program_address(to) }))
        }
        _ => Err("the sides of `=>` are not both addresses. Print the fields pid,tid,time,ip,addr, without symbols".into()),
    }
}

fn parse_window(line: &str) -> Result<ScriptLine, String> {
    let mut records = Vec::new();
    for word in line.split_whitespace() {
        if word.starts_with("0x") && word.contains('/') {
            records.push(parse_entry(word).ok_or_else(|| format!("`{word}` is not a branch (0xFROM/0xTO/...)"))?);
        } else if word.contains("+0x") && word.split('/').count() >= 5 {
            return Err(format!("`{word}` contains symbols. Print the field brstack, not brstacksym or brstackoff"));
        }
    }
    if records.is_empty() && is_aggregated(line) {
        return Err("this is BOLT's pre-aggregated profile, which has lost the order of branches. Pass the output of `perf script -F \
             pid,tid,time,brstack --show-mmap-events`"
            .into());
    }
    if records.is_empty() && !line.split_whitespace().last().is_some_and(|w| hexadecimal(w).is_some() || w.ends_with(':')) {
        return Err(
            "it contains neither a branch stack nor a branch (FROM => TO). Print the field brstack, or ip,addr of --itrace=b".into()
        );
    }
    // Remove unused entries of the branch stack, and branches within the kernel.
    records.retain(|r| *r != ScriptRecord { from: None, to: None });
    records.reverse();
    Ok(ScriptLine::Window(parse_thread(line), records))
}

/// Returns true for a line of BOLT's pre-aggregated profiles: a letter, then addresses and counts, such as `B FROM TO COUNT
/// MISPREDICTED`.
fn is_aggregated(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_kind = words.next().is_some_and(|w| matches!(w, "B" | "F" | "f" | "T" | "S" | "E" | "R" | "r"));
    let is_number = |word: &str| !word.is_empty() && word.split(':').all(|part| u64::from_str_radix(part, 16).is_ok());
    is_kind && words.clone().count() >= 2 && words.all(is_number)
}

/// Parses `0xFROM/0xTO/...`. Each address may be followed by a file name in parentheses.
fn parse_entry(word: &str) -> Option<ScriptRecord> {
    let (from, rest) = parse_address(word)?;
    let (to, _) = parse_address(rest.strip_prefix('/')?)?;
    Some(ScriptRecord { from: program_address(from), to: program_address(to) })
}

fn parse_address(text: &str) -> Option<(u64, &str)> {
    let digits = text.strip_prefix("0x")?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    let address = u64::from_str_radix(&digits[..end], 16).ok()?;
    let rest = &digits[end..];
    match rest.strip_prefix('(') {
        Some(file) => Some((address, &file[file.find(')')? + 1..])),
        None => Some((address, rest)),
    }
}

fn parse_event(event: &str) -> Result<ScriptLine, String> {
    let malformed = || format!("PERF_RECORD_{event} is malformed");
    if event.starts_with("MMAP") {
        return parse_mapping(event).map(ScriptLine::Mapping).ok_or_else(malformed);
    }
    if event.starts_with("LOST") || event.starts_with("AUX ") && event.contains('T') {
        return Ok(ScriptLine::Lost(None));
    }
    let pairs = || {
        let (one, other) = event[event.find('(')?..].split_once("):(")?;
        Some((parse_pair(one.strip_prefix('(')?, ':')?, parse_pair(other.strip_suffix(')')?, ':')?))
    };
    match event {
        _ if event.starts_with("EXIT") => Ok(ScriptLine::Exit(pairs().ok_or_else(malformed)?.0)),
        _ if event.starts_with("FORK") => {
            let (new, old) = pairs().ok_or_else(malformed)?;
            Ok(ScriptLine::Fork { process: new.process, parent: old.process })
        }
        _ => Ok(ScriptLine::Nothing),
    }
}

/// Parses `MMAP2 PID/TID: [0xSTART(0xLENGTH) @ OFFSET MAJ:MIN INODE GENERATION]: r-xp PATH`. A build ID in angle brackets may replace
/// what follows the offset.
fn parse_mapping(event: &str) -> Option<MappedFile> {
    let (head, rest) = event.split_once(": [")?;
    let (inside, path) = rest.split_once("]: ")?;
    let process = parse_pair(head.split_whitespace().nth(1)?, '/').map_or(0, |t| t.process);
    let (range, place) = inside.split_once(" @ ")?;
    let (start, length) = range.strip_suffix(')')?.split_once('(')?;
    let mut words = place.split_whitespace();
    let offset = hexadecimal(words.next()?)?;
    let build_id = words.next().and_then(|w| w.strip_prefix('<')?.strip_suffix('>')).map(str::to_owned);
    let path = path.split_once(' ').map_or("", |(_, path)| path).trim().to_owned();
    Some(MappedFile { process, start: hexadecimal(start)?, length: hexadecimal(length)?, offset, build_id, path })
}

/// Returns the first word of the form `PID/TID`.
fn parse_thread(line: &str) -> ScriptThread {
    line.split_whitespace().take_while(|w| !w.starts_with("0x")).find_map(|w| parse_pair(w, '/')).unwrap_or_default()
}

fn parse_pair(word: &str, between: char) -> Option<ScriptThread> {
    let (process, thread) = word.split_once(between)?;
    Some(ScriptThread { process: process.parse().ok()?, thread: thread.parse().ok()? })
}

/// Parses `... pid 12 tid 13 ...`.
fn parse_named_thread(line: &str) -> Option<ScriptThread> {
    let after = |key: &str| line.split_whitespace().skip_while(|w| *w != key).nth(1)?.parse().ok();
    Some(ScriptThread { process: after("pid")?, thread: after("tid")? })
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

fn program_address(address: u64) -> Option<u64> {
    (address != 0 && address < KERNEL_START).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: u64, to: u64) -> ScriptRecord {
        ScriptRecord { from: program_address(from), to: program_address(to) }
    }

    #[test]
    fn branch_stacks_of_several_perf_versions_are_parsed() {
        let thread = ScriptThread { process: 12, thread: 13 };
        let expected = Ok(ScriptLine::Window(thread, vec![record(0x10, 0x20), record(0x24, 0x401136)]));
        for line in [
            "  prog   12/13   100.000123:   401140 0x24/0x401136/P/-/-/12  0x10/0x20/M/-/-/0 ",
            "12/13 100.1: 0x24/0x401136/P/-/-/12/COND/- 0x10/0x20/P/X/A/0/CALL/NON_SPEC_CORRECT_PATH",
            "12/13 0x24(/usr/bin/prog)/0x401136(/usr/bin/prog)/P/-/-/1 0x10([unknown])/0x20(/a/b.so)/-/-/-/0",
            "12/13 0x24/0x401136/P/-/-/12 0x10/0x20/P/-/-/0 0x0/0x0/-/-/-/0",
        ] {
            assert_eq!(parse_script_line(line), expected, "{line}");
        }
        assert_eq!(parse_script_line("  401136 "), Ok(ScriptLine::Window(ScriptThread::default(), vec![])));
        let kernel = parse_script_line("0xffffffff81000010/0x401000/P/-/-/0");
        assert_eq!(kernel, Ok(ScriptLine::Window(ScriptThread::default(), vec![ScriptRecord { from: None, to: Some(0x401000) }])));
    }

    #[test]
    fn branches_and_errors_of_traces_are_parsed() {
        let thread = ScriptThread { process: 7, thread: 8 };
        assert_eq!(
            parse_script_line("    7/8     1.000002:   call       401136 =>   401106"),
            Ok(ScriptLine::Branch(thread, record(0x401136, 0x401106)))
        );
        assert_eq!(
            parse_script_line("prog 7/8 [001] 1.2: 1 branches:u:  tr strt 0 => 401000"),
            Ok(ScriptLine::Branch(thread, record(0, 0x401000)))
        );
        let error = " instruction trace error type 1 time 1.2 cpu 3 pid 7 tid 8 ip 0x40 code 6: Trace doesn't match instruction";
        assert_eq!(parse_script_line(error), Ok(ScriptLine::Lost(Some(thread))));
    }

    #[test]
    fn mappings_forks_and_exits_are_parsed() {
        let mapping = |build_id: Option<&str>| {
            Ok(ScriptLine::Mapping(MappedFile {
                process: 5,
                start: 0x555555555000,
                length: 0x1000,
                offset: 0x1000,
                build_id: build_id.map(str::to_owned),
                path: "/usr/bin/my prog".into(),
            }))
        };
        let head = "prog 5/5 1.0: PERF_RECORD_MMAP2 5/5: [0x555555555000(0x1000) @ 0x1000";
        assert_eq!(parse_script_line(&format!("{head} fe:01 1234 0]: r-xp /usr/bin/my prog")), mapping(None));
        assert_eq!(parse_script_line(&format!("{head} <ab12>]: r-xp /usr/bin/my prog")), mapping(Some("ab12")));
        assert_eq!(parse_script_line("1.0: PERF_RECORD_EXIT(5:6):(1:1)"), Ok(ScriptLine::Exit(ScriptThread { process: 5, thread: 6 })));
        assert_eq!(parse_script_line("PERF_RECORD_FORK(9:9):(5:5)"), Ok(ScriptLine::Fork { process: 9, parent: 5 }));
        assert_eq!(parse_script_line("PERF_RECORD_COMM: prog:5/5"), Ok(ScriptLine::Nothing));
    }

    #[test]
    fn malformed_lines_are_reported() {
        for (line, word) in [
            ("main+0x4/f+0x0/P/-/-/0", "brstacksym"),
            ("0x12/zz/P/-/-/0", "not a branch"),
            ("some words", "neither"),
            ("401136 main+0x4 => f", "without symbols"),
            ("B 401150 401130 5000 3", "pre-aggregated"),
            ("T 4b196f 4b19e0 4b19ef 2", "pre-aggregated"),
            ("PERF_RECORD_MMAP2 nonsense", "malformed"),
        ] {
            assert!(parse_script_line(line).is_err_and(|e| e.contains(word)), "{line}: {:?}", parse_script_line(line));
        }
    }
}
