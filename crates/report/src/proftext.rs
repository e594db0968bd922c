//! LLVM's edge profile as text, as `llvm-profdata merge` reads it (`InstrProfReader.cpp`, `TextInstrProfReader`).

use std::fmt::Write;
use trodden_profile::EdgeCounts;

/// Flags in LLVM's word of version and flags, with their names in the text.
const FLAGS: &[(u32, &str)] = &[(56, ":ir"), (57, ":csir"), (58, ":entry_first"), (61, ":single_byte_coverage")];

/// LLVM's names for kinds of values.
const VALUE_KINDS: [&str; 3] = ["IPVK_IndirectCallTarget", "IPVK_MemOPSize", "IPVK_VTableTarget"];

/// Writes a profile.
pub fn proftext(edges: &EdgeCounts) -> String {
    let mut out = String::new();
    write_all(&mut out, edges).expect("strings take whatever is written");
    out
}

fn write_all(out: &mut String, edges: &EdgeCounts) -> std::fmt::Result {
    for (_, flag) in FLAGS.iter().filter(|(bit, _)| edges.version >> bit & 1 == 1) {
        writeln!(out, "{flag}")?;
    }
    for function in &edges.functions {
        writeln!(out, "{}\n# Func Hash:\n{}", function.name, function.hash)?;
        writeln!(out, "# Num Counters:\n{}\n# Counter Values:", function.counts.len())?;
        for count in &function.counts {
            writeln!(out, "{count}")?;
        }
        value_sites(out, function.value_sites)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Places where values would be noted, all without one.
fn value_sites(out: &mut String, sites: [u16; 3]) -> std::fmt::Result {
    let kinds: Vec<(usize, u16)> = sites.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    writeln!(out, "# Num Value Kinds:\n{}", kinds.len())?;
    for (kind, count) in kinds {
        writeln!(out, "# ValueKind = {}:\n{kind}\n# NumValueSites:\n{count}", VALUE_KINDS[kind])?;
        (0..count).try_for_each(|_| writeln!(out, "0"))?;
    }
    Ok(())
}
