//! Builds the two objects that this crate embeds: the runtime, and an entry point for programs without libc's start files.
#![allow(dead_code, reason = "the included file serves tests as well")]

#[path = "runtime/build_object.rs"]
mod build_object;

use std::path::Path;

fn main() {
    for source in build_object::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let built = build_object::build(&Path::new(&out).join("trodden_rt.o"));
    if let Err(error) = built.and_then(|()| build_object::build_start(&Path::new(&out).join("trodden_start.o"))) {
        println!("cargo::error={}", error.replace('\n', "\ncargo::error="));
    }
}
