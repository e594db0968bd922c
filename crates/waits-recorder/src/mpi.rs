//! Wrappers of MPI functions. The same wrappers work with Open MPI and MPICH.
//!
//! Both libraries pass the same arguments in the same registers, but differ in the size of handles (addresses or 32-bit numbers), in the
//! values of constants, and in the layout of `MPI_Status`. Wrappers therefore pass arguments on unchanged, and only `implementation.rs`
//! interprets them.

mod behaviour;
mod call;
mod communicator;
mod files;
mod implementation;
mod neighbours;
mod requests;
mod table;
mod windows;

macro_rules! wrappers {
    ($($name:ident $profiled:ident [$($argument:ident)*] $behaviour:ident($($parameter:expr),*);)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: usize),*) -> i32 {
            // SAFETY: the function with the `PMPI_` prefix has the same contract.
            unsafe { $profiled($($argument),*) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiled($($argument: usize),*) -> i32 {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($profiled));
            let call = MpiCall {
                function: CallName::$name,
                arguments: pad_arguments([$($argument),*]),
                real: |arguments| {
                    let [$($argument,)* ..] = *arguments;
                    real!(REAL_FUNCTION, fn($(wrappers!(@word $argument)),*) -> i32, $($argument),*)
                },
            };
            $behaviour(call $(, $parameter)*)
        }
    )* };
    (@word $argument:ident) => { usize };
}
use wrappers;

fn pad_arguments<const N: usize>(arguments: [usize; N]) -> [usize; call::MAX_ARGUMENTS] {
    let mut all = [0; call::MAX_ARGUMENTS];
    all[..N].copy_from_slice(&arguments);
    all
}
