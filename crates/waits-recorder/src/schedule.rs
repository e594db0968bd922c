//! How long a thread was ready to run and had no processor: the kernel's account of its scheduling.
//!
//! A file that is opened each time costs ten microseconds, and programs may have more threads than files. So the files of a few threads
//! that ask often are kept open.

use crate::lock::Lock;
use crate::output;
use crate::own_file::OwnFile;
use core::ffi::CStr;

const PATH: &CStr = c"/proc/thread-self/schedstat";
const MAX_KEPT: usize = 8;
/// A thread that has asked so often has its file kept open.
const OFTEN: u32 = 8;

/// Files that are kept open.
static KEPT: Lock<[OwnFile; MAX_KEPT]> = Lock::new([const { OwnFile::NONE }; MAX_KEPT]);

/// The account of one thread.
#[derive(Default)]
pub struct Schedule {
    asked: u32,
    /// Its place among the files that are kept open.
    kept: Option<usize>,
}

impl Schedule {
    /// How long the calling thread, whose account it is, was ready to run and had no processor, ns. 0 if there is no account.
    pub fn ready_ns(&mut self) -> u64 {
        self.asked = self.asked.saturating_add(1);
        if self.asked == OFTEN {
            self.kept = keep();
        }
        let mut text = [0u8; 64];
        let file = self.kept.and_then(|kept| KEPT.with(|files| files[kept].descriptor(|| None)));
        let count = match file {
            Some((file, _)) => output::read_begin(file, &mut text),
            None => output::read_file(PATH, &mut text),
        };
        let second = text.get(..count).and_then(|text| text.split(|byte| *byte == b' ').nth(1));
        second.unwrap_or_default().iter().fold(0, |number, digit| number * 10 + u64::from(digit.wrapping_sub(b'0')))
    }

    /// The thread ends.
    pub fn close(&mut self) {
        if let Some(kept) = self.kept.take() {
            KEPT.with(|files| files[kept].close());
        }
    }
}

fn keep() -> Option<usize> {
    KEPT.with(|files| {
        let free = files.iter().position(OwnFile::is_none)?;
        files[free] = OwnFile::existing(PATH)?;
        Some(free)
    })
}

/// In a forked child the files are those of its parent's threads.
pub fn begin_child() {
    let mut parents = KEPT.begin_child([const { OwnFile::NONE }; MAX_KEPT]);
    parents.iter_mut().for_each(OwnFile::close);
}
