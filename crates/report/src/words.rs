//! Descriptions of runs, edges and branch directions, which text, HTML and export formats share.

use crate::turn::{ShownPathEnd, ShownPathStart, TakenBranch};
use trodden_flow::CutReason;
use trodden_profile::{ProcessEnding, Run};
pub use trodden_text::words::*;
use trodden_unit::{EdgeKind, FlowEdge};

/// Describes how a run ended: `exit status 1`, `ended by signal 9`. Returns `None` if that is unknown.
pub fn describe_ending(ending: Option<ProcessEnding>) -> Option<String> {
    ending.map(|e| match e {
        ProcessEnding::Exit(status) => format!("exit status {status}"),
        ProcessEnding::Signal(signal) => format!("ended by signal {signal}"),
    })
}

/// Returns the program's base name, from the command or, if the command is unknown, from the first image.
pub fn program_name(run: &Run, first_image: Option<&str>) -> String {
    let path = run.command.first().map(String::as_str).or(first_image).unwrap_or("program");
    base_name(path).to_string()
}

/// Describes the condition under which an edge is taken: `true`, `case 3`, `throws`.
pub fn describe_edge_condition(edge: &FlowEdge) -> String {
    match edge.kind {
        EdgeKind::True => "true".into(),
        EdgeKind::False => "false".into(),
        EdgeKind::Case(value) => format!("case {}", format_case_values(&edge.cases, value)),
        EdgeKind::Default => "default".into(),
        EdgeKind::Indirect(place) => format!("target {place}"),
        EdgeKind::Normal => "returns".into(),
        EdgeKind::Unwind => "throws".into(),
        EdgeKind::Always => "continues".into(),
        EdgeKind::Return => "return".into(),
        EdgeKind::TailCall => "tail call".into(),
        EdgeKind::Resume => "passes the exception on".into(),
        EdgeKind::NoReturn => "does not return".into(),
        EdgeKind::Reach => "reaches a call".into(),
        EdgeKind::ReturnsTwice => "returns again".into(),
    }
}

/// Lists the first case values of a switch: `97 'a', 98 'b', ..`.
fn format_case_values(all: &[i64], first: i64) -> String {
    const MAX_CASES: usize = 3;
    let value = |v: &i64| match u8::try_from(*v) {
        Ok(c) if c.is_ascii_graphic() => format!("{v} '{}'", char::from(c)),
        _ => v.to_string(),
    };
    let all = if all.is_empty() { std::slice::from_ref(&first) } else { all };
    let mut words: Vec<String> = all.iter().take(MAX_CASES).map(value).collect();
    if all.len() > MAX_CASES {
        words.push("..".into());
    }
    words.join(", ")
}

/// Joins the directions of all branches on a line.
pub fn format_taken_branches(turns: &[TakenBranch]) -> String {
    list_taken_branches(turns).join("; ")
}

/// Lists the directions of all branches on a line, in order. Equal neighbours are merged, as in `→ 14, not 20 x3`.
pub fn list_taken_branches(turns: &[TakenBranch]) -> Vec<String> {
    let mut words: Vec<(&str, usize)> = Vec::new();
    for turn in turns {
        match words.last_mut() {
            Some((last, times)) if *last == turn.text => *times += 1,
            _ => words.push((&turn.text, 1)),
        }
    }
    words.into_iter().map(|(w, n)| if n > 1 { format!("{w} x{n}") } else { w.to_string() }).collect()
}

/// Returns a short edge label for drawings: `T`, `F`, `=3`.
pub fn edge_label(edge: &FlowEdge) -> String {
    match edge.kind {
        EdgeKind::True => "T".into(),
        EdgeKind::False => "F".into(),
        EdgeKind::Case(value) => {
            let more = if edge.cases.len() > 1 { ",.." } else { "" };
            format!("={value}{more}")
        }
        EdgeKind::Default => "default".into(),
        EdgeKind::Indirect(place) => format!("#{place}"),
        EdgeKind::Unwind => "throws".into(),
        EdgeKind::TailCall => "tail call".into(),
        EdgeKind::Resume => "resume".into(),
        EdgeKind::NoReturn => "no return".into(),
        EdgeKind::Reach => "call".into(),
        EdgeKind::ReturnsTwice => "again".into(),
        EdgeKind::Always | EdgeKind::Normal | EdgeKind::Return => String::new(),
    }
}

/// Describes where a path starts.
pub fn describe_begin(begins: &ShownPathStart) -> String {
    match begins {
        ShownPathStart::Entry => "begins at the function's entry".into(),
        ShownPathStart::AfterCut { reason, at, line } => {
            let place = format_line_or_block(*line, at.0);
            match reason {
                CutReason::Back => format!("begins at loop head, {place}"),
                CutReason::ReturnsTwice => format!("begins where a call returned again, {place}"),
                CutReason::FromExit | CutReason::Unsplittable | CutReason::Limit | CutReason::EachEdge => {
                    format!("begins where paths are cut, {place}")
                }
            }
        }
    }
}

/// Describes where a path ends.
pub fn describe_end(ends: &ShownPathEnd) -> String {
    let at = |line: &Option<u32>| line.map(|l| format!(" in line {l}")).unwrap_or_default();
    match ends {
        ShownPathEnd::Exit { kind: EdgeKind::Return, line, .. } => format!("returns{}", at(line)),
        ShownPathEnd::Exit { kind: EdgeKind::TailCall, line, .. } => format!("ends in a tail call{}", at(line)),
        ShownPathEnd::Exit { kind: EdgeKind::Resume, .. } => "passes the exception on".into(),
        ShownPathEnd::Exit { kind: EdgeKind::NoReturn, line, .. } => format!("ends in a call that does not return{}", at(line)),
        ShownPathEnd::Exit { line, .. } => format!("leaves the function{}", at(line)),
        ShownPathEnd::Cut { reason: CutReason::Back, to, line } => format!("back to loop head, {}", format_line_or_block(*line, to.0)),
        ShownPathEnd::Cut { reason: CutReason::ReturnsTwice, to, line } => {
            format!("a call returns again, {}", format_line_or_block(*line, to.0))
        }
        ShownPathEnd::Cut { to, line, .. } => format!("cut here; continues as another path at {}", format_line_or_block(*line, to.0)),
        ShownPathEnd::Stop { line } => format!("ends{}", at(line)),
        ShownPathEnd::Call { lines: None, at } => format!("stopped at a call in block {}", at.0),
        ShownPathEnd::Call { lines: Some((first, last)), .. } if first == last => format!("stopped at call in line {first}"),
        ShownPathEnd::Call { lines: Some((first, last)), .. } => format!("stopped at a call in lines {first}-{last}"),
    }
}

/// Names the reason why paths were cut at an edge.
pub fn cut_reason(reason: CutReason) -> &'static str {
    match reason {
        CutReason::Back => "back edge",
        CutReason::FromExit => "leaves the exit",
        CutReason::ReturnsTwice => "returns twice",
        CutReason::Unsplittable => "cannot carry code",
        CutReason::Limit => "too many paths",
        CutReason::EachEdge => "edges are counted",
    }
}

fn format_line_or_block(line: Option<u32>, block: u32) -> String {
    line.map_or_else(|| format!("block {block}"), |l| format!("line {l}"))
}
