//! The assumed behaviour of functions in other files, based on their names: whether they call back, throw, or end the program.
//!
//! Almost all such functions simply return, and watching the code after each of their calls would be expensive. So the first assumption is
//! that functions behave as their names suggest. If an execution contradicts this assumption, the runs are repeated with weaker
//! assumptions.

use anyhow::Result;
use std::collections::BTreeMap;
use trodden_binary::Binary;
use trodden_witness::Opaque;

/// An assumption about functions in other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// Functions behave as their names suggest.
    Usual,
    /// Every function may also call back.
    CallBack,
    /// Every function may also call back, throw, and end the program.
    Anything,
}

/// Functions that call functions passed to them or registered earlier.
const CALL_BACK: &[&str] = &[
    "__libc_start_main",
    "__libc_start_call_main",
    "qsort",
    "qsort_r",
    "bsearch",
    "lfind",
    "lsearch",
    "tsearch",
    "tfind",
    "tdelete",
    "twalk",
    "twalk_r",
    "tdestroy",
    "hsearch",
    "ftw",
    "ftw64",
    "nftw",
    "nftw64",
    "fts_open",
    "fts_read",
    "fts_children",
    "glob",
    "glob64",
    "scandir",
    "scandir64",
    "scandirat",
    "dl_iterate_phdr",
    "pthread_once",
    "call_once",
    "pthread_exit",
    "__pthread_unwind_next",
    "thrd_exit",
    "_obstack_newchunk",
    "_obstack_begin",
    "_obstack_begin_1",
    "_obstack_free",
    "obstack_free",
    "argp_parse",
    "error",
    "error_at_line",
    "raise",
    "kill",
    "pthread_kill",
    "tgkill",
    "sigsuspend",
    "pause",
    "swapcontext",
    "setcontext",
    "__cxa_finalize",
    "__cxa_end_catch",
    "__cxa_rethrow",
    "exit",
    "quick_exit",
    "_Unwind_Backtrace",
    "_Unwind_ForcedUnwind",
    "_Unwind_DeleteException",
    "dlopen",
    "dlclose",
    "fclose",
    "fflush",
    "pthread_key_delete",
    "pthread_join",
    "register_printf_specifier",
    "_ZNSt6locale5facet",
    "_ZSt9terminatev",
    "__cxa_call_unexpected",
    "__cxa_vec_new",
    "__cxa_vec_ctor",
    "__cxa_vec_dtor",
    "__cxa_vec_delete",
    "__cxa_vec_delete2",
    "__cxa_vec_new2",
    "__cxa_vec_cctor",
    "__cxa_vec_cleanup",
];

/// Functions that never return but throw.
const THROW: &[&str] = &[
    "__cxa_throw",
    "__cxa_rethrow",
    "_Unwind_Resume",
    "_Unwind_RaiseException",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length",
];

/// Functions that leave frames in ways other than exceptions.
const JUMP: &[&str] = &[
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "pthread_cancel",
    "thrd_exit",
    "_Unwind_ForcedUnwind",
    "setcontext",
    "swapcontext",
];

/// Functions that may end the program.
const END: &[&str] = &[
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "abort",
    "__assert_fail",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "_ZSt9terminatev",
    "__cxa_pure_virtual",
    "__cxa_call_terminate",
    "err",
    "errx",
    "verr",
    "verrx",
    "execve",
    "execv",
    "execvp",
    "execl",
    "execlp",
    "execle",
    "execvpe",
    "fexecve",
    "error",
    "error_at_line",
    "__libc_start_main",
    "pthread_exit",
    "thrd_exit",
];

/// Functions that an image can replace for all files, so that outside code calls the image's version.
const ALLOCATE: &[&str] = &["malloc", "free", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc"];

/// How an image interacts with other files.
#[derive(Clone, Debug, Default)]
pub struct ImportingImage {
    /// Addresses at which outside code enters the image: the entry point, `.init` and `.fini`.
    pub starts: Vec<u64>,
    /// Functions that other files can call by name.
    pub exports: BTreeMap<String, u64>,
    /// Whether the image itself raises exceptions through the unwinder, as language runtimes do. The unwinder then calls the image's
    /// personality function.
    pub raises: bool,
    /// Whether the image may leave frames and bypass landing pads or handlers, by `longjmp` or by ending a thread.
    pub jumps: bool,
}

impl ImportingImage {
    /// Reads the symbol tables of an image.
    pub fn read(binary: &Binary) -> Result<Self> {
        use object::{Object, ObjectSymbol};
        let section = |name: &str| binary.section(name).map(|(range, _)| range.start);
        let starts = [Some(binary.entry()), section(".init"), section(".fini")].into_iter().flatten().collect();
        let file = object::File::parse(binary.data())?;
        let defined = file.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text);
        let exports = defined.filter_map(|s| Some((unversioned(s.name().ok()?).to_owned(), s.address()))).collect();
        let imported: Vec<&str> =
            file.dynamic_symbols().filter(|s| s.is_undefined()).filter_map(|s| Some(unversioned(s.name().ok()?))).collect();
        let imports = |names: &[&str]| imported.iter().any(|i| names.contains(i));
        // A static image imports nothing, so the names of the functions it calls are unknown.
        let jumps = imported.is_empty() || imports(JUMP);
        Ok(Self { starts, exports, raises: imports(&["_Unwind_RaiseException"]), jumps })
    }

    /// The possible behaviour of an imported function.
    pub fn import(&self, name: &str, assumption: Assumption) -> Opaque {
        let usual = opaque(name, assumption);
        let replaces = |prefix: &[&str]| self.exports.keys().any(|e| prefix.iter().any(|p| e.starts_with(p)));
        let allocates = self.exports.keys().any(|e| ALLOCATE.contains(&e.as_str()));
        let of_cxx = name.starts_with("_Z") || name.starts_with("__cxa");
        let asks = self.raises && unversioned(name).starts_with("_Unwind_") && usual.unwinds;
        let calls_back = usual.calls_back || allocates || asks || (of_cxx && replaces(&["_Zn", "_Zd"]));
        Opaque { calls_back, ..usual }
    }
}

/// Whether a function unwinds or abandons the frames of its callers: by an exception, `longjmp`, a context switch, or ending the thread.
pub fn leaves_frames(name: &str) -> bool {
    JUMP.contains(&unversioned(name)) || opaque(name, Assumption::Usual).unwinds
}

/// Whether a function in another file may switch to a different stack, as coroutine libraries do. Functions of the C and C++ runtimes are
/// recognised by their symbol versions; among them, only the context functions switch stacks.
pub fn import_switches_stacks(name: &str) -> bool {
    const RUNTIME_VERSIONS: &[&str] = &["@GLIBC_", "@GLIBCXX_", "@CXXABI_", "@GCC_"];
    matches!(unversioned(name), "swapcontext" | "setcontext") || !RUNTIME_VERSIONS.iter().any(|version| name.contains(version))
}

/// A symbol name without its version.
pub fn unversioned(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The assumed behaviour of a function. An empty name means an unknown function.
pub fn opaque(name: &str, assumption: Assumption) -> Opaque {
    let name = unversioned(name);
    let is = |list: &[&str]| list.contains(&name);
    let throws = is(THROW) || name.starts_with("_ZSt") && name.contains("__throw_");
    if throws {
        let ends_run = assumption == Assumption::Anything;
        return Opaque { calls_back: name == "__cxa_rethrow" || assumption != Assumption::Usual, ends_run, ..Opaque::UNWINDS };
    }
    let executes = name.starts_with("exec") || matches!(name, "fexecve" | "error" | "error_at_line");
    let returns = !is(END) || executes || matches!(name, "__libc_start_main");
    let usual = Opaque { returns, ends_run: is(END), unwinds: false, calls_back: is(CALL_BACK) };
    match assumption {
        Assumption::Usual => usual,
        Assumption::CallBack => Opaque { calls_back: true, ..usual },
        Assumption::Anything => Opaque { calls_back: true, ends_run: true, unwinds: true, ..usual },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_follows_from_names() {
        assert_eq!(opaque("strlen@GLIBC_2.2.5", Assumption::Usual), Opaque::RETURNS);
        assert!(opaque("qsort", Assumption::Usual).calls_back);
        assert_eq!(opaque("_ZSt17__throw_bad_allocv", Assumption::Usual), Opaque::UNWINDS);
        assert!(opaque("strlen", Assumption::CallBack).calls_back);
        assert!(!opaque("abort", Assumption::Usual).returns);
    }
}
