//! Sentences that describe findings and suggest changes to the program.

use crate::escape;
use crate::path_listing;
use crate::view::{Function, file_of, inline_chain};
use crate::words::{base_name, percent, plural};
use trodden_analysis::advise::{
    Advice, AdviceFinding, BranchOutcome, CorrelatedBranches, LoopPattern, LoopPatterns, NeverTogether, RedundantBlock,
};
use trodden_flow::{Edge, Node};
use trodden_unit::{EdgeKind, SourcePosition};

/// Maximum number of instructions that a suggestion may propose to copy.
const MAX_COPIED_INSTRUCTIONS: u64 = 60;
/// Maximum number of branch decisions shown for a pattern.
const MAX_BRANCH_DECISIONS_PER_PATTERN: usize = 8;

/// Returns the source position of a block's branch, or of the block's last instruction if the branch has no position.
pub fn branch_position(function: &Function, block: Node) -> Option<SourcePosition> {
    let block = function.map.blocks.get(block.index())?;
    block.branch.or_else(|| block.positions.last().copied()).filter(|p| p.line > 0)
}

pub fn first_position(function: &Function, block: Node) -> Option<SourcePosition> {
    let found = function.map.blocks.get(block.index())?;
    let whole = found.positions.iter().copied().chain(found.branch).filter(|p| p.line > 0);
    whole.min_by_key(|p| inline_chain(function.unit_map(), *p).iter().map(|p| p.line).collect::<Vec<_>>())
}

/// Formats a position as `line 12`, or as `util.h:12` if it is not in the function's own file. If the position is unknown, returns `block
/// 3`.
pub fn format_position(function: &Function, position: Option<SourcePosition>, block: Node) -> String {
    let Some(position) = position else { return format!("block {}", block.0) };
    let elsewhere = file_of(function.unit_map(), position).filter(|f| function.file().is_some_and(|own| own != *f));
    elsewhere
        .map_or_else(|| format!("line {}", position.line), |file| format!("{}:{}", escape::escape_line(base_name(file)), position.line))
}

pub fn format_branch(function: &Function, block: Node) -> String {
    format_position(function, branch_position(function, block), block)
}

/// Formats where a branch went and where it did not: `→ 14, not 20`.
pub fn format_taken_edge(function: &Function, edge: Edge) -> String {
    path_listing::find_taken_branch(function, edge)
        .map_or_else(|| crate::words::describe_edge_condition(&function.map.graph.edge(edge)), |t| t.text)
}

/// Formats only where the branch went: `→ 14`.
pub fn format_direction(function: &Function, edge: Edge) -> String {
    let turn = format_taken_edge(function, edge);
    turn.split_once(", not ").map_or(turn.clone(), |(taken, _)| taken.to_string())
}

/// Formats a branch's outcomes and their shares, most frequent first: `→ 12 50.1%, → 20 49.9%`.
pub fn format_outcomes(function: &Function, outcomes: &[BranchOutcome]) -> String {
    let total: u64 = outcomes.iter().map(|o| o.count).sum();
    let mut outcomes = outcomes.to_vec();
    outcomes.sort_by_key(|o| std::cmp::Reverse(o.count));
    let words =
        outcomes.iter().take(4).map(|o| format!("{} {}", format_direction(function, o.edge), percent(o.count as f64 / total as f64)));
    let more = if outcomes.len() > 4 { format!(", {} more", outcomes.len() - 4) } else { String::new() };
    format!("{}{more}", words.collect::<Vec<_>>().join(", "))
}

/// Returns the position at which a finding is reported; `None` if it is unknown.
pub fn main_position(function: &Function, finding: &AdviceFinding) -> Option<SourcePosition> {
    match &finding.advice {
        Advice::Correlated(c) => branch_position(function, c.later),
        Advice::Loop(l) => first_position(function, l.head),
        Advice::Redundant(r) => r.repeated.iter().find_map(|x| x.at.position).or_else(|| first_position(function, r.block)),
        Advice::Never(n) => branch_position(function, function.map.graph.from(n.second)),
    }
}

/// Returns the two source lines that a finding relates, in execution order, as (file index, line number). Returns `None` if one of them is
/// unknown.
pub fn related_lines(function: &Function, finding: &AdviceFinding) -> Option<[(u32, u32); 2]> {
    let line = |p: SourcePosition| (p.file, p.line);
    let earlier = match &finding.advice {
        Advice::Correlated(c) => branch_position(function, c.earlier),
        Advice::Loop(_) => main_position(function, finding),
        Advice::Redundant(r) => r.repeated.first().and_then(|x| x.from.first()).and_then(|(site, _)| site.position),
        Advice::Never(n) => branch_position(function, function.map.graph.from(n.first)),
    };
    Some([line(earlier?), line(main_position(function, finding)?)])
}

/// Describes the finding in a clause without a capital letter or full stop.
pub fn describe_finding(function: &Function, finding: &AdviceFinding) -> String {
    match &finding.advice {
        Advice::Correlated(c) => describe_correlated(function, c),
        Advice::Loop(l) => describe_loop(function, l),
        Advice::Redundant(r) => describe_redundant(function, r),
        Advice::Never(n) => describe_never_together(function, n),
    }
}

fn describe_correlated(function: &Function, c: &CorrelatedBranches) -> String {
    let (earlier, later) = (format_branch(function, c.earlier), format_branch(function, c.later));
    let share = percent(c.decided as f64 / c.executions as f64);
    let whole = if c.given.iter().all(|g| g.decides.is_some()) && c.together == c.executions { "all" } else { &share };
    format!("the branch in {later} takes both edges; the branch in {earlier} decides {whole} of its executions")
}

fn describe_loop(function: &Function, l: &LoopPatterns) -> String {
    let head = format_position(function, first_position(function, l.head), l.head);
    let covered: u64 = l.patterns.iter().map(|p| p.count).sum();
    format!(
        "{} of the iterations of the loop in {head} follow {} of {}: {:.2} bits an iteration; its {}, taken independently, have {:.2}",
        percent(covered as f64 / l.iterations as f64),
        l.patterns.len(),
        plural(l.distinct as u128, "pattern", "patterns"),
        l.entropy,
        plural(l.branches as u128, "branch", "branches"),
        l.branches_entropy
    )
}

fn describe_redundant(function: &Function, r: &RedundantBlock) -> String {
    let at = r.repeated.first().and_then(|f| f.at.position).or_else(|| first_position(function, r.block));
    let saved = r.max_saved_instructions() as f64 / (r.repeated.len() as f64 * r.executions as f64);
    let (what, them) =
        if r.repeated.len() == 1 { ("a result is".into(), "it") } else { (format!("{} results are", r.repeated.len()), "them") };
    format!(
        "in {} {what} computed again, though {} of executions already had {them}",
        format_position(function, at, r.block),
        percent(saved)
    )
}

fn describe_never_together(function: &Function, n: &NeverTogether) -> String {
    let [first, second] = [n.first, n.second].map(|e| function.map.graph.from(e));
    format!(
        "{} {} and {} {} were never taken on the same path; if they were independent, they would have been taken together {}",
        format_branch(function, first),
        format_direction(function, n.first),
        format_branch(function, second),
        format_direction(function, n.second),
        plural(n.expected as u128, "time", "times")
    )
}

pub fn suggest_change(function: &Function, finding: &AdviceFinding) -> String {
    match &finding.advice {
        Advice::Correlated(c) => suggest_for_correlated(function, c),
        Advice::Loop(l) => suggest_for_loop(function, l),
        Advice::Redundant(r) => suggest_for_redundant(r),
        Advice::Never(_) => {
            "if the combination is impossible, drop one of the two tests or assert that it cannot occur; otherwise add a test for it".into()
        }
    }
}

/// Returns true if each outcome of the earlier branch that decides the later branch was always followed by the decided outcome.
fn is_always_decided(c: &CorrelatedBranches) -> bool {
    c.given.iter().all(|g| g.decides.is_none() || g.is_certain())
}

fn suggest_for_correlated(function: &Function, c: &CorrelatedBranches) -> String {
    if c.first_iteration {
        let advice = "in the first iteration of a loop: peel that iteration, or enter the loop after the test";
        return format!("{} is decided {advice}", format_branch(function, c.later));
    }
    let stretch = format!(
        "{} ({})",
        plural(c.stretch.blocks.len() as u128, "block", "blocks"),
        plural(c.stretch.instructions.into(), "instruction", "instructions")
    );
    if c.last_iteration {
        return format!(
            "{} {} whether {} leaves its loop: leave the loop there, peel the last iteration, or copy the {stretch} between them for each \
                case",
            format_branch(function, c.earlier),
            if is_always_decided(c) { "already decides" } else { "nearly always decides" },
            format_branch(function, c.later)
        );
    }
    if let Some(block) = c.stretch.obstacle {
        return format!("merge both decisions in the source; the {stretch} between them cannot be copied (block {})", block.0);
    }
    let keep = if is_always_decided(c) { "" } else { "; keep the second test on the path that does not decide it" };
    match c.stretch.instructions {
        long if long > MAX_COPIED_INSTRUCTIONS => format!(
            "merge both decisions in the source, or use a table indexed by both conditions; the {stretch} between them are too long to \
                copy{keep}"
        ),
        _ => {
            let deciding: Vec<String> =
                c.given.iter().filter(|g| g.decides.is_some()).map(|g| format_direction(function, g.edge)).collect();
            format!(
                "thread the jump: copy the {stretch} after {} {} so that the second test is not needed there, or decide both in the \
                    first test{keep}",
                format_branch(function, c.earlier),
                deciding.join(" and ")
            )
        }
    }
}

fn suggest_for_loop(function: &Function, l: &LoopPatterns) -> String {
    let top_share = l.patterns.first().map_or(0.0, |p| p.count as f64 / l.iterations as f64);
    if let Some(split) = l.split {
        let at = format_branch(function, split.block);
        return format!(
            "test {at} first and write one body for each outcome ({:.2} of {:.2} bits remain then); if the condition cannot change \
                within the loop, move it out and write two loops",
            split.remaining, l.entropy
        );
    }
    if top_share >= 0.8 {
        return "write the most frequent pattern as straight code that jumps to the general body at the first other outcome \
            (`__builtin_expect` along it)"
            .into();
    }
    if l.patterns.len() <= 4 {
        return format!(
            "select {} with one switch over a value computed from the conditions, and write a body for each",
            if l.patterns.len() == 1 { "the one pattern".to_owned() } else { format!("the {} patterns", l.patterns.len()) }
        );
    }
    "several of its branches test the same condition: test it once per iteration and keep the result".into()
}

fn suggest_for_redundant(r: &RedundantBlock) -> String {
    let constant = r.repeated.iter().all(|x| x.constant > x.found);
    match (constant, r.unavoidable) {
        (true, _) => {
            "the operands are constant on these paths: duplicate the block for them, so that the compiler can fold the results".into()
        }
        (false, true) => {
            "keep the result in a local variable if the intervening writes cannot change it (`restrict`, `const`, a copy before \
                the loop)"
                .into()
        }
        (false, false) => "keep the result in a local variable on the frequent paths, and compute it on the other paths only".into(),
    }
}

/// Formats a pattern as its branch decisions, followed by how the iteration ends: `12 → 14, 20 case 3; next iteration`.
pub fn format_pattern(function: &Function, l: &LoopPatterns, pattern: &LoopPattern) -> String {
    let is_decision = |e: &&Edge| {
        let kind = function.map.graph.kind(**e);
        !matches!(kind, EdgeKind::Always | EdgeKind::Normal) && path_listing::find_taken_branch(function, **e).is_some()
    };
    let decisions: Vec<&Edge> = pattern.edges.iter().filter(is_decision).collect();
    let decision_text = |e: &Edge| {
        let from = branch_position(function, function.map.graph.from(*e));
        format!("{} {}", from.map_or_else(|| "?".into(), |p| p.line.to_string()), format_direction(function, *e))
    };
    let mut words: Vec<String> = decisions.iter().take(MAX_BRANCH_DECISIONS_PER_PATTERN).map(|e| decision_text(e)).collect();
    if decisions.len() > MAX_BRANCH_DECISIONS_PER_PATTERN {
        words.push(format!("{} more", decisions.len() - MAX_BRANCH_DECISIONS_PER_PATTERN));
    }
    let back = pattern.edges.last().is_some_and(|e| function.map.graph.to(*e) == l.head);
    format!("{}; {}", words.join(", "), if back { "next iteration" } else { "exits the loop" })
}
