//! Builds versions of functions that take the context of their first path (a number that stands for the caller's path) as an argument, for
//! counting segments, paths that continue across calls. Source: K. Vaswani,
//! *Efficient Online Path Profiling*, sections 3.4.3 to 3.4.5, figures 3.12 and 3.14. There, at calls that belong to segments, the callee's
//! graph is inlined into the caller's to form a supergraph, in the program or only in the analysis. Here [`choose_versions`] decides for
//! each call whether to inline the callee, to call a copy, or neither (then the context goes through a thread-local word,
//! [`crate::segments`]). A copy takes its context as an argument and holds it above the bits of the path number, so that the caller's path,
//! the call and the callee's path are counted once, where the callee's path ends. Copies get probes like the original, [`calls`] redirects
//! calls to them, and LLVM inlines those that are called once. A function is not counted itself if all calls that belong to segments lead
//! to its copies.

pub mod calls;
pub mod version;

use crate::attributes::declare_with_attributes_of;
use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::llvm::{Block, Module, TargetMachine, Type, Value};
use crate::passes::run_on_module;
use crate::segments::SegmentPlan;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use crate::versions::{cfg_of_copies, reason_not_to_double};
use calls::can_redirect;
use indexmap::IndexMap;
use llvm_sys::{LLVMLinkage, LLVMOpcode};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use trodden_flow::selective_inlining::{CandidateCall, InliningCandidate, InliningChoice, VersionKind, choose_versions};
use trodden_unit::SegmentSet;
use version::{ContextSource, SegmentVersion, VersionTarget};

/// A function to which segments belong, before anything is inserted.
#[derive(Clone, Copy)]
pub struct FunctionWithSegments<'a> {
    pub function: Value,
    /// The function's index in the segment set.
    pub number: u32,
    pub cfg: &'a FunctionCfg,
    pub plan: &'a SegmentPlan,
    /// Estimated number of calls to the function.
    pub entries: f64,
}

pub struct Supergraph {
    module: Module,
    versions: Vec<SegmentVersion>,
    /// Indices of the versions of each function. The first is the original.
    of_function: Vec<Vec<usize>>,
}

impl Supergraph {
    /// Chooses the versions of all functions and creates them, without probes.
    pub fn new(module: Module, source: &str, set: &SegmentSet, functions: &[FunctionWithSegments]) -> Supergraph {
        let sites = RedirectableCalls::from_functions(functions);
        let budget = u128::from(module_size(module)) * u128::from(set.max_growth_percent()) / 100;
        let choice = choose_versions(&sites.candidates, set.depth(), u64::try_from(budget).unwrap_or(u64::MAX));
        let mut codes: Vec<Value> = functions.iter().map(|f| f.function).collect();
        for (at, version) in choice.versions.iter().enumerate().skip(functions.len()) {
            codes.push(declare_version(module, functions[version.function].function, at, version.kind));
        }
        let by_word = sites.functions_reading_word(source, set, functions, &choice);
        let mut work = Supergraph { module, versions: Vec::new(), of_function: vec![Vec::new(); functions.len()] };
        for (at, version) in choice.versions.iter().enumerate() {
            let on = functions[version.function];
            let context_source = match version.kind {
                VersionKind::Own if by_word.contains(&version.function) => ContextSource::Word,
                VersionKind::Own => ContextSource::None,
                _ => ContextSource::Argument,
            };
            let copies = (version.kind != VersionKind::Own).then(|| copy_function_body(module, on.function, codes[at]));
            let cfg = copies.as_ref().map_or_else(|| on.cfg.clone(), |copies| cfg_of_copies(on.cfg, copies));
            let target = |(call, site): (usize, &RedirectableCall)| {
                let version = codes[choice.target(&sites.candidates, at, call)?];
                Some(((site.call, site.number), VersionTarget { version, guard: site.guard }))
            };
            let targets = sites.of_function[version.function].iter().enumerate().filter_map(target).collect();
            work.of_function[version.function].push(at);
            let redirections = RefCell::new(Vec::new());
            work.versions.push(SegmentVersion { code: codes[at], context_source, cfg, kind: version.kind, copies, targets, redirections });
        }
        work
    }

    /// Returns the versions of a function. `function` is its index in the list that `new` got.
    pub fn of_function(&self, function: usize) -> impl Iterator<Item = &SegmentVersion> {
        self.of_function[function].iter().map(|at| &self.versions[*at])
    }

    /// Redirects the recorded calls, and inlines versions that are called once. Returns, for each function, the remaining copies, the
    /// number of inlined calls, and the number of calls to copies.
    pub fn inline_versions(self, machine: TargetMachine) -> Result<Vec<VersionSummary>, InstrumentError> {
        let module = self.module;
        for version in &self.versions {
            // Instrumented code writes memory. If the attribute remained, LLVM might delete calls to the version as dead.
            version.code.remove_attribute("memory");
            version.redirect_calls(module);
        }
        let mut summaries: Vec<VersionSummary> = self.of_function.iter().map(|_| VersionSummary::default()).collect();
        let copies = self.of_function.iter().enumerate().flat_map(|(f, versions)| versions.iter().map(move |v| (f, *v)));
        let copies = copies.map(|(f, v)| (f, self.versions[v].code.name(), self.versions[v].kind));
        let copies: Vec<(usize, String, VersionKind)> = copies.filter(|(.., kind)| *kind != VersionKind::Own).collect();
        if copies.iter().any(|(.., kind)| *kind != VersionKind::Duplicate) {
            // SAFETY: after the pass, versions are found by name. Other handles that are still used are to functions that the pass does not
            // delete.
            unsafe { run_on_module(module, machine, "always-inline")? };
        }
        for (function, name, kind) in copies {
            let left = module.function(&name);
            let calls = left.map_or(0, |code| code.users().count());
            match left {
                // SAFETY: nothing uses the copy, and its handle in `versions` is not used after the inlining.
                Some(code) if calls == 0 => unsafe { code.delete_function() },
                Some(code) => summaries[function].copies.push(code),
                None => {}
            }
            match kind {
                VersionKind::Duplicate => summaries[function].duplicated += calls as u32,
                _ if calls > 0 => summaries[function].duplicated += calls as u32,
                _ => summaries[function].inlined += 1,
            }
        }
        Ok(summaries)
    }
}

#[derive(Debug, Default)]
pub struct VersionSummary {
    pub copies: Vec<Value>,
    pub inlined: u32,
    pub duplicated: u32,
}

/// A call that belongs to segments and can be redirected to a copy of its callee.
struct RedirectableCall {
    call: Value,
    /// The callee's index in the segment set.
    number: u32,
    guard: Option<Value>,
}

/// The calls of each function that can be redirected, and the same as input of [`choose_versions`].
struct RedirectableCalls {
    of_function: Vec<Vec<RedirectableCall>>,
    candidates: Vec<InliningCandidate>,
}

impl RedirectableCalls {
    fn from_functions(functions: &[FunctionWithSegments]) -> RedirectableCalls {
        let by_number: HashMap<u32, usize> = functions.iter().enumerate().map(|(at, f)| (f.number, at)).collect();
        let can_be_copied: Vec<bool> = functions.iter().map(|f| reason_not_to_copy(f.function).is_none()).collect();
        let mut sites = RedirectableCalls { of_function: Vec::new(), candidates: Vec::new() };
        for on in functions {
            let size = on.cfg.blocks.iter().map(|b| u64::from(b.instructions)).sum();
            let (mut own, mut candidate) = (Vec::new(), InliningCandidate { size, entries: on.entries, calls: Vec::new() });
            for call in on.plan.calls() {
                let Some(&callee) = by_number.get(&call.callee).filter(|at| can_be_copied[**at]) else { continue };
                let function = functions[callee].function;
                if can_redirect(call.call, function) && !(call.is_indirect && call.ends_function) {
                    let guard = call.is_indirect.then_some(function);
                    own.push(RedirectableCall { call: call.call, number: call.callee, guard });
                    candidate.calls.push(CandidateCall { callee, executions: call.executions });
                }
            }
            sites.of_function.push(own);
            sites.candidates.push(candidate);
        }
        sites
    }

    /// Returns the functions that read their context from the thread-local word, because another unit calls them, or a version whose call
    /// is not redirected to a copy.
    fn functions_reading_word(
        &self,
        source: &str,
        set: &SegmentSet,
        functions: &[FunctionWithSegments],
        choice: &InliningChoice,
    ) -> BTreeSet<usize> {
        let by_number: HashMap<u32, usize> = functions.iter().enumerate().map(|(at, f)| (f.number, at)).collect();
        let is_elsewhere = |number: u32| set.functions()[number as usize].unit != source;
        let from_elsewhere = |f: &FunctionWithSegments| set.functions()[f.number as usize].contexts.iter().any(|c| is_elsewhere(c.caller));
        let mut found: BTreeSet<usize> = functions.iter().enumerate().filter(|(_, f)| from_elsewhere(f)).map(|(at, _)| at).collect();
        for (at, version) in choice.versions.iter().enumerate() {
            let sites = &self.of_function[version.function];
            let by_argument = |call: &Value, number: u32| {
                let site = sites.iter().position(|s| s.call == *call && s.number == number);
                site.is_some_and(|site| choice.target(&self.candidates, at, site).is_some())
            };
            let calls = functions[version.function].plan.calls();
            found.extend(calls.filter(|c| !by_argument(&c.call, c.callee)).filter_map(|c| by_number.get(&c.callee).copied()));
        }
        found
    }
}

/// Returns the reason why a function cannot be copied; `None` if it can.
fn reason_not_to_copy(function: Value) -> Option<&'static str> {
    let linkage = function.linkage();
    let may_be_replaced = !matches!(
        linkage,
        LLVMLinkage::LLVMExternalLinkage
            | LLVMLinkage::LLVMInternalLinkage
            | LLVMLinkage::LLVMPrivateLinkage
            | LLVMLinkage::LLVMLinkOnceODRLinkage
            | LLVMLinkage::LLVMWeakODRLinkage
    );
    let is_variadic = function.value_type().is_variadic();
    let is_special = function.has_attribute("naked") || function.has_attribute("alwaysinline");
    if may_be_replaced || is_variadic || is_special {
        return Some("the linker may replace it, or its attributes require special treatment");
    }
    let is_odd = |i: &Value| match i.opcode() {
        LLVMOpcode::LLVMIndirectBr => true,
        _ => i.is_call() && (crate::describe::is_must_tail(*i) || depends_on_frame(i.callee()) || defines_label(i.callee())),
    };
    let odd = function.blocks().any(|b| b.instructions().any(|i| is_odd(&i)));
    reason_not_to_double(function).or(odd.then_some("its code depends on its address or frame"))
}

/// Returns true if a callee is an intrinsic whose result depends on the frame of its caller.
fn depends_on_frame(callee: Value) -> bool {
    const NAMES: [&str; 7] = ["returnaddress", "frameaddress", "addressofreturnaddress", "sponentry", "localescape", "localrecover", "eh."];
    let name = callee.name();
    callee.intrinsic_id() != 0
        && NAMES.iter().any(|n| name.strip_prefix("llvm.").is_some_and(|rest| rest.starts_with(n)))
        && name != "llvm.eh.typeid.for"
        && !name.starts_with("llvm.eh.typeid.for.")
}

/// Returns true if inline assembly may define a label. Labels must be unique, so such code cannot be copied.
fn defines_label(callee: Value) -> bool {
    callee.is_assembly() && callee.assembly_text().contains(':')
}

fn module_size(module: Module) -> u64 {
    module.functions().flat_map(Value::blocks).map(|b| b.instructions().count() as u64).sum()
}

/// Declares a version of a function with the context as an additional last argument.
fn declare_version(module: Module, function: Value, number: usize, kind: VersionKind) -> Value {
    let old = function.value_type();
    let new = Type::function(old.result(), &[old.parameters(), vec![module.i64()]].concat());
    let code = declare_with_attributes_of(module, function, &format!("{}.segments.{number}", function.name()), new);
    code.place_in_section_of(function);
    if kind != VersionKind::Duplicate {
        ["noinline", "optnone"].iter().for_each(|name| code.remove_attribute(name));
        code.add_attribute(module.context(), "alwaysinline");
    }
    code
}

fn copy_function_body(module: Module, function: Value, code: Value) -> CopyMapping {
    let known: IndexMap<Value, Value> = function.parameters().into_iter().zip(code.parameters()).collect();
    let blocks: Vec<Block> = function.blocks().collect();
    CopyMapping::new(module, &blocks, code, &known, CopiedLinePolicy::Drop)
}
