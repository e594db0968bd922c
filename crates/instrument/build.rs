//! Tells the linker where Debian's packages put LLVM, for the unit tests. The plugin itself is linked without LLVM: its symbols resolve to
//! those of the compiler that loads it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-search=native=/usr/lib/llvm-22/lib");
}
