//! Computes the counts that a counting build of the program would have produced in the same run, from a stream.
//!
//! Each path event corresponds to one increment of the path's counter, so the counts are exact if no event was lost.

use super::live::StreamHeader;
use super::log::StreamLog;
use super::symbol::StreamSymbol;
use crate::error::ProfileError;
use crate::private;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use trodden_container::{FileHeader, FileKind};
use trodden_wire::layout::Layout;
use trodden_wire::{LostThreads, RAW_VERSION, RawHeader, RawUnit, region_lost_offset, region_stride};

const RAW_FILE_PAGE_BYTES: u64 = 4096;

/// Returns the values of all counters of the image. They are computed from the windows' grammars, without expanding these.
pub fn count_counter_increments(log: &StreamLog) -> Result<Vec<u64>, ProfileError> {
    let mut counts = vec![0u64; log.header().counters as usize];
    for thread in log.threads() {
        for window in 0..thread.window_count() {
            let grammar = log.window(thread, window)?;
            for (symbol, times) in grammar.terminals().iter().zip(grammar.terminal_counts()) {
                if let Some(count) =
                    StreamSymbol::from_number(*symbol).and_then(StreamSymbol::counter_to_increment).and_then(|c| counts.get_mut(c as usize))
                {
                    *count += times;
                }
            }
        }
    }
    Ok(counts)
}

/// Writes the counts of an image as a raw file, which also records the lost threads.
pub fn write_raw(path: &Path, stream: &StreamHeader, counts: &[u64], lost: LostThreads) -> Result<(), ProfileError> {
    let failed = ProfileError::io(path, "write");
    let write = || -> std::io::Result<()> {
        let file = private::create_file(path)?;
        let image_path = stream.image_path.as_os_str().as_bytes();
        let (units_offset, path_offset) = (RawHeader::BYTES, RawHeader::BYTES + stream.units.len() * RawUnit::BYTES);
        let regions_offset = ((path_offset + image_path.len()) as u64).next_multiple_of(RAW_FILE_PAGE_BYTES);
        let mut header = RawHeader {
            file_header: FileHeader::new(FileKind::RAW_COUNTS, RAW_VERSION).to_bytes(),
            image: stream.image.0,
            counters: stream.counters,
            units: stream.units.len() as u64,
            units_offset: units_offset as u64,
            path_offset: path_offset as u64,
            path_len: image_path.len() as u64,
            regions_offset,
            region_stride: region_stride(stream.counters),
            pid: stream.pid,
            created_ns: stream.created_ns,
            switch_offset: 0,
            checksum: 0,
            lost: 0,
        };
        let mut setup = vec![0; path_offset];
        for ((unit, first, counters), bytes) in stream.units.iter().zip(setup[units_offset..].chunks_exact_mut(RawUnit::BYTES)) {
            RawUnit { unit: unit.0, first: *first, counters: *counters }.write(bytes).expect("as many bytes as a unit has");
        }
        setup.extend(image_path);
        header.write(&mut setup).expect("as many bytes as a header has");
        header.checksum = RawHeader::checksum_of(&setup).expect("units and path follow the header");
        header.write(&mut setup).expect("as many bytes as a header has");
        file.write_all_at(&setup, 0)?;
        file.set_len(regions_offset + header.region_stride)?;
        // Pages without counts stay holes, as in the raw files that programs write.
        for (index, counts) in counts.chunks(512).enumerate().filter(|(_, counts)| counts.iter().any(|c| *c != 0)) {
            let bytes: Vec<u8> = counts.iter().flat_map(|c| c.to_le_bytes()).collect();
            file.write_all_at(&bytes, regions_offset + index as u64 * RAW_FILE_PAGE_BYTES)?;
        }
        file.write_all_at(&lost.0.to_le_bytes(), regions_offset + region_lost_offset(stream.counters))
    };
    write().map_err(failed)
}
