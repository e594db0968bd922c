//! Writes LLVM's text format for instrumentation profiles, as `llvm-profdata merge` reads it (`InstrProfReader.cpp`,
//! `TextInstrProfReader`).

use std::fmt::Write;
use trodden_profile::edges::SiteValueCounts;
use trodden_profile::{EdgeCounts, ProfiledValue};

/// Bit numbers of flags in LLVM's version word, with the flags' names in the text format.
const FLAG_NAMES: &[(u32, &str)] = &[(56, ":ir"), (57, ":csir"), (58, ":entry_first"), (61, ":single_byte_coverage")];

/// LLVM's name for a call target that the profile does not contain.
const EXTERNAL_SYMBOL: &str = "** External Symbol **";
/// LLVM's names for the kinds of call-site values.
const VALUE_KINDS: [&str; 3] = ["IPVK_IndirectCallTarget", "IPVK_MemOPSize", "IPVK_VTableTarget"];

pub fn encode_text_profile(edges: &EdgeCounts) -> String {
    let mut out = String::new();
    write_all(&mut out, edges).expect("writing to a string does not fail");
    out
}

fn write_all(out: &mut String, edges: &EdgeCounts) -> std::fmt::Result {
    for (_, flag) in FLAG_NAMES.iter().filter(|(bit, _)| edges.version >> bit & 1 == 1) {
        writeln!(out, "{flag}")?;
    }
    for function in &edges.functions {
        writeln!(out, "{}\n# Func Hash:\n{}", function.name, function.hash)?;
        writeln!(out, "# Num Counters:\n{}\n# Counter Values:", function.counts.len())?;
        for count in &function.counts {
            writeln!(out, "{count}")?;
        }
        if !function.bitmap.is_empty() {
            writeln!(out, "# Num Bitmap Bytes:\n${}\n# Bitmap Byte Values:", function.bitmap.len())?;
            function.bitmap.iter().try_for_each(|byte| writeln!(out, "{byte:#x}"))?;
            writeln!(out)?;
        }
        write_values(out, &function.values)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_values(out: &mut String, kinds: &[Vec<SiteValueCounts>; 3]) -> std::fmt::Result {
    let used: Vec<usize> = (0..kinds.len()).filter(|kind| !kinds[*kind].is_empty()).collect();
    if used.is_empty() {
        return Ok(());
    }
    writeln!(out, "# Num Value Kinds:\n{}", used.len())?;
    for kind in used {
        let places = &kinds[kind];
        writeln!(out, "# ValueKind = {}:\n{kind}\n# NumValueSites:\n{}", VALUE_KINDS[kind], places.len())?;
        for place in places {
            writeln!(out, "{}", place.len())?;
            for (value, count) in place {
                match value {
                    ProfiledValue::Number(number) => writeln!(out, "{number}:{count}")?,
                    ProfiledValue::Function(name) => writeln!(out, "{name}:{count}")?,
                    ProfiledValue::Elsewhere => writeln!(out, "{EXTERNAL_SYMBOL}:{count}")?,
                }
            }
        }
    }
    Ok(())
}
