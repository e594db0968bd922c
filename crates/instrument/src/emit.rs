//! What the object file gets besides code: the counters, the allocated record, the frame.
//!
//! The record and the frame are made by module-level assembly, because an LLVM global can be neither in a section that is not loaded nor retained by
//! the linker without being listed in `llvm.used`. The record is retained (`R`) so that `--gc-sections` leaves it; it refers to the counters by their
//! distance, so that it needs no relocation when the program starts.

use crate::llvm::{Module, Value, c_string, llvm};
use llvm_sys::core::*;
use llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMVisibility};
use std::fmt::Write;
use std::path::Path;
use trodden_unit::Identity;
use trodden_wire::{BIAS_SYMBOL, COUNTERS_SECTION, ENTER_SYMBOL, FRAMES_SECTION, UNIT_MAGIC, UNIT_VERSION, UNITS_SECTION};

/// Name of the unit's counters; local to the object file.
const COUNTERS_SYMBOL: &str = "__trodden_counters";
/// Number of LLVM's calling convention in which the callee preserves all registers.
const PRESERVE_ALL: u32 = 15;

/// The template of the unit's counters, of a size that is set when all functions are known.
pub struct Counters {
    module: Module,
    /// A stand-in that code refers to until the size is known.
    pub stand_in: Value,
}

impl Counters {
    /// Begins the unit's counters.
    pub fn begin(module: Module) -> Counters {
        let name = c_string(&format!("{COUNTERS_SYMBOL}.begin"));
        Counters { module, stand_in: Value(llvm!(LLVMAddGlobal(module.raw, module.i64(), name.as_ptr()))) }
    }

    /// Makes the array of `count` counters and puts it where the stand-in was used.
    pub fn finish(self, count: u64) {
        let name = c_string(COUNTERS_SYMBOL);
        let array = llvm!(LLVMArrayType2(self.module.i64(), count));
        let counters = llvm!(LLVMAddGlobal(self.module.raw, array, name.as_ptr()));
        llvm!(LLVMSetLinkage(counters, LLVMLinkage::LLVMInternalLinkage));
        llvm!(LLVMSetInitializer(counters, llvm!(LLVMConstNull(array))));
        llvm!(LLVMSetSection(counters, c_string(COUNTERS_SECTION).as_ptr()));
        llvm!(LLVMSetAlignment(counters, 8));
        self.stand_in.replace_uses(Value(counters));
        llvm!(LLVMDeleteGlobal(self.stand_in.0));
    }
}

/// Declares the thread-local bias.
pub fn declare_bias(module: Module) -> Value {
    let name = c_string(BIAS_SYMBOL);
    let bias = llvm!(LLVMAddGlobal(module.raw, module.i64(), name.as_ptr()));
    llvm!(LLVMSetLinkage(bias, LLVMLinkage::LLVMExternalLinkage));
    llvm!(LLVMSetVisibility(bias, LLVMVisibility::LLVMHiddenVisibility));
    llvm!(LLVMSetThreadLocalMode(bias, LLVMThreadLocalMode::LLVMInitialExecTLSModel));
    Value(bias)
}

/// Declares the runtime's function that claims a region.
pub fn declare_enter(module: Module) -> Value {
    let kind = llvm!(LLVMFunctionType(module.i64(), std::ptr::null_mut(), 0, 0));
    let enter = llvm!(LLVMAddFunction(module.raw, c_string(ENTER_SYMBOL).as_ptr(), kind));
    llvm!(LLVMSetVisibility(enter, LLVMVisibility::LLVMHiddenVisibility));
    llvm!(LLVMSetFunctionCallConv(enter, PRESERVE_ALL));
    for name in ["nounwind", "cold"] {
        let id = llvm!(LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()));
        let attribute = llvm!(LLVMCreateEnumAttribute(module.context(), id, 0));
        llvm!(LLVMAddAttributeAtIndex(enter, llvm_sys::LLVMAttributeFunctionIndex, attribute));
    }
    Value(enter)
}

/// Emits the unit's record, and its frame from the file where it is stored.
pub fn record_and_frame(module: Module, unit: Identity, counters: u64, frame: &Path) {
    let mut assembly = String::new();
    let unit_bytes = unit.0.map(|b| format!("0x{b:02x}")).join(",");
    let distance = if counters == 0 { "0".to_owned() } else { format!("{COUNTERS_SYMBOL}-.") };
    let path = frame.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    // Flags: a allocated, R retained.
    writeln!(assembly, ".pushsection {UNITS_SECTION},\"aR\",@progbits").expect("writing to a string");
    writeln!(assembly, ".p2align 3\n.long {UNIT_MAGIC},{UNIT_VERSION}\n.byte {unit_bytes}").expect("writing to a string");
    writeln!(assembly, ".quad {distance}\n.quad {counters}\n.popsection").expect("writing to a string");
    writeln!(assembly, ".pushsection {FRAMES_SECTION},\"\",@progbits\n.incbin \"{path}\"\n.popsection").expect("writing to a string");
    module.append_assembly(&assembly);
}
