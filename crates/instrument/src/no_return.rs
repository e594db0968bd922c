//! Which calls might not come back, and which come back twice.
//!
//! A call that exits the program, throws, or jumps away leaves its callers' paths unfinished; where that can happen,
//! the path is counted as having reached the call ([`trodden_unit::EdgeKind::Reach`]). Each such count costs an
//! instruction, so calls are cleared of suspicion where the module proves it: callees that LLVM knows to return and not
//! to throw, and functions of the module that make no suspicious call themselves. A callee in which a signal ends the
//! program does not count as leaving without a return, unless the user asks for that (`reach=all`).

use crate::llvm::{Module, Value, llvm};
use indexmap::IndexSet;
use llvm_sys::LLVMLinkage;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// What is known of the functions of a module.
#[derive(Clone)]
pub struct NoReturnAnalysis {
    /// Functions defined here that might not come back.
    suspicious: IndexSet<Value>,
    /// Every call is held to be one that might not come back.
    all: bool,
    /// So is every call of a function that the module defines.
    defined: bool,
}

impl NoReturnAnalysis {
    /// Looks at all functions.
    ///
    /// With `all`, every call of a function counts as one that might not come back: a signal may end the program in any of them.
    pub fn new(module: Module, all: bool) -> NoReturnAnalysis {
        let mut known = NoReturnAnalysis { suspicious: IndexSet::new(), all, defined: false };
        if all {
            return known;
        }
        let mut new: Vec<Value> = module.functions().filter(|f| is_definition(*f) && known.has_call_without_return(*f)).collect();
        known.suspicious.extend(new.iter().copied());
        // Suspicion spreads from callees to callers, each of which is looked at once.
        while let Some(callee) = new.pop() {
            for call in callee.users().filter(|user| user.is_instruction() && user.is_call() && user.callee() == callee) {
                if known.may_not_return(call) && known.suspicious.insert(call.block().function()) {
                    new.push(call.block().function());
                }
            }
        }
        known
    }

    /// The same, where calls of functions that the module defines are to be noted, too.
    pub fn with_calls(self, defined: bool) -> NoReturnAnalysis {
        NoReturnAnalysis { defined, ..self }
    }

    fn has_call_without_return(&self, function: Value) -> bool {
        let gives_up =
            |i: &Value| i.is(LLVMOpcode::LLVMResume) || (i.is_call() && (self.may_not_return(*i) || i.call_has_attribute("noreturn")));
        function.blocks().any(|b| b.instructions().any(|i| gives_up(&i)))
    }

    /// Whether control might not come back from a call.
    pub fn may_not_return(&self, call: Value) -> bool {
        let callee = call.callee();
        if callee.is_assembly() {
            return assembly_transfers_control(callee);
        }
        if !callee.is_function() {
            return self.all || !returns_by_attribute(call);
        }
        if callee.intrinsic() != 0 {
            return is_jumping_intrinsic(callee);
        }
        if self.all || (self.defined && is_definition(callee)) {
            return true;
        }
        if is_definition(callee) && is_final(callee) {
            return self.suspicious.contains(&callee);
        }
        !returns_by_attribute(call)
    }
}

fn returns_by_attribute(call: Value) -> bool {
    call.call_has_attribute("nounwind") && call.call_has_attribute("willreturn")
}

/// Whether a function has a body here.
pub fn is_definition(function: Value) -> bool {
    llvm!(LLVMIsDeclaration(function.0)) == 0
}

/// Whether the body here is what will run, or one that means the same.
fn is_final(function: Value) -> bool {
    use LLVMLinkage::*;
    !matches!(llvm!(LLVMGetLinkage(function.0)), LLVMWeakAnyLinkage | LLVMLinkOnceAnyLinkage | LLVMExternalWeakLinkage)
}

fn is_jumping_intrinsic(function: Value) -> bool {
    matches!(function.name().as_str(), "llvm.eh.sjlj.longjmp" | "llvm.eh.unwind.init" | "llvm.trap" | "llvm.ubsantrap" | "llvm.debugtrap")
}

/// Assembly that makes a system call (`exit_group`) or leaves by itself. Barriers and arithmetic do not.
fn assembly_transfers_control(assembly: Value) -> bool {
    let leaves = |word: &str| word.starts_with("call") || word.starts_with("jmp") || word.starts_with("ret") || word.starts_with("int");
    assembly
        .assembly_text()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| matches!(word, "syscall" | "sysenter" | "ud2" | "hlt") || leaves(word))
}

/// Whether a call may return a second time without having been called again: `setjmp` and its kin by their attribute, and
/// the calls by which a process becomes two, each of which goes on from there.
pub fn returns_twice(call: Value) -> bool {
    let callee = call.callee();
    let vfork = |name: &str| matches!(name, "vfork" | "__vfork");
    call.call_has_attribute("returns_twice") || forks(call) || (callee.is_function() && vfork(&callee.name()))
}

/// Whether a call makes a process two that have no memory in common.
pub fn forks(call: Value) -> bool {
    let callee = call.callee();
    let is_fork = |name: &str| matches!(name, "fork" | "_Fork" | "__fork" | "__libc_fork" | "forkpty" | "daemon");
    callee.is_function() && is_fork(&callee.name())
}
