//! Corrupt or truncated journals, as a killed recorder may leave them. If data is missing, there must be an error or lost events; the
//! stream must never be shortened silently.

use crate::place::{Place, must, trodden};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trodden_profile::stream::{JOURNAL_EXTENSION, StreamDrain, StreamLog, StreamSymbol, ThreadKey, ThreadLog};
use trodden_sequence::CompressionMethod;

/// A program that does some work for each byte that it reads.
const PROGRAM: &str = "#include <unistd.h>\n\
    __attribute__((noinline)) static int step(int n) { __asm__ volatile(\"\"); return n & 1 ? n : 2 * n; }\n\
    int main(void) { char c; int s = 0; while (read(0, &c, 1) == 1) for (int i = 0; i < 20000; i++) s += step(i * s); return s == 1; }\n";

const LOG_EXTENSION: &str = "log";

fn list_journals(stream: &Path) -> Vec<PathBuf> {
    let begin = stream.with_extension("");
    let files = fs::read_dir(stream.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_its = |file: &PathBuf| file.to_str().unwrap().starts_with(begin.to_str().unwrap());
    files.filter(|file| is_its(file) && file.extension().is_some_and(|e| e == JOURNAL_EXTENSION)).collect()
}

/// Returns true if a log is complete and has at least `number` frames.
fn has_at_least_frames(log: &Path, number: usize) -> bool {
    StreamLog::open(log).is_ok_and(|log| !log.is_truncated() && log.threads().iter().map(ThreadLog::window_count).sum::<usize>() >= number)
}

/// Kills the recorder as soon as the journal contains some frames, and lets the program end. Returns the stream file.
fn kill_recorder(place: &Place) -> PathBuf {
    let mut recorder = place.command(trodden());
    let recorder = recorder.args(["record", "--whole-program", "--"]).arg(place.path("prog"));
    let mut recorder = recorder.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = recorder.stdin.take().unwrap();
    let signal = |name: &str| must(Command::new("kill").args([name, &recorder.id().to_string()]));
    let stream = loop {
        input.write_all(b"x").unwrap();
        signal("-STOP");
        let found = list_stream_files(place).into_iter().find(|stream| {
            let journals = list_journals(stream);
            stream.with_extension(LOG_EXTENSION).exists() && matches!(journals.as_slice(), [journal] if has_at_least_frames(journal, 3))
        });
        if let Some(stream) = found {
            break stream;
        }
        signal("-CONT");
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // With the recorder killed, the program reads more input and ends.
    input.write_all(b"xx").unwrap();
    drop(input);
    while is_stream_used(&stream) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    stream
}

fn list_stream_files(place: &Place) -> Vec<PathBuf> {
    let folders = fs::read_dir(place.path(".trodden")).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    files.map(|file| file.path()).filter(|file| file.extension().is_some_and(|e| e == "stream")).collect()
}

/// Returns true if any process has the file mapped.
fn is_stream_used(stream: &Path) -> bool {
    let name = stream.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| fs::read_to_string(process.path().join("maps")).is_ok_and(|maps| maps.contains(name)))
}

/// The lost events and the symbols of each thread in a log, and the number of bytes reported as corrupt.
type Collected = (Vec<(ThreadKey, u64, Vec<StreamSymbol>)>, u64);

/// Collects the events of a stream file, its log and its journals. Returns `None` if that fails.
fn collect_stream(stream: &Path, to: &Path) -> Option<Collected> {
    let drained =
        StreamDrain::finish_interrupted_drain(stream, to, Some(&stream.with_extension(LOG_EXTENSION)), CompressionMethod::Phrases).ok()?;
    let log = StreamLog::open(to).unwrap();
    let threads = log.threads().iter().map(|thread| {
        let mut symbols = Vec::new();
        log.visit(thread, 0, |symbol| {
            symbols.push(symbol);
            true
        })
        .unwrap();
        (thread.key, thread.lost, symbols)
    });
    Some((threads.collect(), drained.corrupt_bytes))
}

#[test]
fn corrupt_journals_are_errors_or_lost_events() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
    let stream = kill_recorder(&place);
    let journal = list_journals(&stream).remove(0);
    let whole = collect_stream(&stream, &place.path("whole.log")).unwrap();
    assert!(whole.0.len() == 1 && whole.0[0].1 == 0 && whole.1 == 0, "{} threads", whole.0.len());
    let bytes = fs::read(&journal).unwrap();
    // The first section describes the program. All other sections are frames, each with a header and an index of 136 bytes together.
    let frames: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"\x93SECTION")).skip(1).collect();
    assert!(frames.len() >= 3);

    let (mut refused, mut marked) = (0, 0);
    let mut check = |damaged: &[u8], what: String| {
        fs::write(&journal, damaged).unwrap();
        match collect_stream(&stream, &place.path("damaged.log")) {
            None => refused += 1,
            Some((threads, damaged_bytes)) => {
                let lost: u64 = threads.iter().map(|thread| thread.1).sum();
                let symbols: usize = threads.iter().map(|thread| thread.2.len()).sum();
                if symbols == whole.0[0].2.len() {
                    assert_eq!(threads, whole.0, "{what}");
                } else {
                    assert!(lost > 0 && symbols < whole.0[0].2.len(), "{what}: {symbols} symbols, {lost} lost, {damaged_bytes} bytes");
                    marked += 1;
                }
            }
        }
    };
    // One bit is flipped in one byte: every other byte of the journal's header, some bytes of each frame's header, and one byte of each
    // frame's content.
    let heads = (0..frames[0]).step_by(2).chain(frames.iter().flat_map(|frame| (*frame..frame + 136).step_by(17)));
    let contents = frames.iter().map(|frame| frame + 136 + 5);
    for at in heads.chain(contents) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        check(&damaged, format!("byte {at} of {}", bytes.len()));
    }
    // The journal is truncated at different places: at and inside each frame, and before the first one.
    let within = frames.iter().flat_map(|frame| [*frame, frame + 1, frame + 135, frame + 137]);
    for length in within.chain([0, 11, frames[0] - 1, bytes.len() - 1]) {
        check(&bytes[..length], format!("cut off at {length} of {}", bytes.len()));
    }
    fs::remove_file(&journal).unwrap();
    check(b"", "an empty journal".into());
    assert!(refused > 0 && marked > frames.len(), "{refused} refused, {marked} marked");

    // From this truncated journal, `trodden import` must create a run that is marked as incomplete, and must fail.
    fs::write(&journal, &bytes[..frames[1]]).unwrap();
    let output = place.command(trodden()).args(["import"]).arg(&stream).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("lost"), "{said}");
    let shown = place.command(trodden()).args(["info", "last", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(report["streams"]["logs"][0]["threads"][0]["lost"].as_u64().unwrap() > 0, "{report:#}");
}
