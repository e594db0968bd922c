//! The functions that this library stands in for: looked up once, in the libraries that come after it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of another library.
pub struct Real {
    name: &'static CStr,
    /// Version of the symbol, where the default is not meant.
    version: Option<&'static CStr>,
    address: AtomicUsize,
}

impl Real {
    /// By name.
    pub const fn new(name: &'static CStr) -> Self {
        Real { name, version: None, address: AtomicUsize::new(0) }
    }

    /// By name and version; where the version is unknown, by name.
    pub const fn versioned(name: &'static CStr, version: &'static CStr) -> Self {
        Real { name, version: Some(version), address: AtomicUsize::new(0) }
    }

    /// Its address; the program ends with a message if there is none, since the call cannot be carried out.
    #[inline]
    pub fn get(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find().unwrap_or_else(|| self.missing()),
            address => address,
        }
    }

    /// Its address if it is there.
    pub fn find(&self) -> Option<usize> {
        let mut address = 0;
        if let Some(version) = self.version {
            // SAFETY: both are C strings.
            address = unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) } as usize;
        }
        if address == 0 {
            // SAFETY: a C string.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        }
        if address == 0 {
            // A library that was opened later is not behind this one: it is among all.
            // SAFETY: a C string.
            address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) } as usize;
        }
        self.address.store(address, Ordering::Relaxed);
        (address != 0).then_some(address)
    }

    #[cold]
    fn missing(&self) -> ! {
        let parts: [&[u8]; 3] = [b"trodden: the program calls ", self.name.to_bytes(), b", which no library has\n"];
        for part in parts {
            crate::output::write(libc::STDERR_FILENO, part);
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(127) }
    }
}

/// Calls a [`Real`] of the given type.
macro_rules! real {
    ($real:expr, fn($($type:ty),* $(,)?) $(-> $result:ty)?, $($argument:expr),* $(,)?) => {{
        // SAFETY: the symbol of that name has this signature.
        let function = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) $(-> $result)?>($real.get()) };
        // SAFETY: the arguments are the caller's own.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use real;

/// A name as a C string.
macro_rules! name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!(),
        }
    };
}
pub(crate) use name;
