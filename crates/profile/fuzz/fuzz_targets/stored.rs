//! Stored profiles, whole and damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use trodden_profile::{FunctionPaths, Profile};

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    let _ = Profile::read(file.path());
    if let Ok(recovered) = Profile::recover(file.path()) {
        for (_, unit, function) in recovered.profile.functions() {
            let _ = FunctionPaths::decode(function, unit.counts_of(function));
        }
    }
});
