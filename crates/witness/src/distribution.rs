//! Distributions: branches divided among profiles, profiles among machines, so that the greatest cost of a machine is small.
//!
//! Source: D. Saha et al., section 4.1: jobs ([`jobs`](super::jobs)) are assigned one at a time to the profile with the least load, whose
//! witnesses are found again without starting afresh: the region of the new job is filled with witnesses, which are then eliminated
//! ([`eliminate`](super::eliminate)). Beside it the longest-processing-time order (Graham 1969), and [`DistributionStrategy::Weighted`]:
//! each job goes where the load of the machine grows least, what the profile has already counting in; of all groupings, and of what the
//! others come to, the best is taken. Under a limit, what elimination leaves too great is searched for ([`fewest`](super::fewest)). The
//! result is checked as a whole and repaired before it is compared with others (`completion`).
//!
//! Complexity: jobs x (profiles, for `Weighted`) x elimination in the job's region.

use super::WitnessFunctionId;
use super::automaton::AutomatonState;
use super::completion::{Candidate, Completion};
use super::eliminate::{Requirement, droppable, eliminate, most_expensive_first};
use super::fewest::{FewestSearch, fewest};
use super::jobs::{Grouping, WitnessJob, jobs};
use super::placement::OtherKind;
pub use super::planned::{DistributionOptions, DistributionStrategy, PlannedJob, WitnessJobOrder, assign_to_machines, witness_count};
use super::program::{Witness, WitnessKind, WitnessProgram};
use super::pushdown::Pushdown;
use super::structure::Structure;
use super::view::View;
use super::weights::Weights;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Why there is no such distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// More witnesses must be in one profile than the limit allows.
    #[error("function {} needs {needs} witnesses in one profile, but the limit is {limit}: raise it to {needs}", .function.0)]
    LimitTooSmall {
        /// The function.
        function: WitnessFunctionId,
        /// Witnesses that must be in one profile: of two successors of a branch, or of a function whose placement is fixed.
        needs: usize,
        /// The limit.
        limit: usize,
    },
    /// Maybe more witnesses must be in one profile than the limit allows: the search was given up.
    #[error(
        "no {limit} witnesses of function {} were found that distinguish two successors of a branch, in {SEARCHED} tries: \
         raise the limit to {enough}, which suffices",
        .function.0
    )]
    LimitNotMet {
        /// The function.
        function: WitnessFunctionId,
        /// The limit.
        limit: usize,
        /// With as many it can be done.
        enough: usize,
    },
    /// The placement is for the other kind of witnesses.
    #[error(transparent)]
    OtherKind(#[from] OtherKind),
}

/// Sets of witnesses that are tried for two successors of a branch, which have to be within the limit.
const SEARCHED: usize = 1 << 16;
/// Sets that are tried in all, to have another job in a profile that is all but full; and for each job and profile.
const SQUEEZED: usize = 1 << 15;
const SQUEEZED_EACH: usize = 1 << 8;

/// Plans a distribution.
///
/// # Errors
/// The limit is too small for a branch.
pub fn plan(
    program: &WitnessProgram,
    kind: WitnessKind,
    weights: &Weights,
    options: &DistributionOptions,
) -> Result<PlannedJob, PlanError> {
    plan_with_entries(program, kind, weights, options, &[])
}

/// Plans a distribution in which one profile, or as few as the limit allows, also have `entries`: witnesses for which no branch asks,
/// such as the functions that code outside can call.
///
/// # Errors
/// The limit is too small for a branch.
pub fn plan_with_entries(
    program: &WitnessProgram,
    kind: WitnessKind,
    weights: &Weights,
    options: &DistributionOptions,
    entries: &[Witness],
) -> Result<PlannedJob, PlanError> {
    let structure = Structure::new(Pushdown::new(program, kind));
    let mut views: Vec<View> = program.function_ids().map(|f| View::new(&structure, kind, weights, f)).collect();
    if options.limit.is_some() {
        // Each profile of the function would need room for all of them.
        views.iter_mut().for_each(|view| view.separators.clear());
    }
    let assigned = match options.strategy {
        DistributionStrategy::Weighted => of_all_groupings(&views, options)?,
        DistributionStrategy::Fine => vec![assign_all(&views, Grouping::Fine, options)?],
        DistributionStrategy::Function => vec![assign_all(&views, Grouping::Function, options)?],
        DistributionStrategy::Grouped => vec![assign_all(&views, Grouping::Grouped, options)?],
    };
    let candidates = assigned.into_iter().map(|mut slots| {
        slots.slots.iter_mut().for_each(|s| s.polish(&views));
        Candidate { profiles: slots.slots.iter().map(|s| s.witnesses(&views)).collect(), home: slots.homes() }
    });
    let completion = Completion { program, structure: &structure, kind, weights, options, entries };
    Ok(completion.cheapest(candidates.collect()))
}

/// What a profile has in one function.
#[derive(Clone)]
struct FunctionPlan {
    jobs: Vec<Rc<WitnessJob>>,
    member: Vec<bool>,
    cost: f64,
    size: usize,
}

/// A profile that is being filled.
#[derive(Clone, Default)]
struct Slot {
    functions: BTreeMap<usize, FunctionPlan>,
    cost: f64,
    size: usize,
}

impl Slot {
    /// The function's plan with one more job. More witnesses never distinguish less, so that what the plan has stays as it is, and only
    /// states of the new job's region are tried, for the new job alone: dropped in the order of their costs, or the farthest first, as the
    /// paper's witnesses are edges of the diamond itself. The cheaper is taken.
    fn with(&self, view: &View, job: &Rc<WitnessJob>) -> FunctionPlan {
        let mut jobs = self.functions.get(&job.view).map_or(Vec::new(), |p| p.jobs.clone());
        let before = self.functions.get(&job.view).map_or_else(|| view.separated(), |p| p.member.clone());
        let new: Vec<u32> = job.region.iter().copied().filter(|s| !before[*s as usize]).collect();
        let eliminated = |order: &[u32]| {
            let mut member = before.clone();
            new.iter().for_each(|s| member[*s as usize] = true);
            eliminate(view, &job.required, &mut member, order);
            (view.sum(&member), member)
        };
        let mut best = eliminated(&most_expensive_first(view, &new));
        if !job.whole {
            let local = eliminated(&new.iter().rev().copied().collect::<Vec<_>>());
            best = if local.0 < best.0 { local } else { best };
        }
        let (cost, member) = best;
        jobs.push(Rc::clone(job));
        FunctionPlan { cost, size: view.count(&member), jobs, member }
    }

    /// Drops what later jobs have made superfluous.
    fn polish(&mut self, views: &[View]) {
        for view in self.functions.keys().copied().collect::<Vec<_>>() {
            let plan = &self.functions[&view];
            let polished = (plan.jobs.len() > 1).then(|| planned(&views[view], plan.jobs.clone(), plan.member.clone()));
            if polished.is_some() {
                self.put(view, polished);
            }
        }
    }

    fn put(&mut self, view: usize, plan: Option<FunctionPlan>) {
        if let Some(old) = self.functions.remove(&view) {
            self.cost -= old.cost;
            self.size -= old.size;
        }
        if let Some(plan) = plan {
            self.cost += plan.cost;
            self.size += plan.size;
            self.functions.insert(view, plan);
        }
    }

    fn witnesses(&self, views: &[View]) -> Vec<Witness> {
        let mut all: Vec<Witness> = self.functions.iter().flat_map(|(v, p)| views[*v].witnesses(&p.member)).collect();
        all.sort_unstable();
        all
    }
}

/// Eliminates from marked states what jobs do not need.
fn planned(view: &View, jobs: Vec<Rc<WitnessJob>>, mut member: Vec<bool>) -> FunctionPlan {
    let required: Vec<Requirement> = jobs.iter().flat_map(|j| j.required.clone()).collect();
    let order = droppable(view, &mut member);
    eliminate(view, &required, &mut member, &order);
    FunctionPlan { cost: view.sum(&member), size: view.count(&member), jobs, member }
}

/// All profiles.
#[derive(Clone)]
struct Slots<'a> {
    views: &'a [View],
    slots: Vec<Slot>,
    limit: Option<usize>,
    machines: Option<usize>,
    /// What is left of [`SQUEEZED`].
    effort: usize,
}

impl<'a> Slots<'a> {
    fn new(views: &'a [View], options: &DistributionOptions) -> Slots<'a> {
        let slots = vec![Slot::default(); options.profiles.max(1)];
        Slots { views, slots, limit: options.limit, machines: options.machines, effort: SQUEEZED }
    }

    /// What the machine that runs a profile has to do if the profile costs this.
    fn machine_load(&self, at: usize, cost: f64) -> f64 {
        // Where very many profiles share machines, they fill them evenly whatever one of them costs.
        const FEW: usize = 64;
        let Some(machines) = self.machines.filter(|m| *m < self.slots.len() && self.slots.len() <= FEW) else { return cost };
        let loads: Vec<f64> = self.slots.iter().enumerate().map(|(i, s)| if i == at { cost } else { s.cost }).collect();
        let machine_of = assign_to_machines(&loads, machines.max(1));
        loads.iter().zip(&machine_of).filter(|(_, m)| **m == machine_of[at]).map(|(load, _)| load).sum()
    }

    /// Which profile is to distinguish the successors of each branch.
    fn homes(&self) -> HashMap<AutomatonState, usize> {
        let mut homes = HashMap::new();
        for (at, slot) in self.slots.iter().enumerate() {
            for (view, plan) in &slot.functions {
                let view = &self.views[*view];
                for required in plan.jobs.iter().flat_map(|j| &j.required) {
                    homes.insert(AutomatonState(view.first.0 + view.branches[required.branch].state), at);
                }
            }
        }
        homes
    }

    /// Whether a plan fits into a profile in the place of what that has of the function.
    fn fits(&self, at: usize, view: usize, plan: &FunctionPlan) -> bool {
        let slot = &self.slots[at];
        let others = slot.size - slot.functions.get(&view).map_or(0, |p| p.size);
        self.limit.is_none_or(|limit| others + plan.size <= limit)
    }

    /// Adds a job to the profile with the least load into which it fits; splits it if it fits into none.
    fn add(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        if job.follows {
            return self.add_cheapest(job);
        }
        for at in self.by_load() {
            let plan = self.slots[at].with(&self.views[job.view], &job);
            if self.fits(at, job.view, &plan) {
                self.slots[at].put(job.view, Some(plan));
                return Ok(());
            }
        }
        self.open(job)
    }

    /// Adds a job where the load of the machine grows least, then where the job adds least.
    fn add_best(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        if job.follows {
            return self.add_cheapest(job);
        }
        self.add_where(job, |slots, at, cost, added| (slots.machine_load(at, cost), added))
    }

    /// Adds a job where it adds least: mostly nothing.
    fn add_cheapest(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        self.add_where(job, |_, _, cost, added| (added, cost))
    }

    /// Adds a job to the profile for which the key of its new cost and of what is added is least.
    fn add_where(&mut self, job: Rc<WitnessJob>, key: impl Fn(&Self, usize, f64, f64) -> (f64, f64)) -> Result<(), PlanError> {
        let mut best: Option<((f64, f64), usize, FunctionPlan)> = None;
        for at in 0..self.slots.len() {
            let (slot, view) = (&self.slots[at], &self.views[job.view]);
            let plan = slot.with(view, &job);
            if !self.fits(at, job.view, &plan) {
                continue;
            }
            let added = plan.cost - slot.functions.get(&job.view).map_or(0.0, |p| p.cost);
            let key = key(self, at, slot.cost + added, added);
            if best.as_ref().is_none_or(|(least, ..)| key < *least) {
                best = Some((key, at, plan));
            }
        }
        match best {
            Some((_, at, plan)) => {
                self.slots[at].put(job.view, Some(plan));
                Ok(())
            }
            None => self.open(job),
        }
    }

    fn by_load(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by(|a, b| self.slots[*a].cost.total_cmp(&self.slots[*b].cost));
        order
    }

    /// Adds a job to a profile whose witnesses of the function are found again, as few as there can be; whether there is one.
    fn squeeze(&mut self, job: &Rc<WitnessJob>, limit: usize) -> bool {
        for at in self.by_load() {
            let (slot, view) = (&self.slots[at], &self.views[job.view]);
            let known = slot.functions.get(&job.view);
            let room = limit.saturating_sub(slot.size - known.map_or(0, |p| p.size));
            let mut jobs = known.map_or(Vec::new(), |p| p.jobs.clone());
            jobs.push(Rc::clone(job));
            let required: Vec<Requirement> = jobs.iter().flat_map(|j| j.required.clone()).collect();
            let mut effort = self.effort.min(SQUEEZED_EACH);
            let before = effort;
            let found = fewest(view, &required, room, &mut effort);
            let plan = match found {
                FewestSearch::Found(member) => Some(planned(view, jobs, member)),
                FewestSearch::Nothing | FewestSearch::GivenUp => None,
            };
            self.effort -= before - effort;
            if plan.is_some() {
                self.slots[at].put(job.view, plan);
                return true;
            }
        }
        false
    }

    /// Adds a job in a new profile, or its halves, if it needs more than a profile may have.
    fn open(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        let view = &self.views[job.view];
        let mut plan = Slot::default().with(view, &job);
        if let Some(limit) = self.limit {
            if self.squeeze(&job, limit) {
                return Ok(());
            }
            if plan.size > limit {
                match halves(view, &job) {
                    Some(halves) => return halves.into_iter().try_for_each(|half| self.add(half)),
                    None => plan = within(view, &job, limit, plan.size)?,
                }
            }
        }
        let mut slot = Slot::default();
        slot.put(job.view, Some(plan));
        self.slots.push(slot);
        Ok(())
    }
}

/// The fewest witnesses for a single pair of successors, if they are no more than the limit; `enough` suffice.
fn within(view: &View, job: &Rc<WitnessJob>, limit: usize, enough: usize) -> Result<FunctionPlan, PlanError> {
    let (function, mut effort) = (view.function, SEARCHED);
    let found = fewest(view, &job.required, enough, &mut effort);
    match found {
        FewestSearch::Found(member) if view.count(&member) <= limit => Ok(planned(view, vec![Rc::clone(job)], member)),
        FewestSearch::Found(member) => Err(PlanError::LimitTooSmall { function, needs: view.count(&member), limit }),
        FewestSearch::Nothing => Err(PlanError::LimitTooSmall { function, needs: enough, limit }),
        FewestSearch::GivenUp => Err(PlanError::LimitNotMet { function, limit, enough }),
    }
}

/// A job in two; `None` for a single pair of successors.
fn halves(view: &View, job: &WitnessJob) -> Option<[Rc<WitnessJob>; 2]> {
    let of = |required: Vec<Requirement>| Rc::new(WitnessJob { required, ..WitnessJob::clone(job) });
    if let [only] = job.required.as_slice() {
        let count = view.branches[only.branch].next.len() as u32;
        let all = || (0..count).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
        let pairs: Vec<(u32, u32)> = only.pairs.clone().unwrap_or_else(all);
        if pairs.len() < 2 {
            return None;
        }
        let (a, b) = pairs.split_at(pairs.len() / 2);
        return Some([a, b].map(|pairs| of(vec![Requirement { branch: only.branch, pairs: Some(pairs.to_vec()) }])));
    }
    let (a, b) = job.required.split_at(job.required.len() / 2);
    Some([of(a.to_vec()), of(b.to_vec())])
}

/// All jobs, in the order that was asked for; those that follow from others at last.
fn ordered(views: &[View], grouping: Grouping, order: WitnessJobOrder) -> Vec<Rc<WitnessJob>> {
    let mut all: Vec<Rc<WitnessJob>> =
        views.iter().enumerate().flat_map(|(place, view)| jobs(view, place, grouping)).map(Rc::new).collect();
    if order == WitnessJobOrder::LongestFirst {
        all.sort_by_cached_key(|job| {
            let cost = Slot::default().with(&views[job.view], job).cost;
            // Costs are not negative, so that their bits are ordered as they are.
            std::cmp::Reverse(cost.max(0.0).to_bits())
        });
    }
    all.sort_by_key(|job| job.follows);
    all
}

fn assign_all<'a>(views: &'a [View], grouping: Grouping, options: &DistributionOptions) -> Result<Slots<'a>, PlanError> {
    let mut slots = Slots::new(views, options);
    for job in ordered(views, grouping, options.order) {
        slots.add(job)?;
    }
    Ok(slots)
}

/// For each grouping, each job where it adds least to a machine, and the published assignment. Where the limit is too small for some of
/// them, the others.
fn of_all_groupings<'a>(views: &'a [View], options: &DistributionOptions) -> Result<Vec<Slots<'a>>, PlanError> {
    let (mut all, mut refused) = (Vec::new(), None);
    for grouping in [Grouping::Function, Grouping::Grouped, Grouping::Fine] {
        let mut added = Slots::new(views, options);
        let jobs = ordered(views, grouping, WitnessJobOrder::LongestFirst);
        let added = jobs.into_iter().try_for_each(|job| added.add_best(job)).map(|()| added);
        for slots in [added, assign_all(views, grouping, options)] {
            match slots {
                Ok(slots) => all.push(slots),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    refused.filter(|_| all.is_empty()).map_or(Ok(all), Err)
}
