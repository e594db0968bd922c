//! Assumptions about functions in files that are not traced, based on the functions' names: whether they call back, throw, or end the
//! program.
//!
//! Almost all such functions simply return, and it would be expensive to watch the code after each of their calls. Therefore functions are
//! first assumed to behave as their names suggest. If an execution contradicts this, the runs are repeated with a weaker assumption.

use anyhow::Result;
use std::collections::BTreeMap;
use trodden_binary::Binary;
use trodden_witness::Opaque;

/// What is assumed about functions in files that are not traced. Each variant assumes less than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntracedCodeAssumption {
    /// Functions do only what their names suggest.
    Usual,
    /// Every function may also call functions of the traced code.
    CallBack,
    /// Every function may also call functions of the traced code, throw, and end the program.
    Anything,
}

/// Functions that call functions which they received as arguments, or which were registered earlier.
const CALLING_BACK_FUNCTIONS: &[&str] = &[
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

/// Functions that throw an exception and never return.
const THROWING_FUNCTIONS: &[&str] = &[
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

/// Functions that abandon the calls of their callers without an exception.
const FRAME_ABANDONING_FUNCTIONS: &[&str] = &[
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
const PROGRAM_ENDING_FUNCTIONS: &[&str] = &[
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

/// Functions that a program may define itself. Other files then call the program's version.
const ALLOCATION_FUNCTIONS: &[&str] = &["malloc", "free", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc"];

/// How traced files interact with files that are not traced.
#[derive(Clone, Debug, Default)]
pub struct ImportingImage {
    /// Addresses at which code of other files enters the traced files: the entry point, `.init` and `.fini`.
    pub starts: Vec<u64>,
    /// Entry addresses of the functions that other files can call by name.
    pub exports: BTreeMap<String, u64>,
    /// Whether the traced files themselves raise exceptions through the unwinder, as language runtimes do. The unwinder then calls their
    /// personality function.
    pub raises: bool,
    /// Whether the traced files may abandon calls without executing landing pads, by `longjmp` or by ending a thread.
    pub jumps: bool,
    /// Whether the file defines functions that allocate memory, which libraries then call.
    pub replaces_allocation: bool,
    /// Whether the file defines `operator new` or `operator delete`.
    pub replaces_new_or_delete: bool,
}

impl ImportingImage {
    /// Reads the entry points, exports and imports of a binary file.
    pub fn read(binary: &Binary) -> Result<Self> {
        use object::{Object, ObjectSymbol};
        let section = |name: &str| binary.section(name).map(|(range, _)| range.start);
        let starts = [Some(binary.entry()), section(".init"), section(".fini")].into_iter().flatten().collect();
        let file = object::File::parse(binary.data())?;
        let defined = file.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text);
        let exports: BTreeMap<String, u64> =
            defined.filter_map(|s| Some((strip_symbol_version(s.name().ok()?).to_owned(), s.address()))).collect();
        let imported: Vec<&str> =
            file.dynamic_symbols().filter(|s| s.is_undefined()).filter_map(|s| Some(strip_symbol_version(s.name().ok()?))).collect();
        let imports = |names: &[&str]| imported.iter().any(|i| names.contains(i));
        // A static program imports nothing, so functions like `longjmp` cannot be recognised by name.
        let jumps = imported.is_empty() || imports(FRAME_ABANDONING_FUNCTIONS);
        let replaces_allocation = ALLOCATION_FUNCTIONS.iter().any(|name| exports.contains_key(*name));
        let replaces_new_or_delete = exports.keys().any(|name| name.starts_with("_Zn") || name.starts_with("_Zd"));
        Ok(Self { starts, exports, raises: imports(&["_Unwind_RaiseException"]), jumps, replaces_allocation, replaces_new_or_delete })
    }

    /// Returns how an imported function may behave under an assumption.
    pub fn behaviour_of_import(&self, name: &str, assumption: UntracedCodeAssumption) -> Opaque {
        let usual = assumed_behaviour(name, assumption);
        let of_cxx = name.starts_with("_Z") || name.starts_with("__cxa");
        let asks = self.raises && strip_symbol_version(name).starts_with("_Unwind_") && usual.unwinds;
        let calls_back = usual.calls_back || self.replaces_allocation || asks || (of_cxx && self.replaces_new_or_delete);
        Opaque { calls_back, ..usual }
    }
}

/// Returns true if a function may abandon the calls of its callers: by an exception, `longjmp`, a context switch, or the end of the thread.
pub fn abandons_frames(name: &str) -> bool {
    FRAME_ABANDONING_FUNCTIONS.contains(&strip_symbol_version(name)) || assumed_behaviour(name, UntracedCodeAssumption::Usual).unwinds
}

/// Returns true if an imported function may switch to another stack, as coroutine libraries do. Functions of the C and C++ runtimes are
/// recognised by their symbol versions; of these, only `swapcontext` and `setcontext` switch stacks.
pub fn import_switches_stacks(name: &str) -> bool {
    const RUNTIME_VERSIONS: &[&str] = &["@GLIBC_", "@GLIBCXX_", "@CXXABI_", "@GCC_"];
    matches!(strip_symbol_version(name), "swapcontext" | "setcontext") || !RUNTIME_VERSIONS.iter().any(|version| name.contains(version))
}

/// Removes the version from a symbol name.
pub fn strip_symbol_version(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Returns the assumed behaviour of a function that is not traced. An empty name means that the function is unknown.
pub fn assumed_behaviour(name: &str, assumption: UntracedCodeAssumption) -> Opaque {
    let name = strip_symbol_version(name);
    let is = |list: &[&str]| list.contains(&name);
    let throws = is(THROWING_FUNCTIONS) || name.starts_with("_ZSt") && name.contains("__throw_");
    if throws {
        let ends_run = assumption == UntracedCodeAssumption::Anything;
        return Opaque { calls_back: name == "__cxa_rethrow" || assumption != UntracedCodeAssumption::Usual, ends_run, ..Opaque::UNWINDS };
    }
    let executes = name.starts_with("exec") || matches!(name, "fexecve" | "error" | "error_at_line");
    let returns = !is(PROGRAM_ENDING_FUNCTIONS) || executes || matches!(name, "__libc_start_main");
    let usual = Opaque { returns, ends_run: is(PROGRAM_ENDING_FUNCTIONS), unwinds: false, calls_back: is(CALLING_BACK_FUNCTIONS) };
    match assumption {
        UntracedCodeAssumption::Usual => usual,
        UntracedCodeAssumption::CallBack => Opaque { calls_back: true, ..usual },
        UntracedCodeAssumption::Anything => Opaque { calls_back: true, ends_run: true, unwinds: true, ..usual },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_follows_from_names() {
        assert_eq!(assumed_behaviour("strlen@GLIBC_2.2.5", UntracedCodeAssumption::Usual), Opaque::RETURNS);
        assert!(assumed_behaviour("qsort", UntracedCodeAssumption::Usual).calls_back);
        assert_eq!(assumed_behaviour("_ZSt17__throw_bad_allocv", UntracedCodeAssumption::Usual), Opaque::UNWINDS);
        assert!(assumed_behaviour("strlen", UntracedCodeAssumption::CallBack).calls_back);
        assert!(!assumed_behaviour("abort", UntracedCodeAssumption::Usual).returns);
    }
}
