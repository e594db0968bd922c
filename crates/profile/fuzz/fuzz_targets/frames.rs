//! Unit frames in a section.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trodden_unit::Frame;

fuzz_target!(|bytes: &[u8]| {
    for frame in Frame::read_all(bytes).0 {
        let _ = (frame.map(), frame.bitcode());
    }
});
