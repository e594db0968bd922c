//! The images (the executable and the shared libraries) that are loaded into the process.

use crate::output::page_size;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use libc::dl_phdr_info;

/// Calls `is_match` for the loaded images until it returns true. Returns false if it never does.
pub fn any_image(mut is_match: impl FnMut(&dl_phdr_info) -> bool) -> bool {
    // SAFETY: the callback casts its last argument to the type of the closure whose address is passed here.
    unsafe { libc::dl_iterate_phdr(Some(callback_for_closure(&is_match)), (&raw mut is_match).cast()) != 0 }
}

type Callback = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

fn callback_for_closure<F: FnMut(&dl_phdr_info) -> bool>(_: &F) -> Callback {
    unsafe extern "C" fn call_closure<F: FnMut(&dl_phdr_info) -> bool>(info: *mut dl_phdr_info, _: usize, is_match: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes a valid record. The other pointer is the one that `any_image` gave it, to a closure of type F.
        unsafe { (*is_match.cast::<F>())(&*info) }.into()
    }
    call_closure::<F>
}

pub fn file_name(info: &dl_phdr_info) -> &[u8] {
    // SAFETY: the dynamic linker keeps the name as a C string while the image is loaded.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// Returns the size in bytes of the address range that this library's image occupies.
pub fn own_image_size() -> usize {
    let mut size = 0;
    any_image(|info| {
        let is_own = find_segment(info, own_image_size as *const () as usize).is_some();
        if is_own {
            let ends = segments(info).map(|segment| segment.end.next_multiple_of(page_size()) - info.dlpi_addr as usize);
            size = ends.max().unwrap_or(0);
        }
        is_own
    });
    size
}

pub fn find_segment(info: &dl_phdr_info, address: usize) -> Option<Range<usize>> {
    segments(info).find(|range| range.contains(&address))
}

fn segments(info: &dl_phdr_info) -> impl Iterator<Item = Range<usize>> {
    let range = |index: usize| {
        // SAFETY: the index is less than the number of program headers.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        (header.p_type == libc::PT_LOAD).then(|| start..start + header.p_memsz as usize)
    };
    (0..usize::from(info.dlpi_phnum)).filter_map(range)
}
