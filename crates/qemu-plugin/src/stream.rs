//! The stream of executed blocks: one buffer for each thread, one file for all.

use crate::qemu::{self, Translation};
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use trodden_wire::blocks::{FrameKind, HEADER_BYTES, MAGIC, VERSION, header};

/// Words in a thread's buffer.
const BUFFER_WORDS: usize = 1 << 13;
/// Threads at a time; the stream says how many more there were.
const MOST_THREADS: usize = 1 << 14;

/// A thread's words that were not written yet.
struct Buffer {
    words: Vec<u64>,
}

/// Where everything goes.
struct Output {
    file: File,
    /// The process that writes; its children do not.
    process: u32,
    blocks: usize,
    /// Mapped files that were sent, by the program's addresses.
    files: Vec<(u64, u64)>,
    /// Pages of code that no file holds.
    anonymous: Vec<u64>,
    broken: bool,
}

/// The stream of this process.
pub struct Stream {
    buffers: Box<[AtomicPtr<Buffer>]>,
    output: Mutex<Output>,
    beyond: AtomicUsize,
    memory: bool,
}

static STREAM: OnceLock<Stream> = OnceLock::new();

impl Stream {
    /// Opens the file and writes how the stream begins.
    pub fn open(file: &str, memory: bool) -> io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(true).open(file)?;
        let process = std::process::id();
        let mut hello = Vec::new();
        hello.extend(MAGIC);
        hello.extend(VERSION.to_le_bytes());
        hello.extend(process.to_le_bytes());
        file.write_all(&hello)?;
        let buffers = (0..MOST_THREADS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let output = Mutex::new(Output { file, process, blocks: 0, files: Vec::new(), anonymous: Vec::new(), broken: false });
        let stream = Stream { buffers, output, beyond: AtomicUsize::new(0), memory };
        STREAM.set(stream).map_err(|_| io::Error::other("the plugin is loaded twice"))
    }

    /// The stream, which was opened when the plugin was loaded.
    pub fn get() -> &'static Stream {
        STREAM.get().expect("callbacks are registered after the stream was opened")
    }

    /// Whether memory accesses are asked for.
    pub fn records_memory(&self) -> bool {
        self.memory
    }

    /// A thread begins.
    pub fn begin_thread(&self, thread: u32) {
        let Some(place) = self.buffers.get(thread as usize) else {
            self.beyond.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let buffer = Box::new(Buffer { words: Vec::with_capacity(BUFFER_WORDS) });
        let before = place.swap(Box::into_raw(buffer), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: it came from `Box::into_raw` here, and its thread has ended, since its number is given again.
            drop(unsafe { Box::from_raw(before) });
        }
        self.output().frame(FrameKind::ThreadBegins, thread, &[]);
    }

    /// A thread ends. Its buffer is kept for the number's next thread.
    pub fn end_thread(&self, thread: u32) {
        self.flush(thread);
        self.output().frame(FrameKind::ThreadEnds, thread, &[]);
    }

    /// Notes a word of a thread.
    pub fn push(&self, thread: u32, word: u64) {
        let Some(place) = self.buffers.get(thread as usize) else { return };
        // SAFETY: only the thread of that number uses its buffer, and QEMU calls from it; the buffer lives until the number is given again.
        let Some(buffer) = (unsafe { place.load(Ordering::Relaxed).as_mut() }) else { return };
        buffer.words.push(word);
        if buffer.words.len() == BUFFER_WORDS {
            self.write(thread, buffer);
        }
    }

    /// Writes what a thread has noted.
    pub fn flush(&self, thread: u32) {
        let Some(place) = self.buffers.get(thread as usize) else { return };
        // SAFETY: as in `push`.
        if let Some(buffer) = unsafe { place.load(Ordering::Relaxed).as_mut() } {
            self.write(thread, buffer);
        }
    }

    fn write(&self, thread: u32, buffer: &mut Buffer) {
        if !buffer.words.is_empty() {
            let bytes: Vec<u8> = buffer.words.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.output().frame(FrameKind::Executed, thread, &bytes);
            buffer.words.clear();
        }
    }

    /// The program ends: other threads have stopped.
    pub fn end(&self) {
        for (thread, place) in self.buffers.iter().enumerate() {
            // SAFETY: no thread of the program runs any more.
            if let Some(buffer) = unsafe { place.load(Ordering::Acquire).as_mut() } {
                self.write(thread as u32, buffer);
            }
        }
        let beyond = self.beyond.load(Ordering::Relaxed) as u64;
        self.output().frame(FrameKind::End, 0, &beyond.to_le_bytes());
    }

    /// Describes a block, and gives its number.
    ///
    /// # Safety
    /// The block is one that QEMU is translating.
    pub unsafe fn describe(&self, block: *mut Translation) -> usize {
        let mut output = self.output();
        let number = output.blocks;
        output.blocks += 1;
        // SAFETY: the block is valid, and so are its instructions and their bytes.
        unsafe {
            let address = qemu::qemu_plugin_tb_vaddr(block);
            let count = qemu::qemu_plugin_tb_n_insns(block);
            let mut description = Vec::new();
            description.extend((number as u64).to_le_bytes());
            description.extend(address.to_le_bytes());
            description.extend((count as u64).to_le_bytes());
            let mut code = Vec::new();
            for at in 0..count {
                let instruction = qemu::qemu_plugin_tb_get_insn(block, at);
                let size = qemu::qemu_plugin_insn_size(instruction);
                description.push(size as u8);
                code.extend_from_slice(std::slice::from_raw_parts(qemu::qemu_plugin_insn_data(instruction).cast::<u8>(), size));
            }
            description.extend(code);
            if !output.knows(address) {
                let host = qemu::qemu_plugin_insn_haddr(qemu::qemu_plugin_tb_get_insn(block, 0)).addr() as u64;
                output.send_mappings(host.wrapping_sub(address), address);
            }
            output.frame(FrameKind::Block, 0, &description);
        }
        number
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Output {
    fn frame(&mut self, kind: FrameKind, thread: u32, content: &[u8]) {
        if self.broken || std::process::id() != self.process {
            return;
        }
        let mut frame = Vec::with_capacity(HEADER_BYTES + content.len());
        frame.extend(header(kind, thread, content.len() as u64));
        frame.extend_from_slice(content);
        // A reader that has gone is no reason to end the program.
        self.broken = self.file.write_all(&frame).is_err();
    }

    fn knows(&self, address: u64) -> bool {
        self.files.iter().any(|(from, to)| (*from..*to).contains(&address)) || self.anonymous.contains(&(address >> 12))
    }

    /// Sends which files are mapped where; the program's addresses are the process's less `base`.
    fn send_mappings(&mut self, base: u64, address: u64) {
        let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
        self.files.clear();
        for line in maps.lines() {
            let Some((range, rest)) = line.split_once(' ') else { continue };
            let Some((from, to)) = range.split_once('-') else { continue };
            let number = |text: &str| u64::from_str_radix(text, 16).ok().map(|n| n.wrapping_sub(base));
            if let (Some(from), Some(to), true) = (number(from), number(to), rest.contains('/')) {
                self.files.push((from, to));
            }
        }
        if !self.knows(address) {
            // Generated code, or the vdso.
            self.anonymous.push(address >> 12);
        }
        let mut content = base.to_le_bytes().to_vec();
        content.extend(maps.as_bytes());
        self.frame(FrameKind::Mappings, 0, &content);
    }
}
