//! The stream of executed blocks: each thread has a buffer, and all threads share one file.

use crate::qemu::{self, TranslationBlock};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use trodden_wire::blocks::{BlockHeader, FrameHeader, FrameKind, VERSION};
use trodden_wire::file_header::{FileHeader, FileKind};

/// Number of words in a thread's buffer.
const BUFFER_WORDS: usize = 1 << 13;
/// Maximum number of concurrent threads. The end of the stream contains the number of threads that exceeded this limit.
const MAX_STREAM_THREADS: usize = 1 << 14;

/// The output file, and which blocks and mappings were already sent.
struct StreamOutput {
    file: File,
    blocks: usize,
    /// Address ranges of mapped files that were sent, in the program's addresses.
    files: Vec<(u64, u64)>,
    /// Numbers of code pages that belong to no file, and for which mappings were sent.
    anonymous: Vec<u64>,
    broken: bool,
}

pub struct ProcessStream {
    buffers: Box<[AtomicPtr<Vec<u64>>]>,
    output: Mutex<StreamOutput>,
    overflow: AtomicUsize,
    memory: bool,
    /// The process that writes the stream. Its children do not write.
    process: u32,
    /// The offset that QEMU adds to the program's addresses.
    base: AtomicU64,
}

static PROCESS_STREAM: OnceLock<ProcessStream> = OnceLock::new();

impl ProcessStream {
    pub fn open(file: &str, memory: bool) -> io::Result<()> {
        let mut file = move_to_high_descriptor(File::options().write(true).create(true).truncate(true).open(file)?);
        let process = std::process::id();
        file.write_all(&FileHeader::new(FileKind::BLOCKS, VERSION).to_bytes())?;
        let buffers = (0..MAX_STREAM_THREADS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let output = Mutex::new(StreamOutput { file, blocks: 0, files: Vec::new(), anonymous: Vec::new(), broken: false });
        let stream = ProcessStream { buffers, output, overflow: AtomicUsize::new(0), memory, process, base: AtomicU64::new(0) };
        PROCESS_STREAM.set(stream).map_err(|_| io::Error::other("the plugin is loaded twice"))
    }

    /// Returns the stream, which was opened when QEMU loaded the plugin.
    pub fn get() -> &'static ProcessStream {
        PROCESS_STREAM.get().expect("callbacks are registered after the stream was opened")
    }

    /// Returns true if all memory accesses are sent, not only those of calls and returns.
    pub fn records_memory(&self) -> bool {
        self.memory
    }

    pub fn begin_thread(&self, thread: u32) {
        let Some(place) = self.buffers.get(thread as usize) else {
            self.overflow.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let buffer = Box::new(Vec::with_capacity(BUFFER_WORDS));
        let before = place.swap(Box::into_raw(buffer), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: `Box::into_raw` returned the pointer, and the buffer's thread has ended, since its number is reused.
            drop(unsafe { Box::from_raw(before) });
        }
        self.write_frame(FrameKind::ThreadBegins, thread, &[]);
    }

    /// Ends a thread. Its buffer stays allocated until the thread number is reused.
    pub fn end_thread(&self, thread: u32) {
        self.flush(thread);
        self.write_frame(FrameKind::ThreadEnds, thread, &[]);
    }

    pub fn push(&self, thread: u32, word: u64) {
        let Some(place) = self.buffers.get(thread as usize) else { return };
        // SAFETY: QEMU makes this call on the thread itself. No other thread uses the buffer, and the buffer lives until the thread's
        // number is reused.
        let Some(buffer) = (unsafe { place.load(Ordering::Relaxed).as_mut() }) else { return };
        buffer.push(word);
        if buffer.len() == BUFFER_WORDS {
            self.write_buffer(thread, buffer);
        }
    }

    pub fn flush(&self, thread: u32) {
        let Some(place) = self.buffers.get(thread as usize) else { return };
        // SAFETY: as in `push`, only this thread uses the buffer.
        if let Some(buffer) = unsafe { place.load(Ordering::Relaxed).as_mut() } {
            self.write_buffer(thread, buffer);
        }
    }

    fn write_buffer(&self, thread: u32, buffer: &mut Vec<u64>) {
        if !buffer.is_empty() {
            let bytes: Vec<u8> = buffer.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.write_frame(FrameKind::Executed, thread, &bytes);
            buffer.clear();
        }
    }

    /// Writes all buffers and ends the stream. Called after all threads of the program have stopped.
    pub fn end(&self) {
        for (thread, place) in self.buffers.iter().enumerate() {
            // SAFETY: no thread of the program runs any more.
            if let Some(buffer) = unsafe { place.load(Ordering::Acquire).as_mut() } {
                self.write_buffer(thread as u32, buffer);
            }
        }
        let overflow = self.overflow.load(Ordering::Relaxed) as u64;
        self.write_frame(FrameKind::End, 0, &overflow.to_le_bytes());
    }

    /// Sends the address of a signal handler that the program installs. `action` is the address of a `sigaction`, whose first word is the
    /// handler.
    pub fn send_signal_handler(&self, action: u64) {
        // The values 0 (SIG_DFL) and 1 (SIG_IGN) are not addresses of handlers.
        if let Some(handler) = self.read_program_word(action).filter(|h| *h > 1) {
            self.write_frame(FrameKind::Handler, 0, &handler.to_le_bytes());
        }
    }

    /// Records that the program creates a process, unless these flags of `clone` create a thread.
    pub fn send_fork(&self, flags: u64) {
        const CLONE_THREAD: u64 = 0x1_0000;
        if flags & CLONE_THREAD == 0 {
            self.write_frame(FrameKind::Fork, 0, &[]);
        }
    }

    /// Like [`ProcessStream::send_fork`], for `clone3`: `arguments` is the address of its arguments, which begin with the flags.
    pub fn send_fork_of_clone3(&self, arguments: u64) {
        if let Some(flags) = self.read_program_word(arguments) {
            self.send_fork(flags);
        }
    }

    /// Writes the thread's buffer, because the program may be about to replace itself. Other threads run until the system call takes
    /// effect; data that they have not written by then is lost.
    pub fn prepare_for_exec(&self, thread: u32) {
        self.flush(thread);
        self.write_frame(FrameKind::Exec, 0, &[]);
    }

    /// Reads eight bytes of the program's memory; `None` if they are not mapped.
    fn read_program_word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        let memory = File::open("/proc/self/mem").ok()?;
        memory.read_exact_at(&mut word, self.base.load(Ordering::Relaxed).wrapping_add(address)).ok()?;
        (address != 0).then(|| u64::from_le_bytes(word))
    }

    /// Sends the description of a block, and returns the block's number.
    ///
    /// # Safety
    /// QEMU must be translating the block.
    pub unsafe fn send_description(&self, block: *mut TranslationBlock) -> usize {
        let Some(mut output) = self.lock_output() else { return 0 };
        let number = output.blocks;
        output.blocks += 1;
        // SAFETY: QEMU is translating the block, so the block, its instructions and their bytes are valid.
        unsafe {
            let address = qemu::qemu_plugin_tb_vaddr(block);
            let count = qemu::qemu_plugin_tb_n_insns(block);
            let mut description = BlockHeader { number: number as u64, address, instructions: count as u64 }.to_bytes().to_vec();
            let mut code = Vec::new();
            for at in 0..count {
                let instruction = qemu::qemu_plugin_tb_get_insn(block, at);
                let bytes = qemu::instruction_bytes(instruction);
                description.push(bytes.len() as u8);
                code.extend_from_slice(bytes);
            }
            description.extend(code);
            if !output.has_sent(address) {
                // The offset is the same for all blocks.
                let host = qemu::qemu_plugin_insn_haddr(qemu::qemu_plugin_tb_get_insn(block, 0)).addr() as u64;
                self.base.store(host.wrapping_sub(address), Ordering::Relaxed);
                output.send_mappings(host.wrapping_sub(address), address);
            }
            output.write_frame(FrameKind::Block, 0, &description);
        }
        number
    }

    fn write_frame(&self, kind: FrameKind, thread: u32, content: &[u8]) {
        if let Some(mut output) = self.lock_output() {
            output.write_frame(kind, thread, content);
        }
    }

    /// Locks the output. Returns `None` in a child process, since at the time of the fork a different thread may have held the lock.
    fn lock_output(&self) -> Option<MutexGuard<'_, StreamOutput>> {
        (std::process::id() == self.process).then(|| self.output.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// Moves the file to a high descriptor that is closed on exec, because programs rarely use high descriptors by number.
fn move_to_high_descriptor(file: File) -> File {
    const MIN_DESCRIPTOR: i32 = 900;
    // SAFETY: the descriptor is open, and the call only changes the descriptor table.
    let moved = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR) };
    // SAFETY: the new descriptor is open, and nothing else owns it.
    if moved < 0 { file } else { unsafe { File::from_raw_fd(moved) } }
}

impl StreamOutput {
    fn write_frame(&mut self, kind: FrameKind, thread: u32, content: &[u8]) {
        if self.broken {
            return;
        }
        let frame = [&FrameHeader::new(kind, thread, content).to_bytes(), content].concat();
        // If the reader no longer exists, the program continues without a stream.
        self.broken = self.file.write_all(&frame).is_err();
    }

    fn has_sent(&self, address: u64) -> bool {
        self.files.iter().any(|(from, to)| (*from..*to).contains(&address)) || self.anonymous.contains(&(address >> 12))
    }

    /// Sends the process's mappings. An address in the program is the address in this process minus `base`.
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
        if !self.has_sent(address) {
            // The block is generated code, or part of the vdso.
            self.anonymous.push(address >> 12);
        }
        let mut content = base.to_le_bytes().to_vec();
        content.extend(maps.as_bytes());
        self.write_frame(FrameKind::Mappings, 0, &content);
    }
}
