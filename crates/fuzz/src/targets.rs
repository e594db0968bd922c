//! The fuzz targets. There is one for each file format.
//!
//! The readers of `trodden` run in this process. The readers of `trodden-lab` run in a process of their own; the program must be in the
//! same folder as this one. Errors that a reader returns are expected and ignored. Checksums in inputs are corrected, because readers would
//! otherwise reject every mutated input.

use crate::sealed;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use trodden_analysis::expression::PathExpression;
use trodden_container::FileKind;
use trodden_hardware::OperationMapping;
use trodden_hardware::processor::ProcessorParameters;
use trodden_profile::stream::{LiveStream, StreamLog};
use trodden_profile::{FunctionPaths, Profile, RawProfile};
use trodden_trace::block_file::{BlockFileWriter, DIFFERENCE_LAYOUT, PREDICTION_LAYOUT, TraceBlockKind};
use trodden_trace::{PARTIAL_TRACE_FORMAT, PartialTrace, TRACE_FORMAT, ThreadNumber, TraceFile};
use trodden_unit::{Frame, UnitMap};
use trodden_wire::RAW_VERSION;
use trodden_wire::stream::STREAM_VERSION;

pub struct FuzzTarget {
    pub name: &'static str,
    /// The function that reads an input. It may write files to the given folder, which is empty at first. It returns false if the reader
    /// rejects the input, and an error if a file cannot be written.
    pub read: fn(&Path, &[u8]) -> io::Result<bool>,
}

pub static FUZZ_TARGETS: [FuzzTarget; 15] = [
    FuzzTarget { name: "profiles", read: read_profile },
    FuzzTarget { name: "raw", read: read_raw_profile },
    FuzzTarget { name: "frames", read: read_frames },
    FuzzTarget { name: "maps", read: read_unit_map },
    FuzzTarget { name: "traces", read: read_traces },
    FuzzTarget { name: "streams-live", read: read_live_stream },
    FuzzTarget { name: "streams-stored", read: read_stored_stream },
    FuzzTarget { name: "waits", read: read_waits },
    FuzzTarget { name: "otf2", read: read_otf2 },
    FuzzTarget { name: "perf-script", read: read_perf_script },
    FuzzTarget { name: "scheduler", read: |folder, input| run_commands(folder, "F", input, &["report F --json"]) },
    FuzzTarget { name: "chrome", read: |folder, input| run_commands(folder, "F", input, &["report F --json"]) },
    FuzzTarget { name: "graphs", read: |folder, input| run_laboratory(folder, input, &["graph number F", "graph partition F --copies 3"]) },
    FuzzTarget { name: "toml", read: read_toml },
    FuzzTarget { name: "expressions", read: read_expression },
];

/// Writes the input to a file and runs commands of `trodden`, in which `F` stands for the file. Returns true if all commands succeed.
fn run_commands(folder: &Path, name: &str, input: &[u8], commands: &[&str]) -> io::Result<bool> {
    let file = folder.join(name);
    fs::write(&file, input)?;
    let mut is_read = true;
    for words in commands {
        // The commands after a failed one are run as well.
        is_read &= run_command(words, &file);
    }
    Ok(is_read)
}

/// Writes the input to a file and runs commands of `trodden-lab`, in which `F` stands for the file. Each command runs in a new process with
/// the limits of this process. Returns false if a command rejects the input, that is, if its exit status is 2.
///
/// # Panics
/// If a process is killed, or if its exit status is greater than 2.
fn run_laboratory(folder: &Path, input: &[u8], commands: &[&str]) -> io::Result<bool> {
    let file = folder.join("F");
    fs::write(&file, input)?;
    let program = std::env::current_exe()?.with_file_name("trodden-lab");
    let mut is_read = true;
    for words in commands {
        let words = words.split(' ').map(|word| if word == "F" { file.as_os_str() } else { word.as_ref() });
        let ended = Command::new(&program).args(words).stdout(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(matches!(ended.status.code(), Some(0..=2)), "{}: {errors}", ended.status);
        is_read &= ended.status.code() != Some(2);
    }
    Ok(is_read)
}

/// Runs a command of `trodden` in this process, with `F` replaced by the path of `file`. Returns false if the command fails.
///
/// # Panics
/// If there is no such command, because then nothing would read the input.
fn run_command(words: &str, file: &Path) -> bool {
    let word = |word: &str| if word == "F" { file.as_os_str().to_owned() } else { OsString::from(word) };
    let arguments: Vec<OsString> = words.split(' ').map(word).collect();
    let whole = std::iter::once(OsString::from("trodden")).chain(arguments.iter().cloned());
    if let Err(error) = trodden_command::laboratory::command_line_definition().try_get_matches_from(whole) {
        panic!("`trodden {words}` is not a command: {error}");
    }
    trodden_command::fuzzing::run_trodden(arguments).is_ok()
}

fn read_profile(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let file = folder.join("f.trodden");
    let mut is_read = false;
    for bytes in [input, &sealed::seal_container(input)] {
        fs::write(&file, bytes)?;
        is_read = Profile::read(&file).is_ok();
        if let Ok(recovered) = Profile::recover(&file) {
            for (_, unit, function) in recovered.profile.functions() {
                let _ = FunctionPaths::decode(function, unit.counts_of(function));
            }
        }
    }
    Ok(is_read)
}

fn read_raw_profile(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let file = folder.join("f.raw");
    let mut is_read = false;
    for bytes in [input, &sealed::seal_raw(input, FileKind::RAW_COUNTS, RAW_VERSION)] {
        fs::write(&file, bytes)?;
        let raw = RawProfile::read(&file);
        is_read = raw.is_ok();
        assert!(raw.iter().flat_map(|raw| &raw.units).all(|u| u.counts.iter().all(|c| c.0 < u.counters && c.1 != 0)));
    }
    Ok(is_read)
}

fn read_frames(_: &Path, input: &[u8]) -> io::Result<bool> {
    let mut is_read = false;
    for bytes in [input, &sealed::seal_container(input)] {
        for frame in Frame::read_all(bytes).0 {
            is_read = [frame.map().is_ok(), frame.bitcode().is_ok()] == [true; 2];
        }
    }
    Ok(is_read)
}

/// Reads the map of a compilation unit, and then decodes the counts that follow it. After mutations, the counts need not fit the map.
fn read_unit_map(_: &Path, input: &[u8]) -> io::Result<bool> {
    let Ok((map, rest)) = postcard::take_from_bytes::<UnitMap>(input) else { return Ok(false) };
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let counts: Vec<(u64, u64)> = rest.chunks_exact(16).map(|c| (word(&c[..8]), word(&c[8..]))).collect();
    for function in &map.functions {
        let _ = FunctionPaths::decode(function, counts.iter().copied());
        let _ = FunctionPaths::decode(function, [(0, 1), (function.counters.saturating_sub(1), u64::MAX)]);
    }
    Ok(true)
}

/// Reads the input as a trace file. Then regards the input as a list of blocks, writes these to trace files with valid checksums, and reads
/// them. A block of the list consists of its kind and layout, its thread, the number of symbols, the sizes of index and data, the index,
/// and the data.
fn read_traces(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let file = folder.join("f.trace");
    fs::write(&file, input)?;
    let _ = (TraceFile::open(&file), PartialTrace::open(&file));
    let mut is_read = true;
    for (format, is_trace) in [(TRACE_FORMAT, true), (PARTIAL_TRACE_FORMAT, false)] {
        let mut writer = BlockFileWriter::create(&file, format).map_err(io::Error::other)?;
        let mut rest = input;
        while let [kind, thread, count, index, low, high, after @ ..] = rest {
            let size = usize::from(u16::from_le_bytes([*low, *high]));
            let Some((content, next)) = after.split_at_checked(usize::from(*index) + size) else { break };
            let layout = if *kind & 0x80 == 0 { DIFFERENCE_LAYOUT } else { PREDICTION_LAYOUT };
            let kinds = [TraceBlockKind::Description, TraceBlockKind::Symbols, TraceBlockKind::End, TraceBlockKind::Stamps];
            let kind = kinds[usize::from(kind & 0x7f) % kinds.len()];
            let (index, data) = content.split_at(usize::from(*index));
            writer.append(kind, layout, (u32::from(*thread), u32::from(*count)), index, data).map_err(io::Error::other)?;
            rest = next;
        }
        drop(writer);
        match is_trace {
            true => [
                "report F",
                "show F",
                "show --calls F",
                "show --interleave F",
                "find main F",
                "diff F F",
                "export folded F",
                "export html F",
            ]
            .iter()
            .for_each(|words| is_read &= run_command(words, &file)),
            false => {
                let Ok(partial) = PartialTrace::open(&file) else { continue };
                (0..partial.threads()).for_each(|thread| drop(partial.stream(ThreadNumber(thread)).collect::<Vec<_>>()));
            }
        }
    }
    Ok(is_read)
}

fn read_live_stream(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let file = folder.join("f.stream");
    fs::write(&file, sealed::seal_raw(input, FileKind::STREAM_FILE, STREAM_VERSION))?;
    let stream = LiveStream::open(&file, false);
    if let Ok(stream) = &stream {
        let _ = (stream.lost_threads(), stream.is_truncated(), stream.threads());
        for chunk in stream.chunks().into_iter().flatten() {
            let _ = stream.read_events(&chunk, &mut Vec::new());
        }
    }
    // This command always fails, because it needs the map of the program, which is not part of the input.
    run_command("show F", &file);
    Ok(stream.is_ok())
}

fn read_stored_stream(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let file = folder.join("f.log");
    let mut is_read = false;
    for bytes in [input, &sealed::seal_container(input)] {
        fs::write(&file, bytes)?;
        is_read = false;
        if let Ok(log) = StreamLog::open(&file) {
            for thread in log.threads() {
                let mut symbols = 0u32;
                let visited = log.visit(thread, 0, |_| {
                    symbols += 1;
                    symbols < 100_000
                });
                is_read = visited.is_ok() && symbols > 0;
            }
        }
        run_command("info F", folder);
    }
    Ok(is_read)
}

/// Reads a recording of waiting times. The input consists of a file of processes, a zero byte, and a file of the processes' threads.
fn read_waits(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    fs::write(folder.join("1.process"), &input[..end])?;
    fs::write(folder.join("1.threads"), input.get(end + 1..).unwrap_or_default())?;
    Ok(run_command("report F --json", folder))
}

/// Reads an OTF2 trace in text form. The input consists of what `otf2-print` prints for definitions, a zero byte, and what it prints for
/// events.
fn read_otf2(_: &Path, input: &[u8]) -> io::Result<bool> {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    Ok(trodden_command::fuzzing::parse_otf2_text(&input[..end], input.get(end + 1..).unwrap_or_default()).is_ok())
}

fn read_perf_script(folder: &Path, input: &[u8]) -> io::Result<bool> {
    String::from_utf8_lossy(input).lines().for_each(|line| drop(trodden_trace::perf_script::parse_script_line(line)));
    run_commands(folder, "F", input, &["simulate --partial --from F"])
}

fn read_toml(folder: &Path, input: &[u8]) -> io::Result<bool> {
    let text = String::from_utf8_lossy(input);
    let _ = (OperationMapping::from_toml(&text), ProcessorParameters::from_toml(&text));
    // The results are ignored, because an input is valid in at most one of the three formats.
    run_laboratory(folder, input, &["sweep F"]).map(|_| true)
}

fn read_expression(_: &Path, input: &[u8]) -> io::Result<bool> {
    Ok(String::from_utf8_lossy(input).parse::<PathExpression>().is_ok())
}
