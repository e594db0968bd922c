//! MPI: wrappers of a table of functions, for Open MPI and MPICH at once.
//!
//! Both libraries take the same arguments in the same registers, and differ in handles (addresses or 32-bit numbers), constants, and
//! where a
//! status has source and tag. So every argument is passed on as it came, and `implementation.rs` knows the differences.

mod behaviour;
mod communicator;
mod files;
mod implementation;
mod neighbours;
mod requests;
mod table;
mod windows;

/// Makes wrappers of the rows of the table.
macro_rules! wrappers {
    ($($name:ident $profiled:ident [$($argument:ident)*] $behaviour:ident($($parameter:expr),*);)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: usize),*) -> i32 {
            // SAFETY: the same function.
            unsafe { $profiled($($argument),*) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiled($($argument: usize),*) -> i32 {
            static REAL: crate::real::Real = crate::real::Real::new(crate::real::name!($profiled));
            wrappers!(@call $behaviour, $name, REAL, [$($argument)*], [$($parameter),*])
        }
    )* };
    (@call $behaviour:ident, $name:ident, $real:ident, [$($argument:ident)*], [$($parameter:expr),*]) => {{
        let mut arguments: [usize; { 0 $(+ { let _ = stringify!($argument); 1 })* }] = [$($argument),*];
        $behaviour($(($parameter),)* CallName::$name, &mut arguments, |arguments| {
            let [$($argument),*] = *arguments;
            // SAFETY: the function of that name takes this many arguments, each an integer or an address.
            let function = unsafe { core::mem::transmute::<usize,
                unsafe extern "C" fn($(wrappers!(@word $argument)),*) -> i32>($real.get()) };
            // SAFETY: the arguments are the caller's own.
            unsafe { function($($argument),*) }
        })
    }};
    (@word $argument:ident) => { usize };
}
use wrappers;
