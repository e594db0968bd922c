//! Tests that the wrappers accept valid arguments and reject invalid ones before they call LLVM.

use super::test_module::{block, parse};
use super::{Builder, Module, Type, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};

const TEXT: &str = "
@text = constant [3 x i8] c\"abc\"
@wide = constant i128 5
@other = global ptr @text

declare i64 @g(i64, ptr)

define i64 @f(i64 %a, ptr %p) {
entry:
  %sum = add i64 %a, 1
  br label %next
next:
  %phi = phi i64 [ %sum, %entry ]
  %loaded = load volatile i64, ptr %p
  store i64 %phi, ptr %p
  ret i64 %loaded
}
";

struct TestFunction {
    module: Module,
    function: Value,
    /// The instructions of the function, by name.
    sum: Value,
    phi: Value,
    loaded: Value,
}

fn function() -> TestFunction {
    let module = parse(TEXT);
    let function = module.function("f").unwrap();
    let of = |name: &str| function.blocks().flat_map(|b| b.instructions()).find(|i| i.name() == name).unwrap();
    TestFunction { module, function, sum: of("sum"), phi: of("phi"), loaded: of("loaded") }
}

/// Returns the panic message of a call that must be refused.
fn refusal<T>(call: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(call()))).unwrap_err();
    panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap()
}

#[test]
fn values_of_other_classes_are_refused_by_name() {
    let TestFunction { function, sum, phi, loaded, .. } = function();
    assert_eq!(refusal(|| sum.incoming()), "`%sum = add i64 %a, 1` is not of class PhiNode");
    assert!(refusal(|| sum.successors()).ends_with("is not of class Terminator"));
    assert!(refusal(|| phi.callee()).ends_with("is not of class CallInstruction"));
    assert!(refusal(|| phi.is_volatile()).ends_with("is not of class AccessInstruction"));
    assert!(refusal(|| function.opcode()).ends_with("is not of class AnyInstruction"));
    assert!(refusal(|| loaded.kind().parameters()).ends_with("`i64` is not of class FunctionType"));
    assert_eq!((phi.incoming().len(), loaded.is_volatile(), function.is_call(), sum.condition()), (1, true, false, None));
}

#[test]
fn constants_have_values_if_they_fit() {
    let module = function().module;
    let [text, wide, other] = ["text", "wide", "other"].map(|name| module.global(name).unwrap().initializer().unwrap());
    assert_eq!((text.bytes().as_deref(), wide.bytes(), other.bytes()), (Some(&b"abc"[..]), None, None));
    assert_eq!((module.constant(-2).as_integer(), wide.as_integer(), text.as_integer()), (Some(-2), None, None));
    assert_eq!(module.i8().unsigned(200).as_unsigned(), Some((8, 200)));
}

#[test]
fn indices_out_of_range_are_refused() {
    let TestFunction { function, sum, phi, .. } = function();
    assert_eq!(refusal(|| sum.operand(2)), "`%sum = add i64 %a, 1` has no operand 2");
    assert_eq!((sum.operand_if_any(2), sum.operands().count()), (None, 2));
    assert!(refusal(|| phi.incoming_block(1)).contains("has the entry"));
    let [entry, next] = ["entry", "next"].map(|name| block(function, name));
    assert!(refusal(|| entry.terminator().set_successor(1, next)).contains("has the successor"));
}

#[test]
fn values_of_other_types_are_refused() {
    let TestFunction { module, function, sum, phi, loaded } = function();
    let (byte, pointer) = (module.i8().unsigned(1), function.parameters()[1]);
    assert!(refusal(|| sum.set_operand(0, byte)).contains("keeps its type"));
    assert!(refusal(|| phi.add_incoming(&[(byte, loaded.block())])).contains("of its type"));
    assert!(refusal(|| sum.replace_uses(pointer)).contains("of its type"));
    assert!(refusal(|| byte.replace_uses(byte)).contains("an instruction is replaced"));
    let builder = Builder::before(module, loaded, None);
    assert!(refusal(|| builder.add(sum, byte)).contains("of one type"));
    assert!(refusal(|| builder.add(pointer, pointer)).ends_with("is not of class NumberValue"));
    assert!(refusal(|| builder.call(module.function("g").unwrap(), &[sum])).contains("do not fit `i64 (i64, ptr)`"));
    assert!(refusal(|| Type::function(module.void(), &[module.void()])).contains("parameters may have"));
    builder.call(module.function("g").unwrap(), &[sum, pointer]);
    assert!(function.passes_verifier());
}

#[test]
fn used_instructions_are_not_deleted_and_placed_ones_not_inserted() {
    let TestFunction { module, sum, phi, loaded, .. } = function();
    // SAFETY: the instruction is used, so `erase` panics instead of deleting it.
    assert_eq!(refusal(|| unsafe { sum.erase() }), "`%sum = add i64 %a, 1` is used");
    assert!(refusal(|| Builder::before(module, loaded, None).insert(phi)).contains("in no other block"));
    let copy = sum.duplicate();
    assert!(refusal(|| copy.next()).ends_with("is not of class PlacedInstruction"));
    Builder::before(module, loaded, None).insert(copy);
    assert_eq!(copy.next(), Some(loaded));
    // SAFETY: nothing uses the clone, and its handle is not used after this.
    unsafe { copy.erase() };
}
