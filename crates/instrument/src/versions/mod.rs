//! Gives functions several versions of their code, which the [sampling](crate::sample) and [residual](crate::residual) tiers,
//! [transformations](crate::transform) and [supergraphs](crate::supergraph) are based on. [`copies`] creates the blocks of a further
//! version, and [`ssa`] merges values where versions meet.

pub mod copies;
pub mod ssa;

use crate::describe::{EdgeInsertionSite, FunctionCfg};
use crate::llvm::{Block, Module, Value};
use crate::shape::move_to_new_block;
use copies::CopyMapping;
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;

/// Returns the reason why a function cannot have two versions; `None` if it can.
pub fn reason_not_to_double(function: Value) -> Option<&'static str> {
    let mut instructions = function.blocks().flat_map(|b| b.instructions().collect::<Vec<_>>());
    instructions.find_map(|i| match i.opcode() {
        LLVMOpcode::LLVMCallBr => Some("it is not sampled: it contains inline assembly that jumps"),
        _ if i.is_call() && i.call_has_attribute("returns_twice") => {
            Some("it is not sampled: it calls a function that returns twice (setjmp)")
        }
        _ if i.is_call() && i.call_has_attribute("noduplicate") => {
            Some("it is not sampled: it contains a call that must not be duplicated")
        }
        _ if i.is_token() => Some("it is not sampled: it contains token values, which cannot be merged"),
        _ => None,
    })
}

pub fn cfg_of_copies(cfg: &FunctionCfg, copies: &CopyMapping) -> FunctionCfg {
    let site = |site: &EdgeInsertionSite| match site {
        EdgeInsertionSite::Before(i) => EdgeInsertionSite::Before(copies.value(*i)),
        EdgeInsertionSite::BeforeThenHead(i) => EdgeInsertionSite::BeforeThenHead(copies.value(*i)),
        other => other.clone(),
    };
    FunctionCfg {
        nodes: cfg.nodes.iter().map(|n| n.map(|b| copies.block(b))).collect(),
        sites: cfg.sites.iter().map(site).collect(),
        ..cfg.clone()
    }
}

/// Returns the targets of a function's indirect branches.
pub fn indirect_branch_targets(function: Value) -> Vec<Block> {
    let jumps = function.blocks().map(Block::terminator).filter(|t| t.is(LLVMOpcode::LLVMIndirectBr));
    let targets: IndexSet<Block> = jumps.flat_map(Value::successors).collect();
    // The blocks are not returned in the order of `targets`, which depends on addresses and so differs from run to run.
    function.blocks().filter(|b| targets.contains(b)).collect()
}

/// Splits the given targets of indirect branches: everything but the phi nodes moves to a new block. Returns each target with its new
/// block.
pub fn split_landings(module: Module, landings: &[Block], cfg: &mut FunctionCfg) -> Vec<(Block, Block)> {
    let mut parts = Vec::new();
    for &landing in landings {
        let body = move_to_new_block(module, landing);
        cfg.nodes.iter_mut().filter(|n| **n == Some(landing)).for_each(|n| *n = Some(body));
        parts.push((landing, body));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::copies::{CopiedLinePolicy, CopyMapping};
    use super::ssa::{VersionDefinitions, VersionSsaRepair};
    use super::*;
    use crate::llvm::test_module::{block, parse};
    use indexmap::IndexMap;

    /// A loop that contains a diamond, and whose values are used after it.
    const LOOP: &str = "
        define i32 @f(i32 %n) {
        entry:
          br label %head
        head:
          %i = phi i32 [ 0, %entry ], [ %next, %latch ]
          %sum = phi i32 [ 0, %entry ], [ %more, %latch ]
          %odd = trunc i32 %i to i1
          br i1 %odd, label %left, label %latch
        left:
          %product = mul i32 %i, %n
          br label %latch
        latch:
          %added = phi i32 [ %product, %left ], [ %i, %head ]
          %more = add i32 %sum, %added
          %next = add i32 %i, 1
          %again = icmp slt i32 %next, %n
          br i1 %again, label %head, label %done
        done:
          ret i32 %more
        }";

    #[test]
    fn copies_refer_to_copies() {
        let module = parse(LOOP);
        let function = module.function("f").unwrap();
        let blocks: Vec<Block> = function.blocks().collect();
        let copies = CopyMapping::new(module, &blocks, function, &IndexMap::new(), CopiedLinePolicy::Keep);
        let pairs = copies.pairs(&blocks);
        assert_eq!(pairs.len(), blocks.iter().map(|b| b.instructions().count()).sum::<usize>());
        for (original, copy) in pairs {
            assert_eq!((copy.opcode(), copies.original(copy), copy.block()), (original.opcode(), original, copies.block(original.block())));
            if original.is(LLVMOpcode::LLVMPHI) {
                let expected: Vec<_> = original.incoming().iter().map(|(v, b)| (copies.value(*v), copies.block(*b))).collect();
                assert_eq!(copy.incoming(), expected);
            } else {
                if original == original.block().terminator() {
                    let targets: Vec<_> = original.successors().iter().map(|b| copies.block(*b)).collect();
                    assert_eq!(copy.successors(), targets);
                }
                let values = |i: Value| i.operands().filter(|o| o.is_instruction()).collect::<Vec<_>>();
                assert_eq!(values(copy), values(original).into_iter().map(|v| copies.value(v)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn values_of_two_versions_are_merged_where_the_versions_meet() {
        // The use in `join` only refers to the value of one version, as is the case after copying.
        let module = parse(
            "declare i32 @g()
            define i32 @f(i1 %c) {
            entry:
              br i1 %c, label %one, label %other
            one:
              %a = call i32 @g()
              br label %join
            other:
              %b = call i32 @g()
              br label %join
            join:
              br i1 %c, label %again, label %done
            again:
              br label %done
            done:
              ret i32 %a
            }",
        );
        let function = module.function("f").unwrap();
        assert!(!function.passes_verifier());
        let [one, other, join, done] = ["one", "other", "join", "done"].map(|name| block(function, name));
        let [a, b] = [one, other].map(|block| block.instructions().next().unwrap());
        let mut flow = VersionSsaRepair::new(module, function, &[join].into_iter().collect());
        flow.merge(&[vec![a, b]], VersionDefinitions::Arbitrary);
        assert!(function.passes_verifier());
        let phi = join.phis().next().expect("the versions meet here");
        let incoming = phi.incoming();
        assert!(incoming.len() == 2 && incoming.contains(&(a, one)) && incoming.contains(&(b, other)));
        assert_eq!((done.phis().count(), done.terminator().operand(0)), (0, phi));
    }
}
