//! Advice as JSON. The user guide documents the schema.

use super::{RankedAdvice, ShownAdvice, words as say};
use crate::json::{SCHEMA_VERSION, number};
use crate::source::SourceCache;
use crate::view::{Function, ProfileView, file_of, inline_chain};
use serde_json::{Value, json};
use trodden_analysis::advise::{Advice, BranchOutcome, CorrelatedBranches, LoopPatterns, NeverTogether, OperationSite, RedundantBlock};
use trodden_flow::{Edge, Node};
use trodden_unit::SourcePosition;
use trodden_unit::experiment::Spelling;

/// Returns the output of `trodden advise --json`.
pub fn advice_json(view: &ProfileView, advice: &ShownAdvice, sources: &SourceCache) -> Value {
    let findings = advice.savings.iter().chain(&advice.others).enumerate();
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "advice",
        "run": crate::json::run_json(&view.profile.run),
        "instructions": number(view.totals.instructions),
        "functions_analysed": advice.functions,
        "functions_without_bitcode": advice.without_bitcode.iter().map(|f| f.name.full.as_str()).collect::<Vec<_>>(),
        "findings_found": advice.found.0 + advice.found.1,
        "findings": findings.map(|(at, ranked)| finding_json(at + 1, ranked, sources)).collect::<Vec<_>>(),
        "damaged": view.corrupt,
    })
}

fn finding_json(rank: usize, ranked: &RankedAdvice, sources: &SourceCache) -> Value {
    let function = ranked.function;
    let evidence = EvidenceWriter { function, sources };
    json!({
        "rank": rank,
        "kind": ranked.finding.kind().name(),
        "function": function.name.full,
        "linkage_name": function.name.linkage,
        "image": function.image.path,
        "file": function.file(),
        "saves_instructions": number(ranked.finding.saves),
        "saves_share": ranked.share,
        "copies": ranked.copies,
        "summary": say::describe_finding(function, &ranked.finding),
        "suggestion": say::suggest_change(function, &ranked.finding),
        "evidence": match &ranked.finding.advice {
            Advice::Correlated(c) => evidence.correlated_json(c),
            Advice::Loop(l) => evidence.loop_json(l),
            Advice::Redundant(r) => evidence.redundant_json(r),
            Advice::Never(n) => evidence.never_together_json(n),
        },
    })
}

struct EvidenceWriter<'t> {
    function: &'t Function<'t>,
    sources: &'t SourceCache<'t>,
}

impl EvidenceWriter<'_> {
    fn correlated_json(&self, c: &CorrelatedBranches) -> Value {
        let given = c.given.iter().map(|g| {
            json!({
                "edge": self.edge_json(g.edge),
                "executions": number(g.count),
                "outcomes": self.outcomes_json(&g.outcomes),
                "decides": g.decides.map(|e| self.edge_json(e)),
            })
        });
        json!({
            "earlier": self.branch_json(c.earlier),
            "later": self.branch_json(c.later),
            "executions": number(c.executions),
            "executions_after_earlier": number(c.together),
            "decided": number(c.decided),
            "outcomes": self.outcomes_json(&c.outcomes),
            "otherwise": self.outcomes_json(&c.otherwise),
            "given": given.collect::<Vec<_>>(),
            "entropy_bits": c.entropy,
            "information_bits": c.information,
            "bits_remaining_after_whole_path": c.entropy_after_path,
            "first_iteration": c.first_iteration,
            "last_iteration": c.last_iteration,
            "between": {
                "blocks": c.stretch.blocks.iter().map(|b| b.0).collect::<Vec<_>>(),
                "instructions": number(c.stretch.instructions),
                "can_be_copied": c.stretch.obstacle.is_none(),
            },
        })
    }

    fn loop_json(&self, l: &LoopPatterns) -> Value {
        let pattern = |p: &trodden_analysis::advise::LoopPattern| {
            json!({
                "edges": p.edges.iter().map(|e| e.0).collect::<Vec<_>>(),
                "iterations": number(p.count),
                "text": say::format_pattern(self.function, l, p),
            })
        };
        json!({
            "head": self.position_json(say::first_position(self.function, l.head), l.head),
            "iterations": number(l.iterations),
            "returns_to_head": number(l.returns_to_head),
            "distinct_patterns": l.distinct,
            "patterns": l.patterns.iter().map(pattern).collect::<Vec<_>>(),
            "entropy_bits": l.entropy,
            "branches": l.branches,
            "branches_entropy_bits": l.branches_entropy,
            "split": l.split.map(|s| json!({ "branch": self.branch_json(s.block), "remaining_bits": s.remaining })),
        })
    }

    fn redundant_json(&self, r: &RedundantBlock) -> Value {
        let site = |s: &OperationSite| self.position_json(s.position, s.block);
        let repeated = |x: &trodden_analysis::advise::RepeatedComputation| {
            json!({
                "operation": x.operation,
                "at": site(&x.at),
                "found": number(x.found),
                "constant": number(x.constant),
                "from": x.from.iter().map(|(s, n)| json!({ "at": site(s), "executions": number(*n) })).collect::<Vec<_>>(),
            })
        };
        json!({
            "block": self.branch_json(r.block),
            "earlier": self.branch_json(r.earlier),
            "executions": number(r.executions),
            "on_every_path": r.unavoidable,
            "repeated": r.repeated.iter().map(repeated).collect::<Vec<_>>(),
        })
    }

    fn never_together_json(&self, n: &NeverTogether) -> Value {
        json!({
            "first": self.edge_json(n.first),
            "second": self.edge_json(n.second),
            "first_executions": number(n.first_count),
            "second_executions": number(n.second_count),
            "second_branch_executions": number(n.executions),
            "second_branch_executions_after_first": number(n.after_first),
            "expected": n.expected,
            "surprise_log10": n.surprise.is_finite().then_some(n.surprise),
        })
    }

    fn outcomes_json(&self, outcomes: &[BranchOutcome]) -> Vec<Value> {
        outcomes.iter().map(|o| json!({ "edge": self.edge_json(o.edge), "executions": number(o.count) })).collect()
    }

    fn edge_json(&self, edge: Edge) -> Value {
        let flow = self.function.map.graph.edge(edge);
        let text = say::format_taken_edge(self.function, edge);
        json!({ "edge": edge.0, "from": self.branch_json(flow.from), "to_block": flow.to.0, "text": text })
    }

    fn branch_json(&self, block: Node) -> Value {
        self.position_json(say::branch_position(self.function, block), block)
    }

    fn position_json(&self, position: Option<SourcePosition>, block: Node) -> Value {
        let mut out = json!({ "block": block.0 });
        let map = self.function.unit_map();
        let Some(at) = position else { return out };
        out["file"] = json!(file_of(map, at));
        out["line"] = json!(at.line);
        out["column"] = json!(at.column);
        out["source"] = json!(file_of(map, at).and_then(|f| self.sources.line(f, at.line)));
        let calls = inline_chain(map, at);
        if calls.len() > 1 {
            out["called_from"] = calls[..calls.len() - 1].iter().map(|p| json!({ "file": file_of(map, *p), "line": p.line })).collect();
        }
        out
    }
}
