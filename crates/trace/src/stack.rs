//! The stack of a stopped thread: the calls that have not returned. A run can end within calls, by `exit`, a signal or `exec`; the stack
//! shows within which calls.
//!
//! Frames of libraries are unwound by their `.eh_frame`, using framehop.

use crate::images::Images;
use crate::mappings::{ProcessMapping, mappings};
use crate::ptrace::{self, Tid};
use crate::subject::TracedProcess;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection};
use std::ops::Range;
use std::{fmt, io};

/// Maximum number of frames; deeper stacks are truncated.
const MAX_STACK_FRAMES: usize = 100_000;

/// The unwinder for a process, with the tables of the mapped files.
#[derive(Default)]
pub struct StackUnwinder {
    /// Path and address of each file's code.
    mapped: Vec<(String, u64)>,
    unwinder: UnwinderX86_64<Vec<u8>>,
}

impl fmt::Debug for StackUnwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinding").field("mapped", &self.mapped).finish_non_exhaustive()
    }
}

impl StackUnwinder {
    /// Returns the file addresses of a thread's frames in watched images, innermost first: its instruction pointer, then return
    /// addresses. `original` translates an instruction pointer in a copy to the image. Fails if the walk finds no such frame and does not
    /// reach the outermost frame either, or consists of a single frame, as if the thread's code had no unwind tables.
    pub fn walk(&mut self, images: &Images, subject: &TracedProcess, thread: Tid, original: impl Fn(u64) -> u64) -> io::Result<Vec<u64>> {
        let registers = ptrace::read_registers(thread)?;
        let here = original(registers.rip);
        self.load_tables(subject.process)?;
        let mut cache = CacheX86_64::new();
        let start = UnwindRegsX86_64::new(here, registers.rsp, registers.rbp);
        let mut read = |address: u64| subject.memory.word(address).map_err(|_| ());
        let mut frames = self.unwinder.iter_frames(here, start, &mut cache, &mut read);
        let (mut found, mut walked) = (Vec::new(), 0);
        for _ in 0..MAX_STACK_FRAMES {
            let frame = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) if walked < 2 && found.is_empty() => return Err(io::ErrorKind::InvalidData.into()),
                Ok(None) => break,
                Err(_) if found.is_empty() => return Err(io::ErrorKind::InvalidData.into()),
                Err(_) => break,
            };
            walked += 1;
            let address = frame.address();
            if images.image_at(address).is_some() {
                found.push(images.in_file(address));
            }
        }
        Ok(found)
    }

    /// Reads the tables of all mapped files, unless the mappings are unchanged.
    fn load_tables(&mut self, process: Tid) -> io::Result<()> {
        let mappings = mappings(process)?;
        let code = mappings.iter().filter(|m| m.executable && m.is_file());
        let mapped: Vec<(String, u64)> = code.map(|m| (m.name.clone(), m.start)).collect();
        if mapped != self.mapped {
            self.unwinder = UnwinderX86_64::new();
            read_modules(&mappings).into_iter().for_each(|module| self.unwinder.add_module(module));
            self.mapped = mapped;
        }
        Ok(())
    }
}

/// Returns the files that are mapped with code, with their unwind tables.
fn read_modules(mappings: &[ProcessMapping]) -> Vec<Module<Vec<u8>>> {
    let mut modules = Vec::new();
    for code in mappings.iter().filter(|m| m.executable && m.is_file()) {
        let of_file = || mappings.iter().filter(|m| m.name == code.name);
        let span = of_file().map(|m| m.start).min().unwrap_or(code.start)..of_file().map(|m| m.end).max().unwrap_or(code.end);
        let base = of_file().find(|m| m.offset == 0).map_or(code.start - code.offset, |m| m.start);
        if let Some(sections) = std::fs::read(&code.name).ok().and_then(|bytes| read_sections(&bytes)) {
            modules.push(Module::new(code.name.clone(), span, base, sections));
        }
    }
    modules
}

fn read_sections(bytes: &[u8]) -> Option<ExplicitModuleSectionInfo<Vec<u8>>> {
    let file = object::File::parse(bytes).ok()?;
    let base_svma = object::ObjectSegment::address(&file.segments().min_by_key(object::ObjectSegment::address)?) & !0xfff;
    let range = |name: &str| -> Option<Range<u64>> {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let data = |name: &str| file.section_by_name(name).and_then(|s| s.data().ok()).map(<[u8]>::to_vec);
    Some(ExplicitModuleSectionInfo {
        base_svma,
        text_svma: range(".text"),
        text: data(".text"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        got_svma: range(".got"),
        ..Default::default()
    })
}
