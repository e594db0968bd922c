//! Tests of stream files with changed bytes: unless an error or a loss is reported, only events that were written are read.

use crate::common;
use crate::common::{RawFile, identity};
use std::mem::offset_of;
use std::path::Path;
use trodden_container::{FileHeader, FileKind};
use trodden_profile::ProfileError;
use trodden_profile::stream::{LiveStream, StreamDrain, StreamLog};
use trodden_sequence::CompressionMethod;
use trodden_wire::layout::Layout;
use trodden_wire::stream::{
    CHUNK_BYTES, CHUNK_CURRENT, CHUNK_FULL, CHUNK_RING_OFFSET_BYTES, Event, STREAM_HEADER_BYTES, STREAM_REGION_WORDS, STREAM_VERSION,
    StreamChunkHeader, TAG_PATH,
};
use trodden_wire::{RawHeader, RawUnit, region_stride};

const TEMPLATE: u64 = 0x7000_1000;
/// Number of events in each chunk of the example.
const EVENTS_PER_CHUNK: usize = 10;

/// Builds a stream file of one thread, with a full chunk and a chunk that is being filled. Returns the file offset of the full chunk, and
/// the bytes of the file.
fn example_file() -> (usize, Vec<u8>) {
    let file = RawFile::new(Path::new("/opt/prog"), &[(identity(1), 40)]);
    let (mut bytes, _) = file.header();
    let file_header = FileHeader::new(FileKind::STREAM_FILE, STREAM_VERSION).to_bytes();
    let header = RawHeader { file_header, region_stride: region_stride(STREAM_REGION_WORDS), ..RawHeader::read(&bytes).unwrap() };
    header.write(&mut bytes).unwrap();
    common::seal_checksum(&mut bytes);
    let first = bytes.len() + CHUNK_RING_OFFSET_BYTES as usize;
    bytes.resize(bytes.len() + header.region_stride as usize, 0);
    for (sequence, state) in [(0, CHUNK_FULL), (1, CHUNK_CURRENT)] {
        let (thread, process, started_ns) = (12, 11, 1_700_000_000_000_000_000);
        let unsealed = StreamChunkHeader {
            state,
            thread,
            process,
            parent: 0,
            started_ns,
            sequence,
            template: TEMPLATE,
            lost: 0,
            checksum: 0,
            reserved: 0,
        };
        let chunk = &mut bytes[first + sequence as usize * CHUNK_BYTES as usize..];
        StreamChunkHeader { checksum: unsealed.fields_checksum(), ..unsealed }.write(chunk).unwrap();
        for (event, word) in chunk[STREAM_HEADER_BYTES as usize..].chunks_exact_mut(4).take(EVENTS_PER_CHUNK).enumerate() {
            let counter = TEMPLATE as u32 + 8 * (sequence as u32 * EVENTS_PER_CHUNK as u32 + event as u32);
            word.copy_from_slice(&(counter | TAG_PATH).to_le_bytes());
        }
    }
    (first, bytes)
}

fn with_changed_byte(bytes: &[u8], at: usize, change: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at] ^= change;
    changed
}

fn read_events(path: &Path) -> Result<Vec<u32>, ProfileError> {
    let threads = LiveStream::open(path, false)?.threads()?;
    assert!(threads.len() <= 1);
    let number = |event: &Event| match event {
        Event::Path(counter) => *counter,
        other => panic!("{other:?}"),
    };
    Ok(threads.iter().flat_map(|thread| thread.events.iter().map(number)).collect())
}

#[test]
fn every_changed_byte_of_the_setup_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.stream");
    let (_, bytes) = example_file();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(read_events(&path).unwrap(), (0..2 * EVENTS_PER_CHUNK as u32).collect::<Vec<_>>());
    let setup = RawHeader::BYTES + RawUnit::BYTES + "/opt/prog".len();
    for at in (0..setup).filter(|at| !(offset_of!(RawHeader, lost)..RawHeader::BYTES).contains(at)) {
        std::fs::write(&path, with_changed_byte(&bytes, at, 0x21)).unwrap();
        let error = read_events(&path).unwrap_err().to_string();
        assert!(error.contains("a.stream"), "byte {at}: {error}");
    }
    let (later, raw) = (STREAM_VERSION + 1, FileHeader::new(FileKind::RAW_COUNTS, trodden_wire::RAW_VERSION));
    for (header, wanted) in [
        (&FileHeader::new(FileKind::STREAM_FILE, later).to_bytes()[..], "Use the version of trodden that wrote the file, or record again"),
        (&raw.to_bytes(), "Build the program with --stream to record a stream"),
        (b"TRODSTR2", "by an earlier version of trodden"),
    ] {
        std::fs::write(&path, [header, &bytes[header.len()..]].concat()).unwrap();
        let error = read_events(&path).unwrap_err().to_string();
        assert!(error.contains("a.stream") && error.contains(wanted), "{error}");
    }
}

#[test]
fn every_changed_byte_of_a_chunk_header_is_an_error_or_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("a.stream"), folder.path().join("a.log"));
    let (first, bytes) = example_file();
    for at in (0..offset_of!(StreamChunkHeader, reserved))
        .chain([CHUNK_BYTES as usize, CHUNK_BYTES as usize + offset_of!(StreamChunkHeader, lost)])
    {
        for change in [1, 2, 0x80] {
            std::fs::write(&path, with_changed_byte(&bytes, first + at, change)).unwrap();
            let what = format!("byte {at} ^ {change}");
            // A different state may mark the chunk as unused, so that its events are not read.
            match read_events(&path) {
                Ok(events) => {
                    assert_eq!(at % CHUNK_BYTES as usize, 0, "{what}: {events:?}");
                    assert!(
                        (0..2 * EVENTS_PER_CHUNK as u32)
                            .collect::<Vec<_>>()
                            .windows(events.len().max(1))
                            .any(|part| part.starts_with(&events)),
                        "{what}"
                    );
                }
                Err(error) => assert!(error.to_string().contains("a.stream is corrupt at byte"), "{what}: {error}"),
            }
            let drained = StreamDrain::finish_interrupted_drain(&path, &log, None, CompressionMethod::Phrases).unwrap();
            let lost: u64 = StreamLog::open(&log).unwrap().threads().iter().map(|thread| thread.lost).sum();
            assert!(drained.events == 2 * EVENTS_PER_CHUNK as u64 || drained.invalid_words > 0 || lost > 0, "{what}: {drained:?}");
            assert!(drained.events <= 2 * EVENTS_PER_CHUNK as u64, "{what}: {drained:?}");
        }
    }
}
