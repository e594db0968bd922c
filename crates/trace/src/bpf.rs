//! The parts of bpf(2) that uprobes need: a ring of records, a program that fills it, and the attachment of this program to addresses of a
//! file.
//!
//! Source: `linux/bpf.h` (layouts of `union bpf_attr`, helper numbers) and Documentation/bpf/ringbuf.rst. A program is a list of 8-byte
//! instructions. The ring has two pages for positions and then the data, mapped twice in a row so that every record is contiguous.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_SIZE: usize = 4096;
/// Size of the ring's data in bytes.
const RING_DATA_SIZE: usize = 8 << 20;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;

/// Numbers of BPF helper functions.
const BPF_FUNC_SEND_SIGNAL_THREAD: i32 = 117;
const BPF_FUNC_GET_NS_CURRENT_PID_TGID: i32 = 120;
const BPF_FUNC_RINGBUF_OUTPUT: i32 = 130;
const BPF_FUNC_RINGBUF_QUERY: i32 = 134;
const BPF_FUNC_GET_ATTACH_COOKIE: i32 = 174;

/// `BPF_RB_NO_WAKEUP`: no thread waits for records.
const BPF_RB_NO_WAKEUP: i32 = 1;
/// `BPF_RB_AVAIL_DATA`: the number of unread bytes.
const BPF_RB_AVAIL_DATA: i32 = 0;

/// The record of one execution of a probed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelProbeHit {
    pub thread: i32,
    /// The value that was passed to [`KernelProbes::attach`] with the address.
    pub cookie: u64,
}

/// A `union bpf_attr` of the kernel, filled in field by field.
struct BpfAttribute([u8; 128]);

impl BpfAttribute {
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

    /// Makes the bpf(2) call. All commands that are used here return a descriptor.
    fn call(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: the pointer and the size describe the structure, and callers keep alive what its pointers refer to.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        match result {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: the descriptor is new, and owned by the `OwnedFd` alone.
            descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }),
        }
    }
}

fn encode_instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    u64::from(code) | u64::from(to | from << 4) << 8 | u64::from(offset as u16) << 16 | u64::from(constant as u32) << 32
}

/// Encodes the load of an 8-byte constant. With `kind` 1, the constant is a map's descriptor, and the map's address is loaded.
fn build_constant_load(to: u8, kind: u8, value: u64) -> [u64; 2] {
    [encode_instruction(0x18, to, kind, 0, value as u32 as i32), encode_instruction(0, 0, 0, 0, (value >> 32) as i32)]
}

/// Builds a program that writes a [`KernelProbeHit`] to the ring, and stops the thread if the ring is half full.
fn build_probe_program(ring: &OwnedFd) -> io::Result<Vec<u64>> {
    let numbers = std::fs::metadata("/proc/self/ns/pid")?;
    let ring = ring.as_raw_fd() as u64;
    let register = |to, from| encode_instruction(0xbf, to, from, 0, 0);
    let constant = |to, value| encode_instruction(0xb7, to, 0, 0, value);
    let call = |helper| encode_instruction(0x85, 0, 0, 0, helper);
    // The record is 24 bytes below the frame pointer (register 10): thread and process id, then the cookie.
    let record = |to| [register(to, 10), encode_instruction(0x07, to, 0, 0, -24)];
    let mut code = vec![register(6, 1)];
    code.extend(build_constant_load(1, 0, numbers.dev()));
    code.extend(build_constant_load(2, 0, numbers.ino()));
    code.extend(record(3));
    code.extend([constant(4, 8), call(BPF_FUNC_GET_NS_CURRENT_PID_TGID)]);
    code.extend([register(1, 6), call(BPF_FUNC_GET_ATTACH_COOKIE), encode_instruction(0x7b, 10, 0, -16, 0)]);
    code.extend(build_constant_load(1, 1, ring));
    code.extend(record(2));
    code.extend([constant(3, 16), constant(4, BPF_RB_NO_WAKEUP), call(BPF_FUNC_RINGBUF_OUTPUT)]);
    code.extend(build_constant_load(1, 1, ring));
    code.extend([constant(2, BPF_RB_AVAIL_DATA), call(BPF_FUNC_RINGBUF_QUERY)]);
    // If the ring is less than half full, skip the call.
    code.extend([
        encode_instruction(0xa5, 0, 0, 2, RING_DATA_SIZE as i32 / 2),
        constant(1, libc::SIGSTOP),
        call(BPF_FUNC_SEND_SIGNAL_THREAD),
    ]);
    code.extend([constant(0, 0), encode_instruction(0x95, 0, 0, 0, 0)]);
    Ok(code)
}

/// The probes on a file in one process, and the ring that they write to.
#[derive(Debug)]
pub struct KernelProbes {
    /// The attachment, which lasts until this descriptor is closed.
    link: Option<OwnedFd>,
    ring: HitRing,
}

impl KernelProbes {
    /// Attaches probes to offsets of a file as mapped by a process. Each hit is recorded with its offset's cookie.
    ///
    /// # Errors
    /// This process lacks the permission (root has it), the kernel is older than 6.6, or an instruction cannot be probed.
    pub fn attach(path: &Path, offsets: &[u64], cookies: &[u64], process: i32) -> io::Result<Self> {
        let map = BpfAttribute::new().word(0, BPF_MAP_TYPE_RINGBUF).word(12, RING_DATA_SIZE as u32).call(BPF_MAP_CREATE)?;
        let code = build_probe_program(&map)?;
        let load = BpfAttribute::new().word(0, BPF_PROG_TYPE_KPROBE).word(4, code.len() as u32).pointer(8, code.as_ptr());
        let program = load.pointer(16, c"GPL".as_ptr()).word(68, BPF_TRACE_UPROBE_MULTI).call(BPF_PROG_LOAD)?;
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let link = BpfAttribute::new().word(0, program.as_raw_fd() as u32).word(8, BPF_TRACE_UPROBE_MULTI);
        let link = link.pointer(16, path.as_ptr()).pointer(24, offsets.as_ptr()).pointer(40, cookies.as_ptr());
        let link = link.word(48, offsets.len() as u32).word(56, process as u32).call(BPF_LINK_CREATE)?;
        Ok(Self { link: Some(link), ring: HitRing::map_ring(&map)? })
    }

    /// Removes the probes. Recorded hits remain in the ring.
    pub fn detach(&mut self) {
        self.link = None;
    }

    pub fn read_hits(&self, mut handle: impl FnMut(KernelProbeHit) -> io::Result<()>) -> io::Result<()> {
        self.ring.read_hits(&mut handle)
    }
}

#[derive(Debug)]
struct HitRing {
    /// The page with the read position.
    read: *mut u8,
    /// The page with the write position, followed by two mappings of the data.
    written: *mut u8,
}

// SAFETY: only this value unmaps the memory, and positions are accessed atomically.
unsafe impl Send for HitRing {}

impl HitRing {
    fn map_ring(descriptor: &OwnedFd) -> io::Result<Self> {
        let map = |size, protection, offset| {
            // SAFETY: the kernel chooses the address, so that no mapping is replaced.
            let place = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, descriptor.as_raw_fd(), offset) };
            if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(place.cast::<u8>()) }
        };
        let read = map(PAGE_SIZE, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let written = map(PAGE_SIZE + 2 * RING_DATA_SIZE, libc::PROT_READ, PAGE_SIZE as libc::off_t)?;
        Ok(Self { read, written })
    }

    fn shared_position(at: *mut u8) -> &'static AtomicU64 {
        // SAFETY: callers pass the start of a mapped page, which is aligned, and use the result while it is mapped.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn read_hits(&self, handle: &mut dyn FnMut(KernelProbeHit) -> io::Result<()>) -> io::Result<()> {
        const RECORD_BUSY_FLAG: u32 = 1 << 31;
        const RECORD_DISCARDED_FLAG: u32 = 1 << 30;
        let (read, written) = (Self::shared_position(self.read), Self::shared_position(self.written));
        loop {
            let at = read.load(Ordering::Relaxed);
            if at >= written.load(Ordering::Acquire) {
                return Ok(());
            }
            // SAFETY: the record lies within the data, and is contiguous since that is mapped twice. Its header is 8-byte aligned.
            let (header, words) = unsafe {
                let record = self.written.add(PAGE_SIZE + at as usize % RING_DATA_SIZE);
                ((*record.cast::<std::sync::atomic::AtomicU32>()).load(Ordering::Acquire), record.add(8).cast::<[u64; 2]>())
            };
            if header & RECORD_BUSY_FLAG != 0 {
                // The thread that writes this record is in the kernel and about to complete it.
                std::hint::spin_loop();
                continue;
            }
            let length = u64::from(header & !(RECORD_BUSY_FLAG | RECORD_DISCARDED_FLAG));
            if header & RECORD_DISCARDED_FLAG == 0 && length == 16 {
                // SAFETY: the record has 16 bytes and is 8-byte aligned.
                let [thread, cookie] = unsafe { words.read() };
                handle(KernelProbeHit { thread: thread as u32 as i32, cookie })?;
            }
            read.store(at + 8 + length.next_multiple_of(8), Ordering::Release);
        }
    }
}

impl Drop for HitRing {
    fn drop(&mut self) {
        // SAFETY: `map_ring` created these mappings with these sizes, and nothing refers to them any more.
        unsafe {
            libc::munmap(self.read.cast(), PAGE_SIZE);
            libc::munmap(self.written.cast(), PAGE_SIZE + 2 * RING_DATA_SIZE);
        }
    }
}
