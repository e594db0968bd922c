//! Names of imported functions that never return, or that return more than once.
//!
//! Sources: ISO C, POSIX, and the manuals of glibc and of the C++ runtime libraries. Whether functions of the file itself return follows
//! from their code.

const NEVER_RETURNING_FUNCTIONS: [&str; 44] = [
    "_Exit",
    "_Unwind_Resume",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert_rtn",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_call_terminate",
    "__cxa_call_unexpected",
    "__cxa_deleted_virtual",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_main",
    "__longjmp_chk",
    "__stack_chk_fail",
    "__stack_chk_fail_local",
    "_exit",
    "_longjmp",
    "abort",
    "err",
    "errx",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "siglongjmp",
    "thrd_exit",
    "verr",
    "verrx",
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
    "_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
    "g_assertion_message",
    "g_assertion_message_expr",
    "g_assertion_message_cmpnum",
    "g_assertion_message_error",
    "rust_begin_unwind",
    "__ubsan_handle_builtin_unreachable",
];

const TWICE_RETURNING_FUNCTIONS: [&str; 9] =
    ["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "vfork", "__vfork", "getcontext", "savectx"];

pub fn never_returns(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    NEVER_RETURNING_FUNCTIONS.contains(&name)
        || name.strip_prefix("_ZSt").is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with("__throw_"))
}

pub fn returns_twice(name: &str) -> bool {
    TWICE_RETURNING_FUNCTIONS.contains(&name.split('@').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_versions_are_ignored() {
        assert!(never_returns("exit") && never_returns("abort@GLIBC_2.2.5") && never_returns("_ZSt20__throw_length_errorPKc"));
        assert!(!never_returns("execve") && !never_returns("_ZSt4cout") && !never_returns("error"));
        assert!(returns_twice("__sigsetjmp") && !returns_twice("longjmp"));
    }
}
