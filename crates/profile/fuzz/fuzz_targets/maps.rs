//! Maps behind the checksums, and counts that may not fit them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trodden_profile::FunctionPaths;
use trodden_unit::UnitMap;

fuzz_target!(|bytes: &[u8]| {
    let Ok((map, rest)) = postcard::take_from_bytes::<UnitMap>(bytes) else { return };
    let word = |w: &[u8]| u64::from_le_bytes(w.try_into().expect("eight bytes"));
    let counts: Vec<(u64, u64)> = rest.chunks_exact(16).map(|c| (word(&c[..8]), word(&c[8..]))).collect();
    for function in &map.functions {
        let _ = FunctionPaths::decode(function, counts.iter().copied());
        let _ = FunctionPaths::decode(function, [(0, 1), (function.counters.saturating_sub(1), u64::MAX)]);
    }
});
