//! The time without system calls, which a sandbox might forbid: by the function that the kernel maps into every process
//! (vdso(7)), with the coarse clock, which it answers from memory alone (some milliseconds behind). Where there is no
//! such function, it is the time at which the image started.
//!
//! Invariant: nothing is read outside the kernel's image, of whose layout only what gABI promises is relied on.

use crate::output::auxiliary;
use crate::system::{self, Time};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const AT_SYSINFO_EHDR: u64 = 33;
const CLOCK_REALTIME_COARSE: i32 = 5;
const NAME: &[u8] = b"__vdso_clock_gettime\0";

static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static STARTED_NS: AtomicU64 = AtomicU64::new(0);

/// Finds the kernel's function, at the image's start.
pub fn prepare() {
    STARTED_NS.store(system::now_ns(), Relaxed);
    let function = kernels_image().and_then(find);
    FUNCTION.store(function.unwrap_or(0), Relaxed);
}

/// Nanoseconds since 1970; 0 before [`prepare`].
pub fn now_ns() -> u64 {
    let started = STARTED_NS.load(Relaxed);
    let function = FUNCTION.load(Relaxed);
    if function == 0 {
        return started;
    }
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel's function of that name has this type.
    let ask = unsafe { core::mem::transmute::<usize, extern "C" fn(i32, *mut Time) -> i32>(function) };
    match ask(CLOCK_REALTIME_COARSE, &raw mut time) {
        0 => (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64),
        _ => started,
    }
}

fn kernels_image() -> Option<usize> {
    auxiliary(AT_SYSINFO_EHDR).filter(|at| *at != 0).map(|at| at as usize)
}

/// A word of the kernel's image.
fn word(address: usize) -> usize {
    // SAFETY: callers follow the headers of an image that the kernel made and never changes; addresses are aligned there.
    unsafe { (address as *const usize).read() }
}

fn half(address: usize) -> usize {
    // SAFETY: as of `word`.
    unsafe { (address as *const u32).read() as usize }
}

fn quarter(address: usize) -> usize {
    // SAFETY: as of `word`.
    unsafe { (address as *const u16).read() as usize }
}

/// The function's address: by the dynamic section's table of symbols, behind which the names lie.
fn find(image: usize) -> Option<usize> {
    const LOAD: usize = 1;
    const DYNAMIC: usize = 2;
    const STRINGS: usize = 5;
    const SYMBOLS: usize = 6;
    const SYMBOL: usize = 24;
    let (headers, count) = (image + word(image + 32), quarter(image + 56));
    let (mut bias, mut dynamic) = (None, None);
    for header in (0..count).map(|n| headers + n * 56) {
        let (offset, address) = (word(header + 8), word(header + 16));
        match half(header) {
            LOAD if bias.is_none() => bias = Some(image.wrapping_add(offset).wrapping_sub(address)),
            DYNAMIC => dynamic = Some(image + offset),
            _ => {}
        }
    }
    let (bias, mut entry) = (bias?, dynamic?);
    let (mut symbols, mut strings) = (0, 0);
    while word(entry) != 0 {
        match word(entry) {
            STRINGS => strings = bias.wrapping_add(word(entry + 8)),
            SYMBOLS => symbols = bias.wrapping_add(word(entry + 8)),
            _ => {}
        }
        entry += 16;
    }
    let count = strings.checked_sub(symbols)? / SYMBOL;
    let wanted = |symbol: &usize| quarter(symbol + 6) != 0 && is_name(strings + half(*symbol));
    (0..count).map(|n| symbols + n * SYMBOL).find(wanted).map(|symbol| bias.wrapping_add(word(symbol + 8)))
}

fn is_name(address: usize) -> bool {
    // SAFETY: a text with NUL at its end is there, and no more of it is read than is equal to the name, and one byte.
    NAME.iter().enumerate().all(|(at, byte)| unsafe { ((address + at) as *const u8).read_volatile() } == *byte)
}
