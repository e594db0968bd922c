//! Renders hot loops as text.

use super::pair::InstructionPair;
use super::{HotBlock, HotLoop, LoopCodePlace, LoopsDocument};
use std::fmt::Write;
use trodden_report::escape;
use trodden_report::paint::{COUNT, DIM, NAME, OTHER_OUTCOME, Painter, TITLE, truncate_text, width};
use trodden_report::words::plural;

const MAX_COLUMN_WIDTH: usize = 46;

pub fn render_loops(answer: &LoopsDocument, blocks: usize, color: bool) -> String {
    let painter = Painter { color };
    if answer.loops.is_empty() {
        return "No loop was executed.\n".into();
    }
    let mut out = String::new();
    for (number, one) in (1..).zip(&answer.loops) {
        append_loop(&mut out, painter, number, one, blocks);
    }
    let _ = writeln!(
        out,
        "Left column: without counting; right column: with counting. + marks instructions only on the right, - only on the left. Both are\n\
         weighted by the same run; the parts of a split block count as executed whole."
    );
    out
}

fn append_loop(out: &mut String, painter: Painter, number: usize, one: &HotLoop, max_blocks: usize) {
    let line = one.line.map_or(String::new(), |l| format!(", line {l}"));
    let _ = writeln!(
        out,
        "{} {}  ({}{line}; block {})",
        painter.paint(TITLE, &format!("{number}.")),
        painter.paint(NAME, &one.function),
        escape::escape_line(&one.source),
        one.header
    );
    let _ = writeln!(out, "   {} iterations, {:.1} % of the program's instructions", one.iterations, one.share * 100.0);
    let sum = format!("{:.2} -> {:.2}", one.plain, one.counted);
    let more = one.counted - one.plain;
    let part = if one.plain > 0.0 { format!(", {:+.1} %", more / one.plain * 100.0) } else { String::new() };
    let _ = writeln!(out, "   machine instructions per iteration: {}  ({more:+.2}{part})\n", painter.paint(COUNT, &sum));
    let shown = select_hottest_blocks(&one.blocks, max_blocks);
    shown.iter().for_each(|block| append_block(out, painter, one, block));
    if shown.len() < one.blocks.len() {
        let more = plural((one.blocks.len() - shown.len()) as u128, "block or edge that executes", "blocks and edges that execute");
        let _ = writeln!(out, "   ... and {more} less (--blocks)\n");
    }
}

/// Returns the blocks with the most executed machine instructions, in layout order.
fn select_hottest_blocks(blocks: &[HotBlock], max_blocks: usize) -> Vec<&HotBlock> {
    let weight = |b: &HotBlock| u128::from(b.plain_executions.max(b.counted_executions)) * b.lines.len() as u128;
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(weight(&blocks[*at])));
    order.truncate(max_blocks);
    order.sort_unstable();
    order.into_iter().map(|at| &blocks[at]).collect()
}

fn append_block(out: &mut String, painter: Painter, of: &HotLoop, block: &HotBlock) {
    let what = match block.place {
        LoopCodePlace::Block(block) => format!("block {block}"),
        LoopCodePlace::Edge(from, to) => format!("edge {from} -> {to}"),
        LoopCodePlace::Landing(to) => format!("indirect branches to block {to}"),
    };
    let line = block.line.map_or(String::new(), |l| format!(", line {l}"));
    let per = |executions: u64| executions as f64 / of.iterations.max(1) as f64;
    let counts = |side: fn(&InstructionPair) -> bool| block.lines.iter().filter(|l| side(l)).count();
    let (plain, counted) = (counts(|l| l.plain.is_some()), counts(|l| l.counted.is_some()));
    let times = match (per(block.plain_executions), per(block.counted_executions)) {
        (left, right) if left == right => format!("{left:.3}"),
        (left, right) => format!("{left:.3} -> {right:.3}"),
    };
    let _ = writeln!(out, "   {what}{line}: {times} times per iteration, {plain} -> {counted} instructions");
    let widest = block.lines.iter().filter_map(|l| l.plain.as_deref()).map(width).max().unwrap_or(0).min(MAX_COLUMN_WIDTH);
    for line in &block.lines {
        let _ = writeln!(out, "{}", format_columns(painter, line, widest));
    }
    out.push('\n');
}

fn format_columns(painter: Painter, line: &InstructionPair, widest: usize) -> String {
    let side = |text: &Option<String>| escape::escape_line(text.as_deref().unwrap_or_default());
    let left = truncate_text(&side(&line.plain), widest);
    let left = format!("{left}{}", " ".repeat(widest.saturating_sub(width(&left))));
    let right = side(&line.counted);
    let (mark, left, right) = match (&line.plain, &line.counted) {
        (Some(_), Some(_)) => (' ', left, right),
        (Some(_), None) => ('-', painter.paint(DIM, &left), String::new()),
        _ => ('+', left, painter.paint(OTHER_OUTCOME, &right)),
    };
    format!("     {left}  {mark} {right}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_separated_by_marks() {
        let line = |plain: Option<&str>, counted: Option<&str>| InstructionPair {
            plain: plain.map(str::to_owned),
            counted: counted.map(str::to_owned),
        };
        let blocks = vec![HotBlock {
            place: LoopCodePlace::Block(4),
            line: Some(7),
            plain_executions: 10,
            counted_executions: 10,
            lines: vec![line(Some("addl $1, %eax"), Some("addl $1, %ecx")), line(None, Some("incq (%rbx)")), line(Some("nop"), None)],
        }];
        let one = HotLoop {
            function: "f".into(),
            source: "a.c".into(),
            line: Some(7),
            header: 4,
            iterations: 10,
            share: 0.5,
            plain: 2.0,
            counted: 3.0,
            blocks,
        };
        let text = render_loops(&LoopsDocument { schema_version: 1, program: "p".into(), loops: vec![one] }, 8, false);
        assert!(text.contains("1. f  (a.c, line 7; block 4)\n   10 iterations, 50.0 % of"), "{text}");
        assert!(text.contains("per iteration: 2.00 -> 3.00  (+1.00, +50.0 %)"), "{text}");
        assert!(text.contains("     addl $1, %eax    addl $1, %ecx\n                    + incq (%rbx)\n     nop            -\n"), "{text}");
        assert!(!text.contains('\u{1b}'), "no colour was asked for");
    }
}
