//! Assembly code that several functions share: directives for linkers and unwinders, and code that saves registers. `fxsave64` saves
//! enough, because system calls and baseline Rust code use only the low halves of vector registers.

/// Begins a function with the given name in a section of its own.
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

macro_rules! end {
    ($name:literal) => {
        concat!(".cfi_endproc\n.size ", $name, ", . - ", $name, "\n.popsection")
    };
}

/// Saves the registers that a called function may change, except rax, r11 and flags, and aligns the stack. rbp must be the frame pointer.
macro_rules! save {
    () => {
        "push rcx\npush rdx\npush rsi\npush rdi\npush r8\npush r9\npush r10\ncld\nsub rsp, 512\nand rsp, -16\nfxsave64 [rsp]"
    };
}

/// Restores the registers that [`save`] has saved. `below` is the distance in bytes from the last of them up to rbp.
macro_rules! restore {
    ($below:literal) => {
        concat!("fxrstor64 [rsp]\nlea rsp, [rbp - ", $below, "]\npop r10\npop r9\npop r8\npop rdi\npop rsi\npop rdx\npop rcx")
    };
}

pub(crate) use {begin, end, restore, save};
