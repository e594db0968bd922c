//! Builds the runtime object with which programs under test are linked.
#![allow(dead_code, reason = "the included file serves tests as well")]

#[path = "runtime/build_object.rs"]
mod build_object;

use std::path::Path;

fn main() {
    for source in build_object::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    if let Err(error) = build_object::build(&Path::new(&out).join("trodden_rt.o")) {
        println!("cargo::error={}", error.replace('\n', "\ncargo::error="));
    }
}
