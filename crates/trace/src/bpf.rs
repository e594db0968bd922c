//! The little of bpf(2) that uprobes need: a ring of records, a program that fills it, and its attachment to places in a file.
//!
//! Source: `linux/bpf.h` (layouts of `union bpf_attr`, numbers of helpers), Documentation/bpf/ringbuf.rst. A program is a list of
//! instructions of eight bytes. The ring has two pages of positions, then its data, mapped twice one after the other so that a record is
//! never in two pieces.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Bytes of records that a ring holds.
const SIZE: usize = 8 << 20;

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_RINGBUF: u32 = 27;
const PROG_TYPE_KPROBE: u32 = 2;
const TRACE_UPROBE_MULTI: u32 = 48;

/// Helpers by their numbers.
const SEND_SIGNAL_THREAD: i32 = 117;
const GET_NS_CURRENT_PID_TGID: i32 = 120;
const RINGBUF_OUTPUT: i32 = 130;
const RINGBUF_QUERY: i32 = 134;
const GET_ATTACH_COOKIE: i32 = 174;

/// `BPF_RB_NO_WAKEUP`: no thread waits for records.
const NO_WAKEUP: i32 = 1;
/// `BPF_RB_AVAIL_DATA`.
const AVAILABLE: i32 = 0;

/// A record: a thread has come to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The thread.
    pub thread: i32,
    /// The number that the place was given.
    pub cookie: u64,
}

/// Writes plain numbers where a structure of the kernel has them.
struct Attribute([u8; 128]);

impl Attribute {
    fn new() -> Self {
        Self([0; 128])
    }

    fn word(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn pointer<T>(mut self, at: usize, to: *const T) -> Self {
        self.0[at..at + 8].copy_from_slice(&(to as u64).to_le_bytes());
        self
    }

    /// The system call; its result is a descriptor.
    fn call(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: the kernel reads the structure, and what its pointers lead to, which the callers keep alive.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        match result {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: the kernel has just made the descriptor, and it is known here only.
            descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }),
        }
    }
}

/// An instruction: operation, registers, offset, constant.
fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    u64::from(code) | u64::from(to | from << 4) << 8 | u64::from(offset as u16) << 16 | u64::from(constant as u32) << 32
}

/// Instructions that load a word of eight bytes; `kind` 1 makes the map of a descriptor of it.
fn load(to: u8, kind: u8, value: u64) -> [u64; 2] {
    [instruction(0x18, to, kind, 0, value as u32 as i32), instruction(0, 0, 0, 0, (value >> 32) as i32)]
}

/// Writes a [`Hit`] to the ring, and stops the thread when the ring is half full.
fn program(ring: &OwnedFd) -> io::Result<Vec<u64>> {
    let numbers = std::fs::metadata("/proc/self/ns/pid")?;
    let ring = ring.as_raw_fd() as u64;
    let register = |to, from| instruction(0xbf, to, from, 0, 0);
    let constant = |to, value| instruction(0xb7, to, 0, 0, value);
    let call = |helper| instruction(0x85, 0, 0, 0, helper);
    // The record lies 24 bytes below the frame (register 10): the thread and its process, then the cookie.
    let record = |to| [register(to, 10), instruction(0x07, to, 0, 0, -24)];
    let mut code = vec![register(6, 1)];
    code.extend(load(1, 0, numbers.dev()));
    code.extend(load(2, 0, numbers.ino()));
    code.extend(record(3));
    code.extend([constant(4, 8), call(GET_NS_CURRENT_PID_TGID)]);
    code.extend([register(1, 6), call(GET_ATTACH_COOKIE), instruction(0x7b, 10, 0, -16, 0)]);
    code.extend(load(1, 1, ring));
    code.extend(record(2));
    code.extend([constant(3, 16), constant(4, NO_WAKEUP), call(RINGBUF_OUTPUT)]);
    code.extend(load(1, 1, ring));
    code.extend([constant(2, AVAILABLE), call(RINGBUF_QUERY)]);
    // Less than half: over the call.
    code.extend([instruction(0xa5, 0, 0, 2, SIZE as i32 / 2), constant(1, libc::SIGSTOP), call(SEND_SIGNAL_THREAD)]);
    code.extend([constant(0, 0), instruction(0x95, 0, 0, 0, 0)]);
    Ok(code)
}

/// Probes at places of a file, in one process, with the ring that they write to.
#[derive(Debug)]
pub struct KernelProbes {
    /// The attachment; it ends when it is closed.
    link: Option<OwnedFd>,
    ring: Ring,
}

impl KernelProbes {
    /// Attaches to places of a file as a process has mapped it; each is recorded by its cookie.
    ///
    /// # Errors
    /// This process may not (it takes root), the kernel has no such probes (6.6 or later has), or an instruction cannot be probed.
    pub fn attach(path: &Path, offsets: &[u64], cookies: &[u64], process: i32) -> io::Result<Self> {
        let map = Attribute::new().word(0, MAP_TYPE_RINGBUF).word(12, SIZE as u32).call(MAP_CREATE)?;
        let code = program(&map)?;
        let load = Attribute::new().word(0, PROG_TYPE_KPROBE).word(4, code.len() as u32).pointer(8, code.as_ptr());
        let program = load.pointer(16, c"GPL".as_ptr()).word(68, TRACE_UPROBE_MULTI).call(PROG_LOAD)?;
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let link = Attribute::new().word(0, program.as_raw_fd() as u32).word(8, TRACE_UPROBE_MULTI);
        let link = link.pointer(16, path.as_ptr()).pointer(24, offsets.as_ptr()).pointer(40, cookies.as_ptr());
        let link = link.word(48, offsets.len() as u32).word(56, process as u32).call(LINK_CREATE)?;
        Ok(Self { link: Some(link), ring: Ring::map(&map)? })
    }

    /// Takes the probes out; what they have recorded stays.
    pub fn end(&mut self) {
        self.link = None;
    }

    /// Calls `see` with each record that was not seen before, in their order.
    ///
    /// # Errors
    /// Those of `see`.
    pub fn take(&self, mut see: impl FnMut(Hit) -> io::Result<()>) -> io::Result<()> {
        self.ring.take(&mut see)
    }
}

/// A ring, mapped.
#[derive(Debug)]
struct Ring {
    /// How far it was read: a page of its own.
    read: *mut u8,
    /// How far it was written: a page; behind it the data, twice.
    written: *mut u8,
}

// SAFETY: the pointers are to memory that only this value unmaps, and positions are read and written as atomics.
unsafe impl Send for Ring {}

impl Ring {
    fn map(descriptor: &OwnedFd) -> io::Result<Self> {
        let map = |size, protection, offset| {
            // SAFETY: the kernel chooses the place; nothing is replaced.
            let place = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, descriptor.as_raw_fd(), offset) };
            if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(place.cast::<u8>()) }
        };
        let read = map(PAGE, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let written = map(PAGE + 2 * SIZE, libc::PROT_READ, PAGE as libc::off_t)?;
        Ok(Self { read, written })
    }

    fn position(at: *mut u8) -> &'static AtomicU64 {
        // SAFETY: callers pass the beginning of a mapped page, which is aligned, and use the result while it is mapped.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn take(&self, see: &mut dyn FnMut(Hit) -> io::Result<()>) -> io::Result<()> {
        const BUSY: u32 = 1 << 31;
        const DISCARDED: u32 = 1 << 30;
        let (read, written) = (Self::position(self.read), Self::position(self.written));
        loop {
            let at = read.load(Ordering::Relaxed);
            if at >= written.load(Ordering::Acquire) {
                return Ok(());
            }
            // SAFETY: the record lies in the data, whole since that is mapped twice; its header is aligned to eight bytes.
            let (head, words) = unsafe {
                let record = self.written.add(PAGE + at as usize % SIZE);
                ((*record.cast::<std::sync::atomic::AtomicU32>()).load(Ordering::Acquire), record.add(8).cast::<[u64; 2]>())
            };
            if head & BUSY != 0 {
                // Its thread is in the kernel, about to complete it.
                std::hint::spin_loop();
                continue;
            }
            let length = u64::from(head & !(BUSY | DISCARDED));
            if head & DISCARDED == 0 && length == 16 {
                // SAFETY: the record has 16 bytes, aligned to eight.
                let [thread, cookie] = unsafe { words.read() };
                see(Hit { thread: thread as u32 as i32, cookie })?;
            }
            read.store(at + 8 + length.next_multiple_of(8), Ordering::Release);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with these sizes; nothing uses them any more.
        unsafe {
            libc::munmap(self.read.cast(), PAGE);
            libc::munmap(self.written.cast(), PAGE + 2 * SIZE);
        }
    }
}
