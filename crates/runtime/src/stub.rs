//! Pieces of assembly that several stubs have: their frame for linkers and unwinders, and the registers that code expects to keep.
//!
//! System calls and baseline Rust code touch only the low halves of vector registers, which `fxsave64` covers.

/// Begins the function of this name, in a section of its own.
macro_rules! begin {
    ($name:literal) => {
        concat!(
            ".pushsection .text.",
            $name,
            ", \"ax\", @progbits\n",
            ".globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.type ",
            $name,
            ", @function\n",
            ".balign 16\n",
            $name,
            ":\n.cfi_startproc"
        )
    };
}

/// Ends it.
macro_rules! end {
    ($name:literal) => {
        concat!(".cfi_endproc\n.size ", $name, ", . - ", $name, "\n.popsection")
    };
}

/// Saves what a called function may change, but rax, r11 and flags. rbp is the frame; the stack is aligned then.
macro_rules! save {
    () => {
        "push rcx\npush rdx\npush rsi\npush rdi\npush r8\npush r9\npush r10\ncld\nsub rsp, 512\nand rsp, -16\nfxsave64 [rsp]"
    };
}

/// Restores it; `below` says how many bytes below rbp the last of the registers lies.
macro_rules! restore {
    ($below:literal) => {
        concat!("fxrstor64 [rsp]\nlea rsp, [rbp - ", $below, "]\npop r10\npop r9\npop r8\npop rdi\npop rsi\npop rdx\npop rcx")
    };
}

pub(crate) use {begin, end, restore, save};
