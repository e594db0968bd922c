//! Reads the current time without system calls, which a sandbox might forbid. The kernel maps a library into every process (the vDSO,
//! vdso(7)), with a function that reads a coarse clock from memory; this clock lags by a few milliseconds. If the function is missing, the
//! time at which this executable or library was loaded is used. Invariant: the vDSO is read only according to the layout that the gABI
//! guarantees.

use crate::output::auxiliary_value;
use crate::system::{self, TimeSpec};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const AT_SYSINFO_EHDR: u64 = 33;
const CLOCK_REALTIME_COARSE: i32 = 5;
const CLOCK_GETTIME_SYMBOL: &[u8] = b"__vdso_clock_gettime\0";

static CLOCK_FUNCTION: AtomicUsize = AtomicUsize::new(0);
static START_TIME_NS: AtomicU64 = AtomicU64::new(0);

/// Finds the clock function in the vDSO. Must be called when the image starts.
pub fn prepare_clock() {
    START_TIME_NS.store(system::now_ns(), Relaxed);
    let function = vdso_address().and_then(find_clock_gettime);
    CLOCK_FUNCTION.store(function.unwrap_or(0), Relaxed);
}

/// Returns the time in nanoseconds since 1970; 0 before [`prepare_clock`] is called.
pub fn now_ns() -> u64 {
    let started = START_TIME_NS.load(Relaxed);
    let function = CLOCK_FUNCTION.load(Relaxed);
    if function == 0 {
        return started;
    }
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the address is that of the vDSO's clock function, which has this type.
    let read_clock = unsafe { core::mem::transmute::<usize, extern "C" fn(i32, *mut TimeSpec) -> i32>(function) };
    match read_clock(CLOCK_REALTIME_COARSE, &raw mut time) {
        0 => (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64),
        _ => started,
    }
}

fn vdso_address() -> Option<usize> {
    auxiliary_value(AT_SYSINFO_EHDR).filter(|at| *at != 0).map(|at| at as usize)
}

fn read_u64(address: usize) -> usize {
    // SAFETY: callers follow the headers of the vDSO, which never changes; the addresses in these headers are aligned.
    unsafe { (address as *const usize).read() }
}

fn read_u32(address: usize) -> usize {
    // SAFETY: as for `read_u64`, callers pass only addresses that the headers of the vDSO give.
    unsafe { (address as *const u32).read() as usize }
}

fn read_u16(address: usize) -> usize {
    // SAFETY: as for `read_u64`, callers pass only addresses that the headers of the vDSO give.
    unsafe { (address as *const u16).read() as usize }
}

/// Returns the address of the clock function according to the dynamic symbol table of the vDSO. The end of that table is not recorded; it
/// is assumed to be where the string table starts.
fn find_clock_gettime(image: usize) -> Option<usize> {
    const PT_LOAD: usize = 1;
    const PT_DYNAMIC: usize = 2;
    const DT_STRTAB: usize = 5;
    const DT_SYMTAB: usize = 6;
    const SYMBOL_SIZE: usize = 24;
    let (headers, count) = (image + read_u64(image + 32), read_u16(image + 56));
    let (mut bias, mut dynamic) = (None, None);
    for header in (0..count).map(|n| headers + n * 56) {
        let (offset, address) = (read_u64(header + 8), read_u64(header + 16));
        match read_u32(header) {
            PT_LOAD if bias.is_none() => bias = Some(image.wrapping_add(offset).wrapping_sub(address)),
            PT_DYNAMIC => dynamic = Some(image + offset),
            _ => {}
        }
    }
    let (bias, mut entry) = (bias?, dynamic?);
    let (mut symbols, mut strings) = (0, 0);
    while read_u64(entry) != 0 {
        match read_u64(entry) {
            DT_STRTAB => strings = bias.wrapping_add(read_u64(entry + 8)),
            DT_SYMTAB => symbols = bias.wrapping_add(read_u64(entry + 8)),
            _ => {}
        }
        entry += 16;
    }
    let count = strings.checked_sub(symbols)? / SYMBOL_SIZE;
    let wanted = |symbol: &usize| read_u16(symbol + 6) != 0 && is_wanted_name(strings + read_u32(*symbol));
    (0..count).map(|n| symbols + n * SYMBOL_SIZE).find(wanted).map(|symbol| bias.wrapping_add(read_u64(symbol + 8)))
}

fn is_wanted_name(address: usize) -> bool {
    // SAFETY: the address points to a NUL-terminated string; reading stops at the first byte that differs, at the latest after the NUL.
    CLOCK_GETTIME_SYMBOL.iter().enumerate().all(|(at, byte)| unsafe { ((address + at) as *const u8).read_volatile() } == *byte)
}
