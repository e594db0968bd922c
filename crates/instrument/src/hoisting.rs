//! Whether code generation may move constants out of loops.
//!
//! A program that generates code makes machines of states: one loop of hundreds of switches. LLVM moves the addresses
//! of all their jump tables to the beginning of that loop, and the register allocator then splits the live range of
//! each over all blocks of the loop. That takes time in O(switches x blocks), for addresses that are rematerialised at each
//! switch in the end. A count at each edge multiplies the blocks, so that minutes may become of seconds. Where the
//! product is too large, the unit's code is generated without that pass, and a note says so. LLVM has no such choice
//! for a single function.

use crate::flags::set_option;
use crate::llvm::Value;
use llvm_sys::LLVMOpcode;
use std::ffi::CStr;
use std::sync::Once;

/// Switches times blocks of a function, up to which its code is generated as usual: at 500 switches of 20 cases the
/// pass costs half of the time.
const MOST: usize = 1 << 20;
/// Successors of a switch that becomes a jump table.
const LEAST_CASES: usize = 5;
/// The switch of LLVM's.
const OPTION: &CStr = c"-disable-machine-licm";

/// Generates the code of this process without moving constants out of loops if one of the functions is too large for that.
pub fn limit(functions: &[Value]) {
    static ONCE: Once = Once::new();
    let large = functions.iter().find_map(|f| Some((*f, cost(*f)?)));
    if let Some((function, (switches, blocks))) = large {
        ONCE.call_once(|| disable(&function.name(), switches, blocks));
    }
}

/// Switches and blocks, if those are too many.
fn cost(function: Value) -> Option<(usize, usize)> {
    let is_table = |end: Value| end.is(LLVMOpcode::LLVMSwitch) && end.successors().len() >= LEAST_CASES;
    let blocks = function.blocks().count();
    let switches = function.blocks().filter(|b| is_table(b.terminator())).count();
    (switches.saturating_mul(blocks) > MOST).then_some((switches, blocks))
}

fn disable(function: &str, switches: usize, blocks: usize) {
    // LLVM ends the process where an option is given twice.
    if std::env::args_os().any(|a| a.as_encoded_bytes().ends_with(OPTION.to_bytes())) {
        return;
    }
    set_option(OPTION);
    if std::env::var_os("TRODDEN_QUIET").is_none() {
        eprintln!(
            "trodden: `{function}` has {switches} switches and {blocks} blocks with its counts: LLVM does not move constants out of \
             loops in this unit (-mllvm -disable-machine-licm), which would take most of the time"
        );
    }
}
