//! The stream of executed blocks: one buffer for each thread, one file for all.

use crate::qemu::{self, Translation};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use trodden_wire::blocks::{BlockHeader, FrameHeader, FrameKind, VERSION};
use trodden_wire::head::{FileHead, FileKind};

/// Words in a thread's buffer.
const BUFFER_WORDS: usize = 1 << 13;
/// Threads at a time; the stream says how many more there were.
const MOST_THREADS: usize = 1 << 14;

/// Where everything goes.
struct Output {
    file: File,
    blocks: usize,
    /// Mapped files that were sent, by the program's addresses.
    files: Vec<(u64, u64)>,
    /// Pages of code that no file holds.
    anonymous: Vec<u64>,
    broken: bool,
}

/// The stream of this process.
pub struct Stream {
    buffers: Box<[AtomicPtr<Vec<u64>>]>,
    output: Mutex<Output>,
    overflow: AtomicUsize,
    memory: bool,
    /// The process that writes; its children do not.
    process: u32,
    /// What QEMU adds to the program's addresses.
    base: AtomicU64,
}

static STREAM: OnceLock<Stream> = OnceLock::new();

impl Stream {
    /// Opens the file and writes how the stream begins.
    pub fn open(file: &str, memory: bool) -> io::Result<()> {
        let mut file = out_of_the_way(File::options().write(true).create(true).truncate(true).open(file)?);
        let process = std::process::id();
        file.write_all(&FileHead::new(FileKind::BLOCKS, VERSION).to_bytes())?;
        let buffers = (0..MOST_THREADS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let output = Mutex::new(Output { file, blocks: 0, files: Vec::new(), anonymous: Vec::new(), broken: false });
        let stream = Stream { buffers, output, overflow: AtomicUsize::new(0), memory, process, base: AtomicU64::new(0) };
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
            self.overflow.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let buffer = Box::new(Vec::with_capacity(BUFFER_WORDS));
        let before = place.swap(Box::into_raw(buffer), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: it came from `Box::into_raw` here, and its thread has ended, since its number is given again.
            drop(unsafe { Box::from_raw(before) });
        }
        self.frame(FrameKind::ThreadBegins, thread, &[]);
    }

    /// A thread ends. Its buffer is kept for the number's next thread.
    pub fn end_thread(&self, thread: u32) {
        self.flush(thread);
        self.frame(FrameKind::ThreadEnds, thread, &[]);
    }

    /// Notes a word of a thread.
    pub fn push(&self, thread: u32, word: u64) {
        let Some(place) = self.buffers.get(thread as usize) else { return };
        // SAFETY: only the thread of that number uses its buffer, and QEMU calls from it; the buffer lives until the number is given again.
        let Some(buffer) = (unsafe { place.load(Ordering::Relaxed).as_mut() }) else { return };
        buffer.push(word);
        if buffer.len() == BUFFER_WORDS {
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

    fn write(&self, thread: u32, buffer: &mut Vec<u64>) {
        if !buffer.is_empty() {
            let bytes: Vec<u8> = buffer.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.frame(FrameKind::Executed, thread, &bytes);
            buffer.clear();
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
        let overflow = self.overflow.load(Ordering::Relaxed) as u64;
        self.frame(FrameKind::End, 0, &overflow.to_le_bytes());
    }

    /// The program installs a handler: `action` is the address of its description, whose first word is the handler's address.
    pub fn installs_handler(&self, action: u64) {
        // 0 and 1 stand for the default and for ignoring the signal.
        if let Some(handler) = self.read_program(action).filter(|h| *h > 1) {
            self.frame(FrameKind::Handler, 0, &handler.to_le_bytes());
        }
    }

    /// The program calls `clone` with these flags.
    pub fn forks(&self, flags: u64) {
        const CLONE_THREAD: u64 = 0x1_0000;
        if flags & CLONE_THREAD == 0 {
            self.frame(FrameKind::Fork, 0, &[]);
        }
    }

    /// The program calls `clone3` with arguments at this address, flags first.
    pub fn forks_by(&self, arguments: u64) {
        if let Some(flags) = self.read_program(arguments) {
            self.forks(flags);
        }
    }

    /// The program replaces itself, if the system call succeeds: everything is written now.
    ///
    /// Other threads go on until the system call, and what they have not written then is lost.
    pub fn may_be_replaced(&self, thread: u32) {
        self.flush(thread);
        self.frame(FrameKind::Exec, 0, &[]);
    }

    /// Eight bytes of the program's memory; `None` where there is none.
    fn read_program(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        let memory = File::open("/proc/self/mem").ok()?;
        memory.read_exact_at(&mut word, self.base.load(Ordering::Relaxed).wrapping_add(address)).ok()?;
        (address != 0).then(|| u64::from_le_bytes(word))
    }

    /// Describes a block, and gives its number.
    ///
    /// # Safety
    /// The block is one that QEMU is translating.
    pub unsafe fn describe(&self, block: *mut Translation) -> usize {
        let Some(mut output) = self.output() else { return 0 };
        let number = output.blocks;
        output.blocks += 1;
        // SAFETY: the block is valid, and so are its instructions and their bytes.
        unsafe {
            let address = qemu::qemu_plugin_tb_vaddr(block);
            let count = qemu::qemu_plugin_tb_n_insns(block);
            let mut description = BlockHeader { number: number as u64, address, instructions: count as u64 }.to_bytes().to_vec();
            let mut code = Vec::new();
            for at in 0..count {
                let instruction = qemu::qemu_plugin_tb_get_insn(block, at);
                let bytes = qemu::code(instruction);
                description.push(bytes.len() as u8);
                code.extend_from_slice(bytes);
            }
            description.extend(code);
            if !output.knows(address) {
                // The same for all blocks.
                let host = qemu::qemu_plugin_insn_haddr(qemu::qemu_plugin_tb_get_insn(block, 0)).addr() as u64;
                self.base.store(host.wrapping_sub(address), Ordering::Relaxed);
                output.send_mappings(host.wrapping_sub(address), address);
            }
            output.frame(FrameKind::Block, 0, &description);
        }
        number
    }

    fn frame(&self, kind: FrameKind, thread: u32, content: &[u8]) {
        if let Some(mut output) = self.output() {
            output.frame(kind, thread, content);
        }
    }

    /// The file; `None` in a child process, where another thread may have held the lock when the child was made.
    fn output(&self) -> Option<MutexGuard<'_, Output>> {
        (std::process::id() == self.process).then(|| self.output.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// The file under a high descriptor, which programs do not use by number, and which ends when they replace themselves.
fn out_of_the_way(file: File) -> File {
    const HIGH: i32 = 900;
    // SAFETY: the descriptor is open, and the call changes nothing but the table of descriptors.
    let moved = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) };
    // SAFETY: the new descriptor is open and belongs to nothing else.
    if moved < 0 { file } else { unsafe { File::from_raw_fd(moved) } }
}

impl Output {
    fn frame(&mut self, kind: FrameKind, thread: u32, content: &[u8]) {
        if self.broken {
            return;
        }
        let frame = [&FrameHeader::new(kind, thread, content).to_bytes(), content].concat();
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
