//! Addresses of the functions that this library interposes, which the wrappers call.
//!
//! Each function is looked up once: first in the libraries after this one in the dynamic linker's global order, then among the dependencies
//! of the calling image. The second search is needed if `dlopen` loaded the defining library without RTLD_GLOBAL, which makes it visible
//! only to images that depend on it.

use crate::images;
use crate::memory::{map_private, unmap_elements};
use crate::output::Path;
use crate::walk;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct RealFunction {
    name: &'static CStr,
    /// The version of the symbol to look up; `None` for the default version.
    version: Option<&'static CStr>,
    address: AtomicUsize,
}

impl RealFunction {
    pub const fn new(name: &'static CStr) -> Self {
        RealFunction { name, version: None, address: AtomicUsize::new(0) }
    }

    /// Creates a function that is looked up with a symbol version, or with the default version if that one does not exist.
    pub const fn versioned(name: &'static CStr, version: &'static CStr) -> Self {
        RealFunction { name, version: Some(version), address: AtomicUsize::new(0) }
    }

    /// Returns the function's address, and looks it up at the first call. If no library defines the function, the program's call cannot be
    /// made, so the process exits with a message.
    #[inline]
    pub fn get(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find().unwrap_or_else(|| self.exit_for_missing_function()),
            address => address,
        }
    }

    /// Looks up the function's address. Returns `None` if no library defines the function.
    pub fn find(&self) -> Option<usize> {
        let next = |version: Option<&CStr>| look_up_symbol(libc::RTLD_NEXT, self.name, version);
        let address = self.version.map_or(0, |version| next(Some(version)));
        let address = if address == 0 { next(None) } else { address };
        let address = if address == 0 { find_in_images(self.name) } else { address };
        self.address.store(address, Ordering::Relaxed);
        (address != 0).then_some(address)
    }

    #[cold]
    fn exit_for_missing_function(&self) -> ! {
        let parts: [&[u8]; 3] = [b"trodden: the program calls ", self.name.to_bytes(), b", which no loaded library defines\n"];
        for part in parts {
            crate::output::write(libc::STDERR_FILENO, part);
        }
        // SAFETY: the function has no pointer arguments.
        unsafe { libc::_exit(127) }
    }
}

pub struct RealVariable {
    name: &'static CStr,
    address: AtomicUsize,
}

impl RealVariable {
    pub const fn new(name: &'static CStr) -> Self {
        RealVariable { name, address: AtomicUsize::new(0) }
    }

    /// Returns the variable's address; 0 if no library defines the variable. The global order is searched first, because the executable may
    /// contain a copy of the variable that all images use.
    pub fn address(&self) -> usize {
        let known = self.address.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let found = look_up_symbol(libc::RTLD_DEFAULT, self.name, None);
        let found = if found == 0 { find_in_images(self.name) } else { found };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Looks up a symbol with `dlsym`, or with `dlvsym` if a version is given. Returns 0 if there is no such symbol, or if it is defined in
/// this library.
fn look_up_symbol(handle: *mut libc::c_void, name: &CStr, version: Option<&CStr>) -> usize {
    // SAFETY: the caller passes a valid handle, and the name and version are C strings.
    let address = unsafe {
        match version {
            Some(version) => libc::dlvsym(handle, name.as_ptr(), version.as_ptr()),
            None => libc::dlsym(handle, name.as_ptr()),
        }
    } as usize;
    walk::find_own_code_range();
    if walk::is_own_code(address) { 0 } else { address }
}

/// Looks up a symbol in the image that called this library and in its dependencies, then in all other images. Returns 0 if there is none.
#[cold]
fn find_in_images(name: &CStr) -> usize {
    let caller = walk::unwind_stack(0).addresses[0];
    let Some(path) = map_private::<Path>(1) else { return 0 };
    // SAFETY: the memory has the size of a path and is zeroed, which is a valid empty path.
    let place = unsafe { &mut *path };
    let mut address = find_in_image(name, place, |info, _| images::find_segment(info, caller).is_some());
    let mut images = 0;
    images::any_image(|_| {
        images += 1;
        false
    });
    for index in 0..images {
        if address == 0 {
            address = find_in_image(name, place, |_, at| at == index);
        }
    }
    unmap_elements(path, 1);
    address
}

/// Looks up a symbol in the first image that matches and in its dependencies. If the symbol is found, the image is never unloaded, because
/// callers keep the address.
fn find_in_image(name: &CStr, place: &mut Path, is_match: impl Fn(&libc::dl_phdr_info, usize) -> bool) -> usize {
    // The dynamic linker gives the executable an empty path. Its dependencies are part of the global order, which was searched before.
    if !copy_path(place, is_match) || place.as_bytes().is_empty() {
        return 0;
    }
    // The image is opened after the iteration over images, which holds one of the dynamic linker's locks.
    // SAFETY: the path is a C string, and the image is already loaded, so `dlopen` runs none of its code.
    let handle = unsafe { libc::dlopen(place.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return 0;
    }
    let address = look_up_symbol(handle, name, None);
    if address == 0 {
        // SAFETY: the handle was opened above.
        unsafe { libc::dlclose(handle) };
    }
    address
}

/// Copies the path of the first image for which `is_match` returns true. `is_match` receives the image and its index. Returns false if no
/// image matches.
fn copy_path(place: &mut Path, is_match: impl Fn(&libc::dl_phdr_info, usize) -> bool) -> bool {
    let mut index = 0;
    images::any_image(|info| {
        let is_found = is_match(info, index);
        if is_found {
            place.clear();
            // SAFETY: the dynamic linker's name is a C string.
            place.add(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes());
        }
        index += 1;
        is_found
    })
}

/// Calls the function in a [`RealFunction`], which must have the given signature.
macro_rules! real {
    ($real:expr, fn($($type:ty),* $(,)?) $(-> $result:ty)?, $($argument:expr),* $(,)?) => {{
        // SAFETY: callers pass the signature of the C function with this name.
        let function = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) $(-> $result)?>($real.get()) };
        // SAFETY: the arguments are those of the wrapper, whose caller fulfils the contract of the C function.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use real;

/// Converts an identifier to a C string.
macro_rules! name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!(),
        }
    };
}
pub(crate) use name;
