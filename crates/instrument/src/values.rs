//! Counting values: where indirect calls go, how much memory operations move.
//!
//! LLVM's own way is a list per place, searched and extended by its runtime. Here a place has a few plain counters of
//! the unit, so that threads and runs add up; which, and what they mean, is said with [`ProfiledValueKind`].

use crate::llvm::{Builder, Module, Value, c_string, llvm};
use indexmap::IndexSet;
use llvm_sys::LLVMIntPredicate::{LLVMIntNE, LLVMIntUGT, LLVMIntULT};
use llvm_sys::core::*;
use llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMVisibility};
use trodden_unit::ProfiledValueKind;
use trodden_unit::edge_profile::{SIZE_CLASSES, TARGET_BUCKETS, TARGET_HASH, size_of_class};

/// The linker's symbol for the beginning of an image.
const IMAGE_START: &str = "__ehdr_start";
/// Targets further away belong to other images.
const MOST_DISTANCE: i64 = 1 << 32;

/// What values a call notes.
pub fn kind(call: Value) -> ProfiledValueKind {
    if call.callee().name().ends_with("_memop") { ProfiledValueKind::Size } else { ProfiledValueKind::Target }
}

/// The number of a place among those of its kind, given LLVM's running number over all kinds and the numbers of places.
pub fn site(kind: ProfiledValueKind, sites: [u16; 3], number: i64) -> Option<u16> {
    let number = u16::try_from(number).ok()?;
    match kind {
        ProfiledValueKind::Target => (number < sites[0]).then_some(number),
        ProfiledValueKind::Size => number.checked_sub(sites[0]).filter(|n| *n < sites[1]),
    }
}

/// The tables that an address may be of, through whatever the optimiser has made of it.
pub fn tables_behind(address: Value) -> Vec<Value> {
    let (mut tables, mut seen, mut stack) = (Vec::new(), IndexSet::from([address]), vec![address]);
    while let Some(value) = stack.pop() {
        let sources: Vec<Value> = match opcode(value) {
            None => {
                tables.push(value);
                continue;
            }
            Some(LLVMOpcode::LLVMPHI) => value.incoming().into_iter().map(|(v, _)| v).collect(),
            Some(_) => (0..llvm!(LLVMGetNumOperands(value.0)) as u32).map(|at| Value(llvm!(LLVMGetOperand(value.0, at)))).collect(),
        };
        stack.extend(sources.into_iter().filter(|s| seen.insert(*s)));
    }
    tables
}

/// The first counter for a call's place: its table's stand-in says where those of the function begin.
pub fn computed_first(module: Module, builder: &Builder, call: Value) -> Value {
    let begin = llvm!(LLVMBuildPtrToInt(builder.raw(), llvm!(LLVMGetOperand(call.0, 1)), module.i64(), c"".as_ptr()));
    let number = llvm!(LLVMBuildZExt(builder.raw(), llvm!(LLVMGetOperand(call.0, 2)), module.i64(), c"".as_ptr()));
    let each = module.constant(i64::from(ProfiledValueKind::Target.counters()));
    let distance = Value(llvm!(LLVMBuildMul(builder.raw(), number, each.0, c"".as_ptr())));
    builder.add(Value(begin), distance)
}

/// Which counters of a place get how much for a value.
pub fn increments(module: Module, builder: &Builder, kind: ProfiledValueKind, value: Value) -> Vec<(Value, Value)> {
    let make = Make { module, builder };
    match kind {
        ProfiledValueKind::Target => make.target(value),
        ProfiledValueKind::Size => vec![(make.class_of_size(value), module.constant(1))],
    }
}

struct Make<'a> {
    module: Module,
    builder: &'a Builder,
}

impl Make<'_> {
    fn target(&self, address: Value) -> Vec<(Value, Value)> {
        let module = self.module;
        let start = llvm!(LLVMBuildPtrToInt(self.builder.raw(), self.image_start().0, module.i64(), c"".as_ptr()));
        let distance = self.sub(address, Value(start));
        let near = self.compare(LLVMIntULT, distance, module.constant(MOST_DISTANCE));
        let distance = self.select(near, distance, module.constant(0));
        let product = Value(llvm!(LLVMBuildMul(self.builder.raw(), distance.0, module.constant(TARGET_HASH as i64).0, c"".as_ptr())));
        let bits = module.constant(i64::from(u64::BITS - TARGET_BUCKETS.ilog2()));
        let bucket = Value(llvm!(LLVMBuildLShr(self.builder.raw(), product.0, bits.0, c"".as_ptr())));
        let calls = self.builder.add(bucket, bucket);
        vec![(calls, module.constant(1)), (self.builder.add(calls, module.constant(1)), distance)]
    }

    /// `n` up to 7; else twice the place of the highest bit, and 2, and 1 if there are lower bits.
    fn class_of_size(&self, size: Value) -> Value {
        let module = self.module;
        let most = module.constant(size_of_class(SIZE_CLASSES - 1) as i64);
        let size = self.select(self.compare(LLVMIntUGT, size, most), most, size);
        let highest = self.sub(module.constant(63), self.leading_zeros(size));
        let lower = Value(llvm!(LLVMBuildAnd(self.builder.raw(), size.0, self.sub(size, module.constant(1)).0, c"".as_ptr())));
        let between = self.compare(LLVMIntNE, lower, module.constant(0));
        let class = self.builder.add(self.builder.add(highest, highest), self.select(between, module.constant(3), module.constant(2)));
        self.select(self.compare(LLVMIntULT, size, module.constant(8)), size, class)
    }

    fn image_start(&self) -> Value {
        let name = c_string(IMAGE_START);
        if let Some(known) = Value::some(llvm!(LLVMGetNamedGlobal(self.module.raw, name.as_ptr()))) {
            return known;
        }
        let start = llvm!(LLVMAddGlobal(self.module.raw, self.module.i8(), name.as_ptr()));
        llvm!(LLVMSetVisibility(start, LLVMVisibility::LLVMHiddenVisibility));
        // An image whose headers are not loaded has no such place: all targets are elsewhere then.
        llvm!(LLVMSetLinkage(start, LLVMLinkage::LLVMExternalWeakLinkage));
        Value(start)
    }

    fn leading_zeros(&self, value: Value) -> Value {
        const NAME: &str = "llvm.ctlz";
        let id = llvm!(LLVMLookupIntrinsicID(NAME.as_ptr().cast(), NAME.len()));
        let mut kinds = [self.module.i64()];
        let function = llvm!(LLVMGetIntrinsicDeclaration(self.module.raw, id, kinds.as_mut_ptr(), 1));
        let defined = llvm!(LLVMConstInt(llvm!(LLVMInt1TypeInContext(self.module.context())), 0, 0));
        let mut words = [value.0, defined];
        let kind = llvm!(LLVMGlobalGetValueType(function));
        Value(llvm!(LLVMBuildCall2(self.builder.raw(), kind, function, words.as_mut_ptr(), 2, c"".as_ptr())))
    }

    fn sub(&self, a: Value, b: Value) -> Value {
        Value(llvm!(LLVMBuildSub(self.builder.raw(), a.0, b.0, c"".as_ptr())))
    }

    fn compare(&self, how: llvm_sys::LLVMIntPredicate, a: Value, b: Value) -> Value {
        Value(llvm!(LLVMBuildICmp(self.builder.raw(), how, a.0, b.0, c"".as_ptr())))
    }

    fn select(&self, condition: Value, yes: Value, no: Value) -> Value {
        Value(llvm!(LLVMBuildSelect(self.builder.raw(), condition.0, yes.0, no.0, c"".as_ptr())))
    }
}

/// What kind of instruction a value is, if it is one.
fn opcode(value: Value) -> Option<LLVMOpcode> {
    (!llvm!(LLVMIsAInstruction(value.0)).is_null()).then(|| value.opcode())
}
