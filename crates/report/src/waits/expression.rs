//! Formulas that express a wait as the difference of two paths with named steps, in the notation of the authors of Carnival: `(A1 + B3 +
//! C3) - (A1 + A2)`.

use super::text::format_time;
use crate::escape;
use crate::words::plural;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use trodden_waits::redundancy::remove_redundant_steps;
use trodden_waits::{ExpandedWait, LocationState, PathPart, RepresentativeWait, Step, StepId, WaitExpression};
use trodden_waits_file::import::WAITING_SLICE_CALL_NAME;
use trodden_waits_file::summary::WaitSummary;

const MAX_TERMS_PER_FORMULA: usize = 12;

/// A term's name, and its time in nanoseconds.
type NamedTime = (String, i128);

/// Formats the formula of a class of waits. `first` is the first wait in the class, which represents it.
pub fn representative_formula(summary: &WaitSummary, first: &RepresentativeWait) -> String {
    let part = |(id, ns): &(StepId, u64)| (PathPart::Step(*id), i128::from(*ns));
    let [plus, minus] = [&first.paths.plus, &first.paths.minus].map(|path| path.iter().map(part).collect());
    ExpressionNames::new(summary).format_formula(&WaitExpression { plus, minus })
}

/// Writes the formulas of the first `top` waits, each in up to three forms. The first form has the paths since the two threads or processes
/// last synchronised. In the second form, each wait on these paths is replaced by its own formula. In the third form, steps that both paths
/// share are removed.
pub fn write(out: &mut impl Write, summary: &WaitSummary, top: usize) -> io::Result<()> {
    let names = ExpressionNames::new(summary);
    let waits = &summary.replayed.outcome.expanded;
    writeln!(out, "\nExpressions: each wait as the difference of two paths, in order of time")?;
    for (number, wait) in waits.iter().enumerate().take(top) {
        writeln!(
            out,
            "  {}: {} waits {} for {} ({}, {})",
            number + 1,
            summary.location_name(wait.location),
            format_time(wait.wait_ns),
            summary.location_name(wait.releaser),
            names.wait_name(number),
            wait.kind.name()
        )?;
        let first = names.format_formula(&wait.first);
        writeln!(out, "       {first}")?;
        let replaced: Vec<usize> = waits_in_expression(&wait.first);
        for other in &replaced {
            writeln!(out, "       where {} = {}", names.wait_name(*other), names.format_formula(&waits[*other].expanded))?;
        }
        let expanded = names.format_formula(&wait.expanded);
        if expanded != first {
            writeln!(out, "     = {expanded}")?;
        }
        let left = reduce_wait(summary, wait);
        let shorter = names.format_formula(&left);
        if shorter != expanded {
            writeln!(out, "     = {shorter}, without the steps that both paths have in common")?;
        }
        writeln!(out, "     = {}", names.format_times(&left))?;
        writeln!(out, "       {}", describe_class(waits, number))?;
    }
    if waits.len() > top {
        writeln!(out, "  {} (--top)", plural((waits.len() - top) as u128, "more wait", "more waits"))?;
    }
    Ok(())
}

/// Returns the formulas of all waits as JSON.
pub fn json(summary: &WaitSummary) -> Value {
    let names = ExpressionNames::new(summary);
    let waits = summary.replayed.outcome.expanded.iter().map(|wait| {
        json!({
            "location_index": wait.location.0, "releaser_index": wait.releaser.0, "enter_ns": wait.enter_ns, "wait_ns": wait.wait_ns,
            "since_synchronised": names.format_formula(&wait.first), "expanded": names.format_formula(&wait.expanded),
            "reduced": names.format_formula(&reduce_wait(summary, wait)),
            "class": {"location_index": wait.placement.location.0, "enter_ns": wait.placement.enter_ns},
            "distance": wait.placement.distance,
        })
    });
    waits.collect()
}

/// Describes the class to which a wait belongs, and the wait's distance from the first wait in that class. The class is identified by that
/// first wait.
fn describe_class(waits: &[ExpandedWait], number: usize) -> String {
    let placement = &waits[number].placement;
    let is_first = |wait: &ExpandedWait| (wait.location, wait.enter_ns) == (placement.location, placement.enter_ns);
    match waits.iter().position(is_first) {
        Some(first) if first != number => format!("in the class of wait {}, at a distance of {:.3}", first + 1, placement.distance),
        _ => "the first of its class".into(),
    }
}

fn waits_in_expression(expression: &WaitExpression) -> Vec<usize> {
    let mut seen = HashSet::new();
    let parts = expression.plus.iter().chain(&expression.minus);
    let waits = parts.filter_map(|(part, _)| if let PathPart::Wait(number) = part { Some(*number) } else { None });
    waits.filter(|number| seen.insert(*number)).collect()
}

/// Returns a wait's two paths without the steps that they share.
fn reduce_wait(summary: &WaitSummary, wait: &ExpandedWait) -> WaitExpression {
    let steps = &summary.replayed.outcome.steps;
    let mut paths = [trodden_waits::hash::Map::default(), trodden_waits::hash::Map::default()];
    for (side, path) in [&wait.expanded.plus, &wait.expanded.minus].into_iter().enumerate() {
        for (part, ns) in path {
            let PathPart::Step(id) = part else { continue };
            // A step with negative time in one path has positive time in the other.
            *paths[if *ns < 0 { 1 - side } else { side }].entry(*id).or_default() += ns.unsigned_abs() as u64;
        }
    }
    let ids: HashMap<Step, StepId> = paths.iter().flat_map(|path| path.keys()).map(|id| (steps.get(*id), *id)).collect();
    let explanation = remove_redundant_steps(steps, &paths[0], &paths[1]);
    let parts = |path: &[(Step, u64)]| {
        let mut parts: Vec<(PathPart, i128)> = path.iter().map(|(step, ns)| (PathPart::Step(ids[step]), i128::from(*ns))).collect();
        parts.sort();
        parts
    };
    WaitExpression { plus: parts(&explanation.plus), minus: parts(&explanation.minus) }
}

/// Assigns short, unambiguous names to the terms of formulas.
struct ExpressionNames<'a> {
    summary: &'a WaitSummary,
    /// For each name, the number of waits that have it.
    waits: BTreeMap<String, usize>,
}

impl<'a> ExpressionNames<'a> {
    fn new(summary: &'a WaitSummary) -> ExpressionNames<'a> {
        let mut waits = BTreeMap::new();
        for wait in &summary.replayed.outcome.expanded {
            *waits.entry(name_of_call_site(summary, wait.site)).or_default() += 1;
        }
        ExpressionNames { summary, waits }
    }

    /// Returns the name of a wait's call. If several waits have this name, the wait's number is appended.
    fn wait_name(&self, number: usize) -> String {
        let name = name_of_call_site(self.summary, self.summary.replayed.outcome.expanded[number].site);
        if self.waits[&name] > 1 { format!("{name} [wait {}]", number + 1) } else { name }
    }

    /// Returns a step's name without the location.
    fn step_name(&self, step: &Step) -> String {
        let code = self.summary.code(step.code);
        let function = escape::escape_line(code.function());
        match (step.state, code.call) {
            (LocationState::Computing, _) => function,
            (LocationState::Communicating, Some(call)) => call.to_owned(),
            (LocationState::Ready, _) => format!("{function} [without a processor]"),
            (state, Some(call)) => format!("{call} [{}]", state.name()),
            (state, None) => format!("{function} [{}]", state.name()),
        }
    }

    /// Returns the named terms of both paths. If a name occurs in several threads or processes, its location is appended.
    fn build_terms(&self, expression: &WaitExpression) -> [Vec<NamedTime>; 2] {
        let steps = &self.summary.replayed.outcome.steps;
        let mut locations: HashMap<String, HashSet<_>> = HashMap::new();
        for (part, _) in expression.plus.iter().chain(&expression.minus) {
            if let PathPart::Step(id) = part {
                let step = steps.get(*id);
                locations.entry(self.step_name(&step)).or_default().insert(step.location);
            }
        }
        let name = |part: &PathPart| match part {
            PathPart::Wait(number) => self.wait_name(*number),
            PathPart::Step(id) => {
                let step = steps.get(*id);
                let name = self.step_name(&step);
                let is_shared = locations[&name].len() > 1;
                if is_shared { format!("{name} on {}", self.summary.location_name(step.location)) } else { name }
            }
        };
        [&expression.plus, &expression.minus].map(|path| {
            let mut terms: Vec<NamedTime> = Vec::new();
            for (part, ns) in path {
                let name = name(part);
                match terms.iter_mut().find(|term| term.0 == name) {
                    Some(term) => term.1 += ns,
                    None => terms.push((name, *ns)),
                }
            }
            terms
        })
    }

    fn format_formula(&self, expression: &WaitExpression) -> String {
        let [plus, minus] = self.build_terms(expression).map(|terms| format_sum(&terms, |term| term.0.clone()));
        format!("{plus} - {minus}")
    }

    fn format_times(&self, expression: &WaitExpression) -> String {
        let [plus, minus] = self.build_terms(expression).map(|terms| format_sum(&terms, |term| format_time(term.1.unsigned_abs() as u64)));
        format!("{plus} - {minus}")
    }
}

fn name_of_call_site(summary: &WaitSummary, site: trodden_waits::CodeId) -> String {
    let code = summary.code(site);
    // A slice of an imported trace is not a call, so the function's name is used.
    code.call.filter(|call| *call != WAITING_SLICE_CALL_NAME).map_or_else(|| escape::escape_line(code.function()), str::to_owned)
}

/// Formats a path as a sum, or as 0 if it is empty. The sum is in brackets if it has several terms or starts with a minus. Terms beyond
/// [`MAX_TERMS_PER_FORMULA`] are not listed but counted.
fn format_sum(terms: &[NamedTime], word: impl Fn(&NamedTime) -> String) -> String {
    let mut sum = String::new();
    for (index, term) in terms.iter().take(MAX_TERMS_PER_FORMULA).enumerate() {
        let sign = match (index, term.1 < 0) {
            (0, false) => "",
            (0, true) => "-",
            (_, false) => " + ",
            (_, true) => " - ",
        };
        sum += sign;
        sum += &word(term);
    }
    if terms.len() > MAX_TERMS_PER_FORMULA {
        sum += &format!(" + {} more", terms.len() - MAX_TERMS_PER_FORMULA);
    }
    match terms {
        [] => "0".into(),
        [(_, ns)] if *ns >= 0 => sum,
        _ => format!("({sum})"),
    }
}
