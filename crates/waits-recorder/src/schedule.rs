//! The time for which a thread was ready to run but had no processor, from the kernel's scheduling statistics.
//!
//! Opening the statistics file for each reading takes ten microseconds. It cannot stay open for every thread, because a program may have
//! more threads than file descriptors. It therefore stays open only for a few threads that read it often.

use crate::lock::Lock;
use crate::output;
use crate::own_file::OwnFile;
use core::ffi::CStr;

const STATISTICS_PATH: &CStr = c"/proc/thread-self/schedstat";
const MAX_KEPT_STATISTICS_FILES: usize = 8;
/// Number of times that a thread reads its statistics before the file is kept open.
const READS_UNTIL_FILE_IS_KEPT: u32 = 8;

static KEPT_STATISTICS_FILES: Lock<[OwnFile; MAX_KEPT_STATISTICS_FILES]> = Lock::new([const { OwnFile::NONE }; MAX_KEPT_STATISTICS_FILES]);

#[derive(Default)]
pub struct ThreadScheduleStatistics {
    reads: u32,
    /// Index of the thread's file in [`KEPT_STATISTICS_FILES`]; `None` if the file is not kept open.
    kept: Option<usize>,
}

impl ThreadScheduleStatistics {
    /// Returns the total time in ns for which the calling thread was ready to run but had no processor; 0 if unknown. Must be called by the
    /// thread to which these statistics belong.
    pub fn ready_ns(&mut self) -> u64 {
        self.reads = self.reads.saturating_add(1);
        if self.reads == READS_UNTIL_FILE_IS_KEPT {
            self.kept = open_kept_file();
        }
        let mut text = [0u8; 64];
        let file = self.kept.and_then(|kept| KEPT_STATISTICS_FILES.with(|files| files[kept].descriptor(|| None)));
        let count = match file {
            Some((file, _)) => output::read_start(file, &mut text),
            None => output::read_file(STATISTICS_PATH, &mut text),
        };
        let second = text.get(..count).and_then(|text| text.split(|byte| *byte == b' ').nth(1));
        second.unwrap_or_default().iter().fold(0, |number, digit| number * 10 + u64::from(digit.wrapping_sub(b'0')))
    }

    /// Closes the file when the thread ends.
    pub fn close(&mut self) {
        if let Some(kept) = self.kept.take() {
            KEPT_STATISTICS_FILES.with(|files| files[kept].close());
        }
    }
}

fn open_kept_file() -> Option<usize> {
    KEPT_STATISTICS_FILES.with(|files| {
        let free = files.iter().position(OwnFile::is_none)?;
        files[free] = OwnFile::open_existing(STATISTICS_PATH)?;
        Some(free)
    })
}

/// Closes the files in a forked child, because they describe threads of its parent.
pub fn reset_in_child() {
    let mut parents = KEPT_STATISTICS_FILES.reset_in_child([const { OwnFile::NONE }; MAX_KEPT_STATISTICS_FILES]);
    parents.iter_mut().for_each(OwnFile::close);
}
