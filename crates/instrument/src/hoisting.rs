//! Disables hoisting of constants out of loops where it would dominate compile time.
//!
//! Generated programs may contain state machines: one loop with hundreds of switches. LLVM hoists the addresses of all jump tables out of
//! that loop, and the register allocator then splits each live range over all blocks of the loop, only to rematerialise the address at its
//! switch. This takes O(switches x blocks) time. A probe per edge multiplies the blocks, so seconds may become minutes. If the product is
//! too large, the pass is disabled for the whole unit (LLVM cannot disable it for one function), with a note.

use crate::flags::set_option;
use crate::llvm::Value;
use llvm_sys::LLVMOpcode;
use std::ffi::CStr;
use std::sync::Once;

/// Maximum product of switches and blocks. For 500 switches of 20 cases, the pass takes half of the compile time.
const MAX_SWITCHES_TIMES_BLOCKS: usize = 1 << 20;
/// Minimum number of successors with which a switch counts as one that LLVM lowers to a jump table.
const MIN_JUMP_TABLE_CASES: usize = 5;
const DISABLE_LICM_OPTION: &CStr = c"-disable-machine-licm";

/// Disables hoisting of constants for this process if one of the functions would make it too slow.
pub fn disable_hoisting_if_too_costly(functions: &[Value]) {
    static COST_CHECK_ONCE: Once = Once::new();
    let large = functions.iter().find_map(|f| Some((*f, find_excessive_hoisting_cost(*f)?)));
    if let Some((function, (switches, blocks))) = large {
        COST_CHECK_ONCE.call_once(|| disable_hoisting(&function.name(), switches, blocks));
    }
}

/// Returns the numbers of switches and blocks if their product is too large.
fn find_excessive_hoisting_cost(function: Value) -> Option<(usize, usize)> {
    let is_table = |end: Value| end.is(LLVMOpcode::LLVMSwitch) && end.successors().len() >= MIN_JUMP_TABLE_CASES;
    let blocks = function.blocks().count();
    let switches = function.blocks().filter(|b| is_table(b.terminator())).count();
    (switches.saturating_mul(blocks) > MAX_SWITCHES_TIMES_BLOCKS).then_some((switches, blocks))
}

fn disable_hoisting(function: &str, switches: usize, blocks: usize) {
    // LLVM exits if an option is given twice.
    if std::env::args_os().any(|a| a.as_encoded_bytes().ends_with(DISABLE_LICM_OPTION.to_bytes())) {
        return;
    }
    set_option(DISABLE_LICM_OPTION);
    if std::env::var_os("TRODDEN_QUIET").is_none() {
        eprintln!(
            "trodden: `{function}` has {switches} switches and {blocks} blocks with its probes: disabling LLVM's machine LICM for this \
             unit (-mllvm -disable-machine-licm), which would dominate compile time"
        );
    }
}
