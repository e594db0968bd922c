//! Decides which blocks each run watches (its *witnesses*). A strategy places and distributes them, or the user provides a file with the
//! distribution. The result is checked before anything runs.
//!
//! A distribution is rejected if it does not determine the execution. The message then names a branch with two successors that cannot be
//! told apart and, if a search finds them, two executions with the same partial traces.

use crate::code::TracedCode;
use crate::merge::describe_witness;
use crate::model::WitnessModel;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use trodden_flow::graph::Node;
use trodden_witness::ambiguous::{self, BlockSequence};
use trodden_witness::condition::{BranchNode, BranchTarget, Violation, check_structure, members};
use trodden_witness::distribution::{assign_to_machines, plan_with_entries};
use trodden_witness::pushdown::Pushdown;
use trodden_witness::structure::PushdownStructure;
use trodden_witness::{
    Distribution, DistributionOptions, DistributionStrategy, Lookahead, PlanError, Weights, Witness, WitnessFunctionId, WitnessJobOrder,
    WitnessKind, check_published_theorems,
};

/// Runs record nodes of the model, which are blocks, rather than edges.
pub const PLAN_WITNESS_KIND: WitnessKind = WitnessKind::Nodes;
const PLAN_LOOKAHEAD: Lookahead = Lookahead::OwnComponent;
const MAX_SEARCHED_PAIRS: usize = 100_000;
const MAX_NAMED_BLOCKS: usize = 12;
const MAX_SEARCHED_VIOLATIONS: usize = 20;

/// A distribution of witnesses over runs, with their addresses and the predicted costs.
pub struct DistributionPlan {
    /// The witnesses that each run watches.
    pub distribution: Distribution,
    /// For each run, the addresses of its witnesses.
    pub sites: Vec<Vec<u64>>,
    /// For each run, the number of the machine that executes it.
    pub machine_of: Vec<usize>,
    /// For each run, the predicted number of executions of its witnesses. This is the cost of the run.
    pub predicted: Vec<f64>,
    /// Number of witnesses that the repair step added to distinguish all branches.
    pub repaired: usize,
}

impl DistributionPlan {
    /// Returns for each machine the runs that it executes one after another. If machines are not `shared`, each run gets a machine of its
    /// own.
    pub fn runs_by_machine(&self, shared: bool) -> Vec<Vec<usize>> {
        if !shared {
            return (0..self.sites.len()).map(|run| vec![run]).collect();
        }
        let count = self.machine_of.iter().max().map_or(0, |m| m + 1);
        let of = |machine: usize| (0..self.sites.len()).filter(|run| self.machine_of[*run] == machine).collect::<Vec<usize>>();
        (0..count).map(of).filter(|runs| !runs.is_empty()).collect()
    }

    /// Creates a plan with a single run, which watches every block.
    pub fn plan_to_watch_all_blocks(model: &WitnessModel, code: &TracedCode, weights: &Weights) -> Self {
        let sites = code.addresses();
        let witnesses: Vec<Witness> = sites.iter().filter_map(|a| model.witnesses.get(a).copied()).collect();
        let predicted = vec![weights.sum(PLAN_WITNESS_KIND, &witnesses)];
        let distribution = Distribution { kind: PLAN_WITNESS_KIND, profiles: vec![witnesses] };
        Self { distribution, sites: vec![sites], machine_of: vec![0], predicted, repaired: 0 }
    }
}

/// The error for a distribution that does not determine the execution.
#[derive(Debug)]
pub struct UnrealizablePlan {
    /// Describes a branch whose successors the distribution does not distinguish, and two executions with the same partial traces.
    pub what: String,
    advice: &'static str,
    /// Whether a single run that watches every block may be used instead. False if the user wrote the distribution or set a limit.
    pub replaceable: bool,
}

impl fmt::Display for UnrealizablePlan {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.advice)
    }
}

impl std::error::Error for UnrealizablePlan {}

/// The file format of distributions: `--plan=json` writes it, `--distribution` reads it.
#[derive(Debug, Serialize, Deserialize)]
struct DistributionFile {
    schema_version: Option<u32>,
    hash: Option<String>,
    /// For each run, its blocks, as `0xADDRESS` or, for the entry of a function, as the function's name.
    profiles: Vec<Vec<String>>,
}

/// Options for planning.
#[derive(Clone, Debug)]
pub struct DistributionPlanOptions {
    /// Number of runs over which witnesses are distributed.
    pub runs: usize,
    /// Maximum number of witnesses per run.
    pub limit: Option<usize>,
    /// Number of machines that share the runs; `None` if each run has its own.
    pub machines: Option<usize>,
    /// The distribution strategy.
    pub strategy: DistributionStrategy,
    /// A file with a distribution to use instead of a strategy.
    pub distribution: Option<PathBuf>,
    /// Whether to trace only calls and returns.
    pub calls: bool,
    /// Whether to check the conditions of the paper, too. They are sufficient, but not necessary.
    pub checks_paper_conditions: bool,
}

/// Plans runs for a model.
pub struct Planner<'a> {
    /// The planning options.
    pub options: &'a DistributionPlanOptions,
    /// The model in which witnesses are placed.
    pub model: &'a WitnessModel,
    /// Functions and blocks of the program, for messages.
    pub code: &'a TracedCode,
    /// Execution frequencies, which determine where witnesses are cheap.
    pub weights: &'a Weights,
    /// Maximum number of addresses that the collector can watch in a run.
    pub max_sites: Option<usize>,
    /// Hash of the traced files. Distribution files for a different build are rejected.
    pub hash: u64,
}

impl Planner<'_> {
    /// Creates the plan, and checks that it determines the execution.
    ///
    /// # Errors
    /// The distribution file is invalid or for a different build, a limit is too small, or the distribution does not determine the
    /// execution.
    pub fn plan(&self) -> Result<DistributionPlan> {
        let structure = PushdownStructure::new(Pushdown::new(&self.model.program, PLAN_WITNESS_KIND));
        let (distribution, repaired) = match &self.options.distribution {
            Some(path) => (self.read_distribution(path)?, 0),
            None => self.distribute_witnesses()?,
        };
        self.require_realizable(&structure, &distribution)?;
        let address = |w: &Witness| self.model.addresses[w.index()].expect("witnesses have addresses");
        let sites: Vec<Vec<u64>> = distribution.profiles.iter().map(|p| p.iter().map(address).collect()).collect();
        let predicted: Vec<f64> = distribution.profiles.iter().map(|p| self.weights.sum(PLAN_WITNESS_KIND, p)).collect();
        let machines = self.options.machines.unwrap_or(sites.len());
        let machine_of = assign_to_machines(&predicted, machines);
        Ok(DistributionPlan { distribution, sites, machine_of, predicted, repaired })
    }

    fn site_limit(&self) -> Option<usize> {
        [self.options.limit, self.max_sites].into_iter().flatten().min()
    }

    /// Distributes witnesses over the runs by the strategy. They include the blocks at which untraced code enters, so that no call from it
    /// is missed. Also returns the number of witnesses that were added to distinguish all branches.
    fn distribute_witnesses(&self) -> Result<(Distribution, usize)> {
        let options = DistributionOptions {
            profiles: self.options.runs,
            strategy: self.options.strategy,
            order: WitnessJobOrder::LongestFirst,
            limit: self.site_limit(),
            machines: self.options.machines,
            lookahead: PLAN_LOOKAHEAD,
        };
        let planned = plan_with_entries(&self.model.program, PLAN_WITNESS_KIND, self.weights, &options, &self.model.entry_witnesses());
        let planned = planned.map_err(|error| self.explain_plan_error(&error))?;
        Ok((Distribution::new(&self.model.program, PLAN_WITNESS_KIND, planned.distribution.profiles)?, planned.repaired))
    }

    fn explain_plan_error(&self, error: &PlanError) -> anyhow::Error {
        match error {
            PlanError::LimitTooSmall { function, needs, limit } => {
                let name = self.function_name(*function);
                let option = if self.options.limit == Some(*limit) {
                    format!("Raise --limit from {limit} to {needs}")
                } else {
                    format!("Choose a collector that can watch more than {limit} blocks, or exclude the function with `--opaque {name}`")
                };
                anyhow!("function `{name}` needs {needs} witnesses (watched blocks) in one run, which exceeds the limit. {option}")
            }
            PlanError::LimitNotMet { function, limit, enough } => {
                let name = self.function_name(*function);
                anyhow!(
                    "found no set of {limit} witnesses (watched blocks) that distinguishes two successors of a branch in function \
                     `{name}`. Allow {enough} witnesses in each run"
                )
            }
            other @ PlanError::WrongWitnessKind(_) => anyhow!("{other}"),
        }
    }

    fn read_distribution(&self, path: &Path) -> Result<Distribution> {
        let text = std::fs::read(path).with_context(|| {
            format!(
                "cannot read witness distribution {} (the blocks to watch in each run). To write one, run `trodden-lab with --plan=json -- \
                 trace record`",
                path.display()
            )
        })?;
        let file: DistributionFile = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} is not a witness distribution, which lists the addresses of the blocks to watch in each run. Expected \
                 {{\"profiles\":[[\"0xADDRESS\",...],...]}}",
                path.display()
            )
        })?;
        let name = path.display();
        ensure!(
            !file.profiles.is_empty(),
            "witness distribution {name} has no profiles (lists of blocks to watch in one run). Add at least one, or omit --distribution"
        );
        let own = format!("{:#x}", self.hash);
        if let Some(hash) = file.hash.filter(|hash| *hash != own) {
            bail!(
                "witness distribution {name} (the blocks to watch in each run) is for a different build (hash {hash} instead of {own}). \
                 Create it again with `--plan=json`"
            );
        }
        let profile = |words: &Vec<String>| words.iter().map(|w| self.parse_witness(w)).collect::<Result<Vec<Witness>>>();
        let profiles = file
            .profiles
            .iter()
            .map(profile)
            .collect::<Result<Vec<_>>>()
            .with_context(|| format!("cannot use witness distribution {name}"))?;
        let distribution = Distribution::new(&self.model.program, PLAN_WITNESS_KIND, profiles)?;
        let most = self.site_limit().unwrap_or(usize::MAX);
        if let Some(at) = distribution.profiles.iter().position(|p| p.len() > most) {
            bail!(
                "entry {} of `profiles` in {name} has {} witnesses (watched blocks), which exceeds the limit of {most} in one run. Remove \
                 some, or raise --limit",
                at + 1,
                distribution.profiles[at].len()
            );
        }
        Ok(distribution)
    }

    /// Converts a word of a distribution file, which is an address or a function's name, to a witness.
    fn parse_witness(&self, word: &str) -> Result<Witness> {
        let address = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16)
                .with_context(|| format!("invalid address `{word}`: expected a hexadecimal number, such as 0x401a2c"))?,
            None => self.code.entry_of(word).with_context(|| format!("no traced function is called `{word}`"))?,
        };
        let known = self.model.witnesses.get(&address).copied();
        known.with_context(|| format!("no block of a traced function starts at {address:#x}. To list the blocks, pass `--plan=json`"))
    }

    fn require_realizable(&self, structure: &PushdownStructure, distribution: &Distribution) -> Result<()> {
        let marked = members(&self.model.program, distribution);
        let pairwise = check_structure(structure, &marked, PLAN_LOOKAHEAD);
        if !pairwise.is_realizable() {
            let found = ambiguous::find_ambiguous_executions(
                structure,
                &marked,
                &pairwise.violations[..pairwise.violations.len().min(MAX_SEARCHED_VIOLATIONS)],
                MAX_SEARCHED_PAIRS,
            );
            return Err(self.describe_violations(&pairwise.violations, &found));
        }
        if self.options.checks_paper_conditions {
            let paper = check_published_theorems(&self.model.program, distribution)?;
            let theorem = if paper.path.is_empty() { "graph" } else { "path" };
            if let Some(violation) = paper.path.iter().chain(&paper.graph).next() {
                bail!(
                    "according to the {theorem} theorem (`--check paper`), the runs may not show {}. The pairwise condition \
                     guarantees that they do. Pass `--check pairwise`",
                    self.describe_targets(violation)
                );
            }
        }
        Ok(())
    }

    fn describe_violations(&self, violations: &[Violation], found: &[Option<[BlockSequence; 2]>]) -> anyhow::Error {
        let shown = found.iter().position(Option::is_some).unwrap_or(0);
        let mut text = format!("no run distinguishes {}", self.describe_targets(&violations[shown]));
        if violations.len() > 1 {
            text.push_str(&format!(" ({} pairs of targets in all)", violations.len()));
        }
        if let Some(Some([one, other])) = found.get(shown) {
            let (one, other) = (self.describe_execution(one), self.describe_execution(other));
            text.push_str(&format!("; these two executions leave the same partial traces:\n  {one}\n  {other}\nRemedy"));
        }
        let advice = match &self.options.distribution {
            Some(_) => "add a block after one of the targets to a profile",
            None if self.site_limit().is_some() => {
                "allow more witnesses in a run (another --collector, a greater --limit of `trodden-lab with`), or exclude the \
                    function with `--opaque`"
            }
            None => "exclude the function with `--opaque`, or pass `--runs 1`",
        };
        let replaceable = self.options.distribution.is_none() && self.site_limit().is_none();
        UnrealizablePlan { what: text, advice, replaceable }.into()
    }

    fn describe_targets(&self, violation: &Violation) -> String {
        let [one, other] = violation.targets.map(|t| self.describe_target(violation.branch, t));
        format!("where {} goes: {one} or {other}", describe_branch(self.model, self.code, violation.branch))
    }

    fn function_name(&self, f: WitnessFunctionId) -> &str {
        // The index after the last function stands for code of other files.
        self.model.functions.get(f.index()).map_or("code of other files", |f| f.map_or("an indirect call", |f| self.code.name(f)))
    }

    fn describe_node(&self, f: WitnessFunctionId, node: Node) -> String {
        describe_witness(self.model, self.code, self.model.program.node_witness(f, node))
    }

    fn describe_target(&self, branch: BranchNode, target: BranchTarget) -> String {
        match (target, branch) {
            (
                BranchTarget::Node(node, _),
                BranchNode::Node(f, _) | BranchNode::Call(f, _) | BranchNode::Opaque(f, _) | BranchNode::Unwinding(f, _),
            ) => self.describe_node(f, node),
            (BranchTarget::Function(callee), _) => format!("into {}", self.function_name(callee)),
            (BranchTarget::Returns, _) => "back to its caller".to_owned(),
            (BranchTarget::Unwinds, _) => "out of the function by unwinding".to_owned(),
            (BranchTarget::Ends, _) => "to the program's end".to_owned(),
            (BranchTarget::Continues | BranchTarget::Node(..), _) => "to what follows it".to_owned(),
        }
    }

    fn describe_execution(&self, blocks: &BlockSequence) -> String {
        let address = |(f, n): &(WitnessFunctionId, Node)| match self.model.addresses[self.model.program.node_witness(*f, *n).index()] {
            Some(address) => format!("{address:#x}"),
            None => "-".to_owned(),
        };
        let skipped = blocks.len().saturating_sub(MAX_NAMED_BLOCKS);
        let named: Vec<String> = blocks.iter().skip(skipped).map(address).collect();
        format!("{}{}", if skipped > 0 { "... " } else { "" }, named.join(" "))
    }
}

/// Describes a branch by its location.
pub fn describe_branch(model: &WitnessModel, code: &TracedCode, branch: BranchNode) -> String {
    let node = |f, n| describe_witness(model, code, model.program.node_witness(f, n));
    match branch {
        BranchNode::Node(f, n) => node(f, n),
        BranchNode::Call(f, n) => format!("a call in {}", node(f, n)),
        BranchNode::Opaque(f, n) => format!("the other file's function that {} calls", node(f, n)),
        BranchNode::Unwinding(f, n) => format!("what is thrown in {}", node(f, n)),
        BranchNode::Outside => "code of other files".to_owned(),
    }
}
