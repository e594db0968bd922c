//! Plans distributions: divides branches among profiles, and profiles among machines, to minimise the highest cost of a machine.
use super::WitnessFunctionId;
use super::automaton::AutomatonState;
use super::completion::{DistributionCompletion, ProposedDistribution};
use super::eliminate::{RequiredDistinction, drop_unneeded_states, mark_separators_and_list_others, most_expensive_first};
use super::fewest::{FewestSearch, find_fewest};
use super::jobs::{BranchGrouping, WitnessJob, jobs};
use super::placement::WrongWitnessKind;
pub use super::planned::{
    DistributionOptions, DistributionStrategy, PlannedDistribution, WitnessJobOrder, assign_to_machines, witness_count,
};
use super::program::{Witness, WitnessKind, WitnessProgram};
use super::pushdown::Pushdown;
use super::structure::PushdownStructure;
use super::view::StateGraph;
use super::weights::Weights;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The reason why a distribution could not be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A profile needs more witnesses than the limit allows.
    #[error("function {} needs {needs} witnesses (watched blocks or edges) in one profile, but the limit is {limit}. Raise the limit to \
             {needs}", .function.0)]
    LimitTooSmall {
        /// The function.
        function: WitnessFunctionId,
        /// The number of witnesses that a single profile must contain: to distinguish two successors of a branch, or all witnesses of a
        /// function if these may not be divided.
        needs: usize,
        /// The limit.
        limit: usize,
    },
    /// The search for witnesses within the limit was stopped before it had found any or shown that none exist.
    #[error(
        "found no set of {limit} witnesses (watched blocks or edges) that distinguishes two successors of a branch in function {}, in \
         {MAX_SETS_PER_PAIR} tries. Raise the limit to {enough}",
        .function.0
    )]
    LimitNotMet {
        /// The function.
        function: WitnessFunctionId,
        /// The limit.
        limit: usize,
        /// A limit that suffices.
        enough: usize,
    },
    /// The placement needs the other kind of witnesses.
    #[error(transparent)]
    WrongWitnessKind(#[from] WrongWitnessKind),
}

/// Maximum number of sets of witnesses that are tried for two successors of a branch, to find one within the limit.
const MAX_SETS_PER_PAIR: usize = 1 << 16;
/// Maximum number of sets of witnesses that are tried to fit a job (a group of branches) into a profile that is almost full. The first
/// limit is for all jobs together, the second for each job and profile.
const MAX_TRIED_SETS_FOR_NEARLY_FULL_PROFILES: usize = 1 << 15;
const MAX_TRIED_SETS_PER_JOB_AND_PROFILE: usize = 1 << 8;

/// Plans a distribution.
///
/// Source: D. Saha et al., section 4.1. Jobs ([`jobs`](super::jobs)) are assigned one at a time to the profile with the lowest load. The
/// profile's witnesses are then updated incrementally: the region of the new job is filled with witnesses, and superfluous witnesses are
/// eliminated ([`eliminate`](super::eliminate)). Two parts are not in the paper. The first is the longest-processing-time order (Graham
/// 1969). The second is [`DistributionStrategy::Weighted`]: it assigns each job to the profile whose machine then has the lowest load,
/// which depends on the existing witnesses, and returns the best result of all groupings and of the other strategies. If elimination leaves
/// too many witnesses for a limit, a search tries to find fewer ([`fewest`](super::fewest)). Each distribution is checked for the complete
/// program and repaired before it is compared with others (`completion`).
///
/// Complexity: jobs x (profiles, for `Weighted`) x elimination in the job's region.
///
/// # Errors
/// The limit is too small for a branch.
pub fn plan(
    program: &WitnessProgram,
    kind: WitnessKind,
    weights: &Weights,
    options: &DistributionOptions,
) -> Result<PlannedDistribution, PlanError> {
    plan_with_entries(program, kind, weights, options, &[])
}

/// Plans a distribution that also contains the witnesses `entries`, even if no branch needs them, such as those on functions that code
/// outside can call. As few profiles as the limit allows contain them.
///
/// # Errors
/// The limit is too small for a branch.
pub fn plan_with_entries(
    program: &WitnessProgram,
    kind: WitnessKind,
    weights: &Weights,
    options: &DistributionOptions,
    entries: &[Witness],
) -> Result<PlannedDistribution, PlanError> {
    let structure = PushdownStructure::new(Pushdown::new(program, kind));
    let mut views: Vec<StateGraph> = program.function_ids().map(|f| StateGraph::new(&structure, kind, weights, f)).collect();
    if options.limit.is_some() {
        // A limit bounds the number of witnesses in a profile, and each profile of a function would contain all of its separators, so there
        // are none.
        views.iter_mut().for_each(|view| view.separators.clear());
    }
    let assigned = match options.strategy {
        DistributionStrategy::Weighted => assign_by_all_groupings(&views, options)?,
        DistributionStrategy::Fine => vec![assign_all(&views, BranchGrouping::Fine, options)?],
        DistributionStrategy::Function => vec![assign_all(&views, BranchGrouping::Function, options)?],
        DistributionStrategy::Grouped => vec![assign_all(&views, BranchGrouping::Grouped, options)?],
    };
    let candidates = assigned.into_iter().map(|mut plans| {
        plans.profiles.iter_mut().for_each(|p| p.drop_superfluous_witnesses(&views));
        ProposedDistribution { profiles: plans.profiles.iter().map(|p| p.witnesses(&views)).collect(), home: plans.home_profiles() }
    });
    let completion = DistributionCompletion { program, structure: &structure, kind, weights, options, entries };
    Ok(completion.find_cheapest_completion(candidates.collect()))
}

#[derive(Clone)]
struct FunctionPlan {
    jobs: Vec<Rc<WitnessJob>>,
    member: Vec<bool>,
    cost: f64,
    size: usize,
}

#[derive(Clone, Default)]
struct ProfilePlan {
    functions: BTreeMap<usize, FunctionPlan>,
    cost: f64,
    size: usize,
}

impl ProfilePlan {
    /// Returns the function's plan with one more job. Existing witnesses stay, since additional witnesses never distinguish less; only
    /// states of the new job's region are tried. One variant drops these states in the order of their costs. The other drops the farthest
    /// first, because the paper places witnesses on the edges of the diamond itself. Returns the cheaper result.
    fn plan_with_job(&self, view: &StateGraph, job: &Rc<WitnessJob>) -> FunctionPlan {
        let mut jobs = self.functions.get(&job.view).map_or(Vec::new(), |p| p.jobs.clone());
        let before = self.functions.get(&job.view).map_or_else(|| view.mark_separators(), |p| p.member.clone());
        let new: Vec<u32> = job.region.iter().copied().filter(|s| !before[*s as usize]).collect();
        let eliminated = |order: &[u32]| {
            let mut member = before.clone();
            new.iter().for_each(|s| member[*s as usize] = true);
            drop_unneeded_states(view, &job.required, &mut member, order);
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

    /// Drops witnesses that later jobs have made superfluous.
    fn drop_superfluous_witnesses(&mut self, views: &[StateGraph]) {
        for view in self.functions.keys().copied().collect::<Vec<_>>() {
            let plan = &self.functions[&view];
            let reduced =
                (plan.jobs.len() > 1).then(|| with_superfluous_witnesses_dropped(&views[view], plan.jobs.clone(), plan.member.clone()));
            if reduced.is_some() {
                self.set_function_plan(view, reduced);
            }
        }
    }

    fn set_function_plan(&mut self, view: usize, plan: Option<FunctionPlan>) {
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

    fn witnesses(&self, views: &[StateGraph]) -> Vec<Witness> {
        let mut all: Vec<Witness> = self.functions.iter().flat_map(|(v, p)| views[*v].witnesses(&p.member)).collect();
        all.sort_unstable();
        all
    }
}

fn with_superfluous_witnesses_dropped(view: &StateGraph, jobs: Vec<Rc<WitnessJob>>, mut member: Vec<bool>) -> FunctionPlan {
    let required: Vec<RequiredDistinction> = jobs.iter().flat_map(|j| j.required.clone()).collect();
    let order = mark_separators_and_list_others(view, &mut member);
    drop_unneeded_states(view, &required, &mut member, &order);
    FunctionPlan { cost: view.sum(&member), size: view.count(&member), jobs, member }
}

#[derive(Clone)]
struct ProfilePlans<'a> {
    views: &'a [StateGraph],
    profiles: Vec<ProfilePlan>,
    limit: Option<usize>,
    machines: Option<usize>,
    /// Number of sets that may still be tried, of [`MAX_TRIED_SETS_FOR_NEARLY_FULL_PROFILES`].
    effort: usize,
}

impl<'a> ProfilePlans<'a> {
    fn new(views: &'a [StateGraph], options: &DistributionOptions) -> ProfilePlans<'a> {
        let profiles = vec![ProfilePlan::default(); options.profiles.max(1)];
        ProfilePlans { views, profiles, limit: options.limit, machines: options.machines, effort: MAX_TRIED_SETS_FOR_NEARLY_FULL_PROFILES }
    }

    /// Returns the load that the machine of a profile would have if the profile had this cost.
    fn machine_load(&self, at: usize, cost: f64) -> f64 {
        // With very many profiles, the machines have nearly equal loads, independently of the cost of one profile.
        const MAX_PROFILES: usize = 64;
        let Some(machines) = self.machines.filter(|m| *m < self.profiles.len() && self.profiles.len() <= MAX_PROFILES) else { return cost };
        let loads: Vec<f64> = self.profiles.iter().enumerate().map(|(i, p)| if i == at { cost } else { p.cost }).collect();
        let machine_of = assign_to_machines(&loads, machines.max(1));
        loads.iter().zip(&machine_of).filter(|(_, m)| **m == machine_of[at]).map(|(load, _)| load).sum()
    }

    /// Returns, for each branch, the profile that should distinguish its successors.
    fn home_profiles(&self) -> HashMap<AutomatonState, usize> {
        let mut home_profiles = HashMap::new();
        for (at, profile) in self.profiles.iter().enumerate() {
            for (view, plan) in &profile.functions {
                let view = &self.views[*view];
                for required in plan.jobs.iter().flat_map(|j| &j.required) {
                    home_profiles.insert(AutomatonState(view.first.0 + view.branches[required.branch].state), at);
                }
            }
        }
        home_profiles
    }

    /// Returns true if a profile stays within the limit when a plan replaces its current plan for the function.
    fn fits_in_profile(&self, at: usize, view: usize, plan: &FunctionPlan) -> bool {
        let profile = &self.profiles[at];
        let others = profile.size - profile.functions.get(&view).map_or(0, |p| p.size);
        self.limit.is_none_or(|limit| others + plan.size <= limit)
    }

    /// Adds a job to the least loaded profile that has room for the job, or else to a new profile. A job that
    /// [follows](WitnessJob::follows) others goes where it costs least.
    fn add(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        if job.follows {
            return self.add_cheapest(job);
        }
        for at in self.profiles_by_load() {
            let plan = self.profiles[at].plan_with_job(&self.views[job.view], &job);
            if self.fits_in_profile(at, job.view, &plan) {
                self.profiles[at].set_function_plan(job.view, Some(plan));
                return Ok(());
            }
        }
        self.add_to_new_profile(job)
    }

    /// Adds a job to the profile whose machine then has the lowest load. If several are equal, chooses the profile whose own cost grows
    /// least. A job that follows others goes where it costs least.
    fn add_to_least_loaded_machine(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        if job.follows {
            return self.add_cheapest(job);
        }
        self.add_to_profile_with_lowest_key(job, |plans, at, cost, added| (plans.machine_load(at, cost), added))
    }

    /// Adds a job to the profile whose cost grows least, often not at all.
    fn add_cheapest(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        self.add_to_profile_with_lowest_key(job, |_, _, cost, added| (added, cost))
    }

    /// Adds a job to the profile for which `key` is lowest. `key` computes this from the profile's new cost and the added cost.
    fn add_to_profile_with_lowest_key(
        &mut self,
        job: Rc<WitnessJob>,
        key: impl Fn(&Self, usize, f64, f64) -> (f64, f64),
    ) -> Result<(), PlanError> {
        let mut best: Option<((f64, f64), usize, FunctionPlan)> = None;
        for at in 0..self.profiles.len() {
            let (profile, view) = (&self.profiles[at], &self.views[job.view]);
            let plan = profile.plan_with_job(view, &job);
            if !self.fits_in_profile(at, job.view, &plan) {
                continue;
            }
            let added = plan.cost - profile.functions.get(&job.view).map_or(0.0, |p| p.cost);
            let key = key(self, at, profile.cost + added, added);
            if best.as_ref().is_none_or(|(lowest, ..)| key < *lowest) {
                best = Some((key, at, plan));
            }
        }
        match best {
            Some((_, at, plan)) => {
                self.profiles[at].set_function_plan(job.view, Some(plan));
                Ok(())
            }
            None => self.add_to_new_profile(job),
        }
    }

    fn profiles_by_load(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.profiles.len()).collect();
        order.sort_by(|a, b| self.profiles[*a].cost.total_cmp(&self.profiles[*b].cost));
        order
    }

    /// Tries to fit a job into an existing profile by searching for the fewest witnesses that the profile needs in the function.
    /// Returns false if that fails for all profiles.
    fn add_to_full_profile(&mut self, job: &Rc<WitnessJob>, limit: usize) -> bool {
        for at in self.profiles_by_load() {
            let (profile, view) = (&self.profiles[at], &self.views[job.view]);
            let known = profile.functions.get(&job.view);
            let room = limit.saturating_sub(profile.size - known.map_or(0, |p| p.size));
            let mut jobs = known.map_or(Vec::new(), |p| p.jobs.clone());
            jobs.push(Rc::clone(job));
            let required: Vec<RequiredDistinction> = jobs.iter().flat_map(|j| j.required.clone()).collect();
            let mut effort = self.effort.min(MAX_TRIED_SETS_PER_JOB_AND_PROFILE);
            let before = effort;
            let found = find_fewest(view, &required, room, &mut effort);
            let plan = match found {
                FewestSearch::Found(member) => Some(with_superfluous_witnesses_dropped(view, jobs, member)),
                FewestSearch::NoSet | FewestSearch::Exhausted => None,
            };
            self.effort -= before - effort;
            if plan.is_some() {
                self.profiles[at].set_function_plan(job.view, plan);
                return true;
            }
        }
        false
    }

    /// Adds a job to a new profile. If there is a limit, first tries to fit the job into an existing profile, and splits a job that needs
    /// more witnesses than the limit allows.
    fn add_to_new_profile(&mut self, job: Rc<WitnessJob>) -> Result<(), PlanError> {
        let view = &self.views[job.view];
        let mut plan = ProfilePlan::default().plan_with_job(view, &job);
        if let Some(limit) = self.limit {
            if self.add_to_full_profile(&job, limit) {
                return Ok(());
            }
            if plan.size > limit {
                match split_job(view, &job) {
                    Some(halves) => return halves.into_iter().try_for_each(|half| self.add(half)),
                    None => plan = plan_within_limit(view, &job, limit, plan.size)?,
                }
            }
        }
        let mut profile = ProfilePlan::default();
        profile.set_function_plan(job.view, Some(plan));
        self.profiles.push(profile);
        Ok(())
    }
}

/// Searches for the fewest witnesses that distinguish a single pair of successors. `enough` witnesses are known to suffice.
fn plan_within_limit(view: &StateGraph, job: &Rc<WitnessJob>, limit: usize, enough: usize) -> Result<FunctionPlan, PlanError> {
    let (function, mut effort) = (view.function, MAX_SETS_PER_PAIR);
    let found = find_fewest(view, &job.required, enough, &mut effort);
    match found {
        FewestSearch::Found(member) if view.count(&member) <= limit => {
            Ok(with_superfluous_witnesses_dropped(view, vec![Rc::clone(job)], member))
        }
        FewestSearch::Found(member) => Err(PlanError::LimitTooSmall { function, needs: view.count(&member), limit }),
        FewestSearch::NoSet => Err(PlanError::LimitTooSmall { function, needs: enough, limit }),
        FewestSearch::Exhausted => Err(PlanError::LimitNotMet { function, limit, enough }),
    }
}

/// Splits a job in two. Returns `None` for a single pair of successors.
fn split_job(view: &StateGraph, job: &WitnessJob) -> Option<[Rc<WitnessJob>; 2]> {
    let of = |required: Vec<RequiredDistinction>| Rc::new(WitnessJob { required, ..WitnessJob::clone(job) });
    if let [only] = job.required.as_slice() {
        let count = view.branches[only.branch].next.len() as u32;
        let all = || (0..count).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
        let pairs: Vec<(u32, u32)> = only.pairs.clone().unwrap_or_else(all);
        if pairs.len() < 2 {
            return None;
        }
        let (a, b) = pairs.split_at(pairs.len() / 2);
        return Some([a, b].map(|pairs| of(vec![RequiredDistinction { branch: only.branch, pairs: Some(pairs.to_vec()) }])));
    }
    let (a, b) = job.required.split_at(job.required.len() / 2);
    Some([of(a.to_vec()), of(b.to_vec())])
}

/// Returns all jobs in the requested order. Jobs whose branches are probably distinguished by the witnesses of other jobs come last.
fn ordered_jobs(views: &[StateGraph], grouping: BranchGrouping, order: WitnessJobOrder) -> Vec<Rc<WitnessJob>> {
    let mut all: Vec<Rc<WitnessJob>> =
        views.iter().enumerate().flat_map(|(place, view)| jobs(view, place, grouping)).map(Rc::new).collect();
    if order == WitnessJobOrder::LongestFirst {
        all.sort_by_cached_key(|job| {
            let cost = ProfilePlan::default().plan_with_job(&views[job.view], job).cost;
            // The bits of non-negative floats are ordered like the numbers.
            std::cmp::Reverse(cost.max(0.0).to_bits())
        });
    }
    all.sort_by_key(|job| job.follows);
    all
}

fn assign_all<'a>(views: &'a [StateGraph], grouping: BranchGrouping, options: &DistributionOptions) -> Result<ProfilePlans<'a>, PlanError> {
    let mut plans = ProfilePlans::new(views, options);
    for job in ordered_jobs(views, grouping, options.order) {
        plans.add(job)?;
    }
    Ok(plans)
}

/// Assigns the jobs of each grouping in two ways: as published, and each job to the profile whose machine then has the lowest load. Returns
/// the assignments that succeed, or an error if the limit is too small for every assignment.
fn assign_by_all_groupings<'a>(views: &'a [StateGraph], options: &DistributionOptions) -> Result<Vec<ProfilePlans<'a>>, PlanError> {
    let (mut all, mut first_error) = (Vec::new(), None);
    for grouping in [BranchGrouping::Function, BranchGrouping::Grouped, BranchGrouping::Fine] {
        let mut added = ProfilePlans::new(views, options);
        let jobs = ordered_jobs(views, grouping, WitnessJobOrder::LongestFirst);
        let added = jobs.into_iter().try_for_each(|job| added.add_to_least_loaded_machine(job)).map(|()| added);
        for plans in [added, assign_all(views, grouping, options)] {
            match plans {
                Ok(plans) => all.push(plans),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
    }
    first_error.filter(|_| all.is_empty()).map_or(Ok(all), Err)
}
