//! Advice as text for a terminal.

use super::{AdviceSelection, RankedAdvice, ShownAdvice, words as say};
use crate::escape;
use crate::paint::{self, align_left, align_right, truncate_function_name, truncate_text};
use crate::source::SourceCache;
use crate::text::{PageLayout, TextOptions, inlined_calls_to_show, paint_taken_branch, render_call, render_gutter, run_summary};
use crate::view::{Function, ProfileView, file_of, inline_chain};
use crate::words::{self, base_name, count, percent, plural, program_name};
use std::cell::RefCell;
use trodden_analysis::advise::{Advice, AdviceKind, CorrelatedBranches, LoopPatterns, NeverTogether, RedundantBlock, RepeatedComputation};
use trodden_flow::{Edge, Node};
use trodden_unit::SourcePosition;
use trodden_unit::experiment::Spelling;

const MAX_REPEATED_COMPUTATIONS: usize = 6;
/// Maximum number of patterns shown per loop.
const MAX_PATTERNS_PER_LOOP: usize = 6;

/// Formats all findings for a terminal: a header, the possible savings, and then the pairs of frequent edges that no path combines.
pub fn write_advice(
    view: &ProfileView,
    selection: &AdviceSelection,
    advice: &ShownAdvice,
    sources: &SourceCache,
    options: &TextOptions,
) -> String {
    let page = &PageLayout::new(options);
    let mut out = render_header(view, selection, advice, page);
    if advice.savings.is_empty() && advice.others.is_empty() {
        out.push_str("No finding reaches this threshold.\n");
    }
    if !advice.savings.is_empty() {
        let shown = format!("{} of {} shown", advice.savings.len(), count(advice.found.0 as u128));
        out.push_str(&format!("{}, largest first; {shown}\n\n", page.paint(paint::TITLE, "Possible savings")));
        out.push_str(&write_findings(&advice.savings, sources, page));
    }
    if !advice.others.is_empty() {
        let shown = format!("{} of {} shown", advice.others.len(), count(advice.found.1 as u128));
        out.push_str(&format!("{}, though each is frequent; {shown}\n", page.paint(paint::TITLE, "Never on one path")));
        let meaning = "Either no test covers the case, or the code handles a case that cannot happen.";
        out.push_str(&format!("{}\n\n", page.paint(paint::DIM, &truncate_text(meaning, page.width))));
        out.push_str(&write_findings(&advice.others, sources, page));
    }
    out
}

fn write_findings(all: &[RankedAdvice], sources: &SourceCache, page: &PageLayout) -> String {
    all.iter().enumerate().map(|(rank, ranked)| render_title(rank + 1, ranked, page) + &render_body(ranked, sources, page)).collect()
}

fn render_header(view: &ProfileView, selection: &AdviceSelection, advice: &ShownAdvice, page: &PageLayout) -> String {
    let run = &view.profile.run;
    let name = program_name(run, view.profile.images.first().map(|i| i.path.as_str()));
    let mut out = format!("{}\n", page.paint(paint::TITLE, &format!("Advice for {}", escape::escape_line(&name))));
    let mut row = |name: &str, text: String| {
        out.push_str(&format!("  {}  {}\n", page.paint(paint::DIM, &align_left(name, 10)), truncate_text(&text, page.width - 14)));
    };
    if !run.command.is_empty() {
        row("command", escape::escape_line(&words::command(&run.command)));
    }
    // The summary is empty for profiles that other tools collected or that were simulated.
    let summary = run_summary(view);
    if !summary.is_empty() {
        row("run", summary);
    }
    let least = if selection.min_share > 0.0 {
        format!(", each with at least {}% of all executed instructions", (selection.min_share * 1e6).round() / 1e4)
    } else {
        String::new()
    };
    row("analysed", format!("{}{least}", plural(advice.functions as u128, "function", "functions")));
    out.push('\n');
    out
}

fn render_title(rank: usize, ranked: &RankedAdvice, page: &PageLayout) -> String {
    let function = ranked.function;
    let saves = match ranked.finding.saves {
        0 => String::new(),
        _ => format!(
            "{} {}  ",
            align_right(&percent(ranked.share), 6),
            page.paint(paint::BAR, &paint::render_bar((ranked.share * 10.0).min(1.0), 5))
        ),
    };
    let kind = page.paint(paint::OTHER_OUTCOME, &align_left(ranked.finding.kind().name(), 10));
    let main = say::main_position(function, &ranked.finding);
    let file = main
        .and_then(|p| Some(format!("  {}:{}", escape::escape_line(base_name(file_of(function.unit_map(), p)?)), p.line)))
        .unwrap_or_default();
    let name = page.paint(paint::NAME, &truncate_function_name(&function.name.short, page.width.saturating_sub(60).max(24)));
    let copies = if ranked.copies > 1 { format!(", in {} copies of the code", ranked.copies) } else { String::new() };
    let note = page.paint(paint::DIM, &format!("{file}{copies}"));
    format!("{}  {saves}{kind}  {name}{note}\n", page.paint(paint::TITLE, &align_right(&rank.to_string(), 3)))
}

fn render_body(ranked: &RankedAdvice, sources: &SourceCache, page: &PageLayout) -> String {
    let function = ranked.function;
    let writer = FindingWriter { function, sources, page, previous_chain: RefCell::default() };
    let mut out = writer.wrap_text(&format!("{}.", capitalise(&say::describe_finding(function, &ranked.finding))), FINDING_INDENT);
    out.push_str(&match &ranked.finding.advice {
        Advice::Correlated(c) => writer.render_correlated(c),
        Advice::Loop(l) => writer.render_loop(l),
        Advice::Redundant(r) => writer.render_redundant(r),
        Advice::Never(n) => writer.render_never_together(n),
    });
    if ranked.finding.kind() != AdviceKind::Never {
        out.push_str(&writer.render_labelled_text("try", &say::suggest_change(function, &ranked.finding)));
    }
    out.push('\n');
    out
}

fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

const FINDING_INDENT: usize = 6;

struct FindingWriter<'s> {
    function: &'s Function<'s>,
    sources: &'s SourceCache<'s>,
    page: &'s PageLayout,
    /// The chain of inlined calls around the previously rendered line. Calls that the next line shares with it are not printed again.
    previous_chain: RefCell<Vec<SourcePosition>>,
}

impl FindingWriter<'_> {
    fn render_correlated(&self, c: &CorrelatedBranches) -> String {
        let mut out = self.render_source_line(say::branch_position(self.function, c.earlier), "");
        out.push_str(&self.render_source_line(say::branch_position(self.function, c.later), ""));
        let own =
            |block: Node| say::branch_position(self.function, block).map_or_else(|| format!("block {}", block.0), |p| p.line.to_string());
        let label = |edge: Edge| format!("after {} {}", own(c.earlier), say::format_direction(self.function, edge));
        let mut rows = vec![("overall".to_string(), c.executions, say::format_outcomes(self.function, &c.outcomes), false)];
        rows.extend(
            c.given.iter().map(|g| (label(g.edge), g.count, say::format_outcomes(self.function, &g.outcomes), g.decides.is_some())),
        );
        if !c.otherwise.is_empty() {
            let count = c.otherwise.iter().map(|o| o.count).sum();
            rows.push((format!("not after {}", own(c.earlier)), count, say::format_outcomes(self.function, &c.otherwise), false));
        }
        let columns = rows.iter().map(|r| paint::width(&r.0)).max().unwrap_or(0).min(self.page.width / 3);
        for (label, times, outcomes, decided) in rows {
            let style = if decided { paint::DIRECTION } else { anstyle::Style::new() };
            let times = self.page.paint(paint::COUNT, &align_right(&count(times.into()), 15));
            let outcomes = truncate_text(&outcomes, self.page.width.saturating_sub(FINDING_INDENT + columns + 18));
            out.push_str(&format!(
                "{}{} {times}  {}\n",
                " ".repeat(FINDING_INDENT),
                align_left(&label, columns),
                self.page.paint(style, &outcomes)
            ));
        }
        let path = format!("; given the whole path before it, {:.2} bits remain", c.entropy_after_path);
        let bits = format!("the first gives {:.2} of the second's {:.2} bits{path}", c.information, c.entropy);
        out + &self.render_labelled_text("bits", &bits)
    }

    fn render_loop(&self, l: &LoopPatterns) -> String {
        let mut out =
            self.render_source_line(say::first_position(self.function, l.head), &plural(l.iterations.into(), "iteration", "iterations"));
        for pattern in l.patterns.iter().take(MAX_PATTERNS_PER_LOOP) {
            let share = align_right(&percent(pattern.count as f64 / l.iterations as f64), 6);
            let times = self.page.paint(paint::COUNT, &align_right(&count(pattern.count.into()), 15));
            let text = truncate_text(&say::format_pattern(self.function, l, pattern), self.page.width.saturating_sub(FINDING_INDENT + 25));
            out.push_str(&format!("{}{share} {times}  {text}\n", " ".repeat(FINDING_INDENT)));
        }
        if l.patterns.len() > MAX_PATTERNS_PER_LOOP {
            let more = format!("{}... and {} more\n", " ".repeat(FINDING_INDENT), l.patterns.len() - MAX_PATTERNS_PER_LOOP);
            out.push_str(&self.page.paint(paint::DIM, &more));
        }
        out
    }

    fn render_redundant(&self, r: &RedundantBlock) -> String {
        let mut out = String::new();
        for repeated in r.repeated.iter().take(MAX_REPEATED_COMPUTATIONS) {
            out.push_str(&self.render_source_line(repeated.at.position, &self.render_repeated(r, repeated)));
        }
        if r.repeated.len() > MAX_REPEATED_COMPUTATIONS {
            let more = format!("{}... and {} more\n", " ".repeat(FINDING_INDENT), r.repeated.len() - MAX_REPEATED_COMPUTATIONS);
            out.push_str(&self.page.paint(paint::DIM, &more));
        }
        let why = match r.unavoidable {
            true => "every path to here computes it, but on some paths a write to memory may intervene",
            false => "paths that do not compute it earlier are rare",
        };
        let from = say::format_position(self.function, say::branch_position(self.function, r.earlier), r.earlier);
        out + &self.render_labelled_text("before", &format!("{from}; {why}"))
    }

    fn render_repeated(&self, r: &RedundantBlock, repeated: &RepeatedComputation) -> String {
        let share = percent((repeated.found + repeated.constant) as f64 / r.executions as f64);
        let from =
            repeated.from.first().and_then(|(site, _)| site.position).map(|p| format!(", as in line {}", p.line)).unwrap_or_default();
        let from = if repeated.constant > repeated.found { ", of constants".into() } else { from };
        format!("{}: {share} of {}{from}", repeated.operation, count(r.executions.into()))
    }

    fn render_never_together(&self, n: &NeverTogether) -> String {
        let [first, second] = [n.first, n.second].map(|e| self.function.map.graph.from(e));
        let mut out = self.render_branch(first, n.first, &plural(n.first_count.into(), "time", "times"));
        out.push_str(&self.render_branch(
            second,
            n.second,
            &format!("{} of {} times", count(n.second_count.into()), count(n.executions.into())),
        ));
        let text = format!(
            "the second branch was executed {} after the first, and never took this edge",
            plural(n.after_first.into(), "time", "times")
        );
        out.push_str(&self.render_labelled_text("after", &text));
        out
    }

    fn render_branch(&self, block: Node, edge: Edge, times: &str) -> String {
        self.render_annotated_line(say::branch_position(self.function, block), &say::format_taken_edge(self.function, edge), times)
    }

    fn render_source_line(&self, position: Option<SourcePosition>, note: &str) -> String {
        self.render_annotated_line(position, "", note)
    }

    /// Renders a source line with the branch direction and the note to its right, or below it if the line is too long.
    fn render_annotated_line(&self, position: Option<SourcePosition>, turn: &str, note: &str) -> String {
        let page = self.page;
        let room = page.width.saturating_sub(14);
        let space = if turn.is_empty() || note.is_empty() { "" } else { "  " };
        let wide = paint::width(turn) + space.len() + paint::width(note);
        let note = match wide > room {
            true => truncate_text(&format!("{turn}{space}{note}"), room),
            false => format!("{}{space}{note}", paint_taken_branch(turn, page)),
        };
        let Some(position) = position else {
            return if wide == 0 { String::new() } else { format!("{} {note}\n", render_gutter("?", page)) };
        };
        let map = self.function.unit_map();
        let text = file_of(map, position).and_then(|f| self.sources.line(f, position.line)).unwrap_or_default();
        let chain = inline_chain(map, position);
        let mut previous = self.previous_chain.borrow_mut();
        let calls: String = inlined_calls_to_show(&previous, &chain).map(|depth| render_call(map, &chain, depth, 0, page)).collect();
        *previous = chain;
        let (text, number) = (text.trim_start(), render_gutter(&position.line.to_string(), page));
        let beside = room.saturating_sub(wide + 2);
        match wide {
            0 => format!("{calls}{}\n", format!("{number} {}", truncate_text(text, room)).trim_end()),
            _ if beside >= 24 => format!("{calls}{number} {}  {note}\n", align_left(text, beside.min(room / 2))),
            _ => format!("{calls}{number} {}\n{} {note}\n", truncate_text(text, room), render_gutter("", page)),
        }
    }

    fn render_labelled_text(&self, label: &str, text: &str) -> String {
        let wrapped = self.wrap_text(text, FINDING_INDENT + 8);
        let label = format!("{}{}", " ".repeat(FINDING_INDENT), self.page.paint(paint::DIM, &align_left(label, 8)));
        format!("{label}{}", wrapped.trim_start())
    }

    fn wrap_text(&self, text: &str, indent: usize) -> String {
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let last = lines.last_mut().expect("there is a line");
            match last.is_empty() || indent + paint::width(last) + 1 + paint::width(word) <= self.page.width {
                true if last.is_empty() => last.push_str(word),
                true => last.push_str(&format!(" {word}")),
                false => lines.push(word.to_string()),
            }
        }
        lines.iter().map(|line| format!("{}{line}\n", " ".repeat(indent))).collect()
    }
}
