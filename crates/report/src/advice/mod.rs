//! Advice: the findings of [`trodden_analysis::advise`] over a program, ranked, and their forms.
//!
//! [`text`] for terminals, [`json`], [`sarif`] for tools that show findings in source; what they say alike is in `words.rs`.

pub mod json;
pub mod sarif;
pub mod text;
mod words;

use crate::error::ReportError;
use crate::measure::Measure;
use crate::select;
use crate::view::{Function, View};
use std::collections::HashMap;
use trodden_analysis::advise::{AdviseOptions, Finding, Kind, advise};
use trodden_unit::facts::{FunctionFacts, UnitFacts};

/// Which findings a user wants to see.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Functions: one's name, or a regular expression for full names.
    pub function: Option<String>,
    /// Kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// At most so many findings that save something, and so many that do not.
    pub top: usize,
    /// Only findings that save at least this share of all executed instructions, from 0 to 1; findings that save
    /// nothing are looked for in functions that execute at least this share.
    pub min_share: f64,
    /// When something is worth telling.
    pub options: AdviseOptions,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { function: None, kinds: Vec::new(), top: 10, min_share: 0.0005, options: AdviseOptions::default() }
    }
}

/// Findings that are about the same lines, each once, with what all of them save and how many they are.
fn once(function: &Function, findings: impl Iterator<Item = Finding>) -> Vec<(Finding, u128, usize)> {
    let mut all: Vec<(Finding, u128, usize)> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for finding in findings {
        let lines = words::lines(function, &finding);
        let at = lines.map(|lines| *known.entry((finding.kind(), lines)).or_insert(all.len())).unwrap_or(all.len());
        match all.get_mut(at) {
            Some((_, saves, copies)) => {
                *saves += u128::from(finding.saves);
                *copies += 1;
            }
            None => all.push((finding.clone(), finding.saves.into(), 1)),
        }
    }
    all
}

/// Gives the facts of a function, if there are any.
pub type Facts<'f> = dyn Fn(&Function) -> Option<(&'f UnitFacts, &'f FunctionFacts)> + 'f;

/// A finding in its place.
pub struct Ranked<'v, 'a> {
    /// The function.
    pub function: &'v Function<'a>,
    /// What was found in it.
    pub finding: Finding,
    /// What it saves at most, as a share of all executed instructions; all copies together.
    pub share: f64,
    /// How often it was found: compilers unroll loops and inline functions, and a finding in several copies of the same
    /// lines is told once, by the copy that saves most.
    pub copies: usize,
}

/// The findings to show.
pub struct Advice<'v, 'a> {
    /// Those that save something, most first.
    pub savings: Vec<Ranked<'v, 'a>>,
    /// Those that save nothing, most surprising first.
    pub others: Vec<Ranked<'v, 'a>>,
    /// How many there are of each sort, shown or not.
    pub found: (usize, usize),
    /// How many functions were looked at.
    pub functions: usize,
    /// Functions looked at of which no facts are known, though they were wanted.
    pub without_facts: Vec<&'v Function<'a>>,
}

impl Wanted {
    /// The functions that are worth looking at: no others can have a finding.
    ///
    /// # Errors
    /// No function has the given name; the pattern is no regular expression.
    pub fn functions<'v, 'a>(&self, view: &'v View<'a>) -> Result<Vec<&'v Function<'a>>, ReportError> {
        let selection = select::Selection { function: self.function.clone(), ..select::Selection::default() };
        let total = view.total(Measure::Instructions);
        let hot = |f: &&Function| f.instructions > 0 && select::share(f.instructions, total) >= self.min_share;
        Ok(selection.functions(view)?.into_iter().filter(hot).collect())
    }

    /// Whether findings of a kind are wanted.
    pub fn wants(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Looks for findings, and ranks them.
    ///
    /// # Errors
    /// As for [`Wanted::functions`].
    pub fn advise<'v, 'a>(&self, view: &'v View<'a>, facts: &Facts) -> Result<Advice<'v, 'a>, ReportError> {
        let functions = self.functions(view)?;
        let total = view.total(Measure::Instructions);
        let (mut savings, mut others, mut without_facts) = (Vec::new(), Vec::new(), Vec::new());
        for &function in &functions {
            let known = facts(function);
            if known.is_none() && self.wants(Kind::Redundant) {
                without_facts.push(function);
            }
            let found = advise(function.map, &function.paths, known, &self.options).into_iter().filter(|f| self.wants(f.kind()));
            for (finding, saves, copies) in once(function, found) {
                let ranked = Ranked { function, share: select::share(saves, total), finding, copies };
                match ranked.finding.kind() {
                    Kind::Never => others.push(ranked),
                    _ if ranked.share >= self.min_share => savings.push(ranked),
                    _ => {}
                }
            }
        }
        savings.sort_by(|a: &Ranked, b| b.share.total_cmp(&a.share).then_with(|| a.function.name.full.cmp(&b.function.name.full)));
        others.sort_by(|a: &Ranked, b| b.finding.surprise().total_cmp(&a.finding.surprise()));
        let found = (savings.len(), others.len());
        savings.truncate(crate::select::limit(self.top));
        others.truncate(crate::select::limit(self.top));
        Ok(Advice { savings, others, found, functions: functions.len(), without_facts })
    }
}
