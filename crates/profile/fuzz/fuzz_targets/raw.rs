//! Raw files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use trodden_profile::RawProfile;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    if let Ok(raw) = RawProfile::read(file.path()) {
        assert!(raw.units.iter().all(|u| u.counts.iter().all(|c| c.0 < u.counters && c.1 != 0)));
    }
});
