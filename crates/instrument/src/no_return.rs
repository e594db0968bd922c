//! Finds calls that may not return, and calls that return twice.
//!
//! A call that exits the program, throws or jumps away leaves the paths of its callers unfinished. Where that can happen, a path is counted
//! as having reached the call ([`trodden_unit::EdgeKind::Reach`]). Each such count costs an instruction, so calls that provably return are
//! exempt: those whose callee LLVM knows to return and not to throw, or whose callee is a function of the module that only makes exempt
//! calls. A signal that ends the program inside a callee is ignored unless the user asks for it (`reach=all`).

use crate::llvm::{Block, Module, Value};
use indexmap::IndexSet;
use llvm_sys::LLVMLinkage;
use llvm_sys::LLVMOpcode;
use std::collections::BTreeSet;
use trodden_unit::tasks::{CallSummary, RETURNS_ATTRIBUTE};

#[derive(Clone)]
pub struct NoReturnAnalysis {
    /// Functions defined in this module that may not return.
    suspicious: IndexSet<Value>,
    /// True if every call is treated as one that may not return.
    all: bool,
    /// True if every call to a function defined in this module is treated as one that may not return.
    defined: bool,
}

impl NoReturnAnalysis {
    /// Analyses all functions of a module. With `all`, every call is treated as one that may not return, because a signal may end the
    /// program during it.
    pub fn new(module: Module, all: bool) -> NoReturnAnalysis {
        let mut known = NoReturnAnalysis { suspicious: IndexSet::new(), all, defined: false };
        if all {
            return known;
        }
        let mut new: Vec<Value> = module.functions().filter(|f| is_definition(*f) && known.may_leave_without_return(*f)).collect();
        known.suspicious.extend(new.iter().copied());
        // Propagate from callees to callers; each function is inserted once.
        while let Some(callee) = new.pop() {
            for call in callee.users().filter(|user| user.is_instruction() && user.is_call() && user.callee() == callee) {
                if known.may_not_return(call) && known.suspicious.insert(call.block().function()) {
                    new.push(call.block().function());
                }
            }
        }
        known
    }

    /// If `defined`, also treats every call to a function defined in this module as one that may not return.
    pub fn with_calls_to_defined_functions(self, defined: bool) -> NoReturnAnalysis {
        NoReturnAnalysis { defined, ..self }
    }

    fn may_leave_without_return(&self, function: Value) -> bool {
        let gives_up =
            |i: &Value| i.is(LLVMOpcode::LLVMResume) || (i.is_call() && (self.may_not_return(*i) || i.call_has_attribute("noreturn")));
        function.blocks().any(|b| b.instructions().any(|i| gives_up(&i)))
    }

    pub fn may_not_return(&self, call: Value) -> bool {
        let callee = call.callee();
        if callee.is_assembly() {
            return assembly_transfers_control(callee);
        }
        if !callee.is_function() {
            return self.all || !returns_by_attribute(call);
        }
        if callee.intrinsic_id() != 0 {
            return is_jumping_intrinsic(callee);
        }
        if self.all || (self.defined && is_definition(callee)) {
            return true;
        }
        if is_definition(callee) && is_body_final(callee) {
            return self.suspicious.contains(&callee);
        }
        !returns_by_attribute(call) && (is_definition(callee) || !callee.has_text_attribute(RETURNS_ATTRIBUTE))
    }
}

/// Summarises which functions return, for the compilation of other units of the same crate.
pub fn summarise_calls(module: Module) -> CallSummary {
    // Other units may show that further callees return. So each function gets the set of callees on whose returning it depends, or `None`
    // if it may not return in any case.
    let analysis = NoReturnAnalysis { suspicious: IndexSet::new(), all: false, defined: false };
    let own: IndexSet<Value> = module.functions().filter(|f| is_definition(*f)).collect();
    let mut needed: Vec<Option<BTreeSet<String>>> = vec![Some(BTreeSet::new()); own.len()];
    let mut callees: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); own.len()];
    let mut called = BTreeSet::new();
    for (at, function) in own.iter().enumerate() {
        for i in function.blocks().flat_map(Block::instructions) {
            let callee = if i.is_call() { Some(i.callee()).filter(|callee| callee.is_function()) } else { None };
            match callee {
                _ if i.is(LLVMOpcode::LLVMResume) || (i.is_call() && i.call_has_attribute("noreturn")) => needed[at] = None,
                Some(callee) if is_definition(callee) && is_body_final(callee) => {
                    _ = callees[at].insert(own.get_index_of(&callee).expect("own"))
                }
                Some(callee) if !is_definition(callee) && callee.intrinsic_id() == 0 && analysis.may_not_return(i) => {
                    called.insert(callee.name());
                    needed[at].iter_mut().for_each(|names| _ = names.insert(callee.name()));
                }
                _ if i.is_call() && analysis.may_not_return(i) => needed[at] = None,
                _ => {}
            }
        }
    }
    propagate_dependencies(&mut needed, &callees);
    let is_known_elsewhere = |f: &Value| f.linkage() == LLVMLinkage::LLVMExternalLinkage;
    let functions = own.iter().zip(needed).filter(|(function, _)| is_known_elsewhere(function));
    CallSummary { returning: functions.filter_map(|(function, names)| Some((function.name(), names?))).collect(), called }
}

/// Adds the names that a callee depends on to those that its callers depend on, until nothing changes.
fn propagate_dependencies(needed: &mut [Option<BTreeSet<String>>], callees: &[BTreeSet<usize>]) {
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); callees.len()];
    for (caller, callees) in callees.iter().enumerate() {
        callees.iter().for_each(|callee| callers[*callee].push(caller));
    }
    let mut changed: Vec<usize> = (0..callees.len()).filter(|at| needed[*at].as_ref().is_none_or(|names| !names.is_empty())).collect();
    while let Some(callee) = changed.pop() {
        let of_callee = needed[callee].clone();
        for &caller in &callers[callee] {
            let Some(names) = &needed[caller] else { continue };
            let new = of_callee.as_ref().map(|of_callee| names | of_callee);
            if new.as_ref() != Some(names) {
                needed[caller] = new;
                changed.push(caller);
            }
        }
    }
}

fn returns_by_attribute(call: Value) -> bool {
    call.call_has_attribute("nounwind") && call.call_has_attribute("willreturn")
}

pub fn is_definition(function: Value) -> bool {
    !function.is_declaration()
}

/// Returns true if the function's body in this module, or an equivalent one, is certain to be the one that runs.
fn is_body_final(function: Value) -> bool {
    use LLVMLinkage::*;
    !matches!(function.linkage(), LLVMWeakAnyLinkage | LLVMLinkOnceAnyLinkage | LLVMExternalWeakLinkage)
}

fn is_jumping_intrinsic(function: Value) -> bool {
    matches!(function.name().as_str(), "llvm.eh.sjlj.longjmp" | "llvm.eh.unwind.init" | "llvm.trap" | "llvm.ubsantrap" | "llvm.debugtrap")
}

/// Returns true if inline assembly makes a system call (which may be `exit_group`), jumps, returns or traps.
fn assembly_transfers_control(assembly: Value) -> bool {
    let leaves = |word: &str| word.starts_with("call") || word.starts_with("jmp") || word.starts_with("ret") || word.starts_with("int");
    assembly
        .assembly_text()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| matches!(word, "syscall" | "sysenter" | "ud2" | "hlt") || leaves(word))
}

/// Returns true if a call may return twice: functions with LLVM's attribute `returns_twice`, such as `setjmp`, and calls that duplicate the
/// process and return once in each.
pub fn returns_twice(call: Value) -> bool {
    let callee = call.callee();
    let vfork = |name: &str| matches!(name, "vfork" | "__vfork");
    call.call_has_attribute("returns_twice") || creates_process(call) || (callee.is_function() && vfork(&callee.name()))
}

/// Returns true if a call creates a second process with a separate address space.
pub fn creates_process(call: Value) -> bool {
    let callee = call.callee();
    let is_fork = |name: &str| matches!(name, "fork" | "_Fork" | "__fork" | "__libc_fork" | "forkpty" | "daemon");
    callee.is_function() && is_fork(&callee.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llvm::test_module::parse;

    const MODULE: &str = "
        declare void @unknown()
        declare void @harmless() #0
        declare void @exit(i32) noreturn
        declare i32 @fork()
        declare i32 @_setjmp(ptr) returns_twice
        define internal void @returns() { call void @harmless() ret void }
        define internal void @ends() { call void @exit(i32 1) unreachable }
        define internal void @may_end(i1 %end) {
          br i1 %end, label %yes, label %no
        yes:
          call void @ends()
          unreachable
        no:
          ret void
        }
        define weak void @replaceable() { ret void }
        define void @calls() {
          call void @unknown()
          call void @harmless()
          call void @returns()
          call void @may_end(i1 true)
          call void @replaceable()
          call void asm \"nop\", \"\"()
          call void asm \"syscall\", \"\"()
          %1 = call i32 @fork()
          %2 = call i32 @_setjmp(ptr null)
          ret void
        }
        attributes #0 = { nounwind willreturn }";

    fn calls(module: Module) -> Vec<Value> {
        module.function("calls").unwrap().blocks().flat_map(|b| b.instructions().collect::<Vec<_>>()).filter(|i| i.is_call()).collect()
    }

    #[test]
    fn calls_return_certainly_if_attributes_or_the_callees_body_prove_it() {
        let module = parse(MODULE);
        let known = NoReturnAnalysis::new(module, false);
        let found: Vec<bool> = calls(module).into_iter().map(|call| known.may_not_return(call)).collect();
        assert_eq!(found, [true, false, false, true, true, false, true, true, true]);
    }

    #[test]
    fn summaries_tell_what_a_functions_return_depends_on() {
        let module = parse(
            "
            declare void @elsewhere()
            declare void @harmless() #0
            define void @leaf() { call void @harmless() ret void }
            define internal void @hidden() { call void @elsewhere() ret void }
            define void @depends() { call void @hidden() call void @leaf() call void @recursive() ret void }
            define void @recursive() { call void @depends() ret void }
            define void @indirect(ptr %f) { call void %f() ret void }
            define void @calls_indirect() { call void @indirect(ptr null) ret void }
            attributes #0 = { nounwind willreturn }",
        );
        let found = summarise_calls(module);
        let names: Vec<(&str, Vec<&str>)> =
            found.returning.iter().map(|(name, needed)| (name.as_str(), needed.iter().map(String::as_str).collect())).collect();
        assert_eq!(names, [("depends", vec!["elsewhere"]), ("leaf", vec![]), ("recursive", vec!["elsewhere"])]);
        assert_eq!(found.called.iter().collect::<Vec<_>>(), ["elsewhere"]);
    }

    #[test]
    fn functions_of_other_units_return_if_they_are_marked() {
        let module = parse(
            "
            declare void @marked() \"trodden-returns\"
            declare void @unknown()
            define void @calls() { call void @marked() call void @unknown() ret void }",
        );
        let known = NoReturnAnalysis::new(module, false);
        let found: Vec<bool> = calls(module).into_iter().map(|call| known.may_not_return(call)).collect();
        assert_eq!(found, [false, true]);
    }

    #[test]
    fn all_calls_of_functions_may_not_return_on_request() {
        let module = parse(MODULE);
        let known = NoReturnAnalysis::new(module, true);
        let found: Vec<bool> = calls(module).into_iter().map(|call| known.may_not_return(call)).collect();
        assert_eq!(found, [true, true, true, true, true, false, true, true, true]);
    }

    #[test]
    fn setjmp_and_fork_return_twice() {
        let module = parse(MODULE);
        let found: Vec<(bool, bool)> = calls(module).into_iter().map(|call| (returns_twice(call), creates_process(call))).collect();
        assert_eq!(found[..7], [(false, false); 7]);
        assert_eq!(found[7..], [(true, true), (true, false)]);
    }
}
