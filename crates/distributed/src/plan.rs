//! Which run watches what: witnesses placed and distributed by a strategy, or by the user's file; checked before anything runs.
//!
//! A distribution that cannot give the execution back is refused; the message names a branch, its two targets, and two executions with
//! equal partial traces where a search finds them.

use crate::code::Code;
use crate::merge::place;
use crate::model::Model;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use trodden_flow::graph::Node;
use trodden_witness::ambiguous::{self, Blocks};
use trodden_witness::condition::{BranchNode, BranchTarget, Violation, check_structure, members};
use trodden_witness::distribution::{assign_to_machines, plan_with_entries};
use trodden_witness::pushdown::Pushdown;
use trodden_witness::structure::Structure;
use trodden_witness::{
    Distribution, DistributionOptions, DistributionStrategy, Lookahead, PlanError, Weights, Witness, WitnessFunctionId, WitnessJobOrder,
    WitnessKind, check_paper,
};

/// What witnesses are: blocks.
pub const KIND: WitnessKind = WitnessKind::Nodes;
const LOOKAHEAD: Lookahead = Lookahead::OwnComponent;
/// Pairs of runs that are tried in all to show that executions are ambiguous.
const SEARCH: usize = 100_000;
/// Blocks of an ambiguous execution that are named.
const NAMED: usize = 12;
/// Branches with many violations: so many are looked at for executions.
const LOOKED_AT: usize = 20;

/// A distribution with its sites.
pub struct Plan {
    /// The witnesses of each run.
    pub distribution: Distribution,
    /// The addresses of each run's witnesses.
    pub sites: Vec<Vec<u64>>,
    /// The machine of each run.
    pub machine_of: Vec<usize>,
    /// What each run is predicted to record: executions of its witnesses.
    pub predicted: Vec<f64>,
    /// Witnesses among them that repair added: without them, some branch was not distinguished.
    pub repaired: usize,
}

impl Plan {
    /// The runs of each machine, which executes them one after the other; without machines, each run is by itself.
    pub fn machines(&self, shared: bool) -> Vec<Vec<usize>> {
        if !shared {
            return (0..self.sites.len()).map(|run| vec![run]).collect();
        }
        let count = self.machine_of.iter().max().map_or(0, |m| m + 1);
        let of = |machine: usize| (0..self.sites.len()).filter(|run| self.machine_of[*run] == machine).collect::<Vec<usize>>();
        (0..count).map(of).filter(|runs| !runs.is_empty()).collect()
    }

    /// One run that watches every block.
    pub fn from_all(model: &Model, code: &Code, weights: &Weights) -> Self {
        let sites = code.addresses();
        let witnesses: Vec<Witness> = sites.iter().filter_map(|a| model.witnesses.get(a).copied()).collect();
        let predicted = vec![weights.sum(KIND, &witnesses)];
        let distribution = Distribution { kind: KIND, profiles: vec![witnesses] };
        Self { distribution, sites: vec![sites], machine_of: vec![0], predicted, repaired: 0 }
    }
}

/// A distribution cannot give the execution back.
#[derive(Debug)]
pub struct Refused {
    /// The branch, its targets, and executions with equal partial traces.
    pub what: String,
    remedy: &'static str,
    /// A run that watches every block may take the place of the distribution: the user has not written it, and has set no limit.
    pub replaceable: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

impl std::error::Error for Refused {}

/// A distribution as a file: `--plan=json` writes it, `--distribution` reads it.
#[derive(Debug, Serialize, Deserialize)]
struct DistributionFile {
    schema_version: Option<u32>,
    /// Hash of the image.
    hash: Option<String>,
    /// The blocks of each run: `0xADDRESS`, or a function's name for its entry.
    profiles: Vec<Vec<String>>,
}

/// What is asked of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Runs that witnesses are distributed over.
    pub runs: usize,
    /// Most witnesses of a run.
    pub limit: Option<usize>,
    /// Machines that share the runs; each run has its own without it.
    pub machines: Option<usize>,
    /// How witnesses are distributed.
    pub strategy: DistributionStrategy,
    /// A distribution that the user has written, instead.
    pub distribution: Option<PathBuf>,
    /// Whether only the sequence of calls is to be given back.
    pub calls: bool,
    /// Whether the paper's conditions are checked, too, which are sufficient and not necessary.
    pub paper: bool,
}

/// What a plan is made from.
pub struct Planner<'a> {
    /// What is asked of the plan.
    pub options: &'a PlanOptions,
    /// The program.
    pub model: &'a Model,
    /// Its names.
    pub code: &'a Code,
    /// Executions of its blocks.
    pub weights: &'a Weights,
    /// Sites that a run can have.
    pub most_sites: Option<usize>,
    /// The image's hash.
    pub hash: u64,
}

impl Planner<'_> {
    /// Makes the plan and checks it.
    ///
    /// # Errors
    /// The file is none of this image, or a limit is too small; or the execution could not be given back.
    pub fn plan(&self) -> Result<Plan> {
        let structure = Structure::new(Pushdown::new(&self.model.program, KIND));
        let (distribution, repaired) = match &self.options.distribution {
            Some(path) => (self.read(path)?, 0),
            None => self.distribute()?,
        };
        self.check(&structure, &distribution)?;
        let address = |w: &Witness| self.model.addresses[w.index()].expect("witnesses have addresses");
        let sites: Vec<Vec<u64>> = distribution.profiles.iter().map(|p| p.iter().map(address).collect()).collect();
        let predicted: Vec<f64> = distribution.profiles.iter().map(|p| self.weights.sum(KIND, p)).collect();
        let machines = self.options.machines.unwrap_or(sites.len());
        let machine_of = assign_to_machines(&predicted, machines);
        Ok(Plan { distribution, sites, machine_of, predicted, repaired })
    }

    fn limit(&self) -> Option<usize> {
        [self.options.limit, self.most_sites].into_iter().flatten().min()
    }

    /// Witnesses by the strategy; what code outside can enter is watched, too, so that no call from there is overlooked.
    /// With it comes how many witnesses repair added.
    fn distribute(&self) -> Result<(Distribution, usize)> {
        let options = DistributionOptions {
            profiles: self.options.runs,
            strategy: self.options.strategy,
            order: WitnessJobOrder::LongestFirst,
            limit: self.limit(),
            machines: self.options.machines,
            lookahead: LOOKAHEAD,
        };
        let planned = plan_with_entries(&self.model.program, KIND, self.weights, &options, &self.model.entries());
        let planned = planned.map_err(|error| self.explained(&error))?;
        Ok((Distribution::new(&self.model.program, KIND, planned.distribution.profiles)?, planned.repaired))
    }

    fn explained(&self, error: &PlanError) -> anyhow::Error {
        match error {
            PlanError::LimitTooSmall { function, needs, limit } => {
                let name = self.function(*function);
                let option = if self.options.limit == Some(*limit) {
                    format!("raise --limit from {limit} to {needs}")
                } else {
                    format!("take a collector with more than {limit} sites, or leave it out with `--opaque {name}`")
                };
                anyhow!("`{name}` needs {needs} witnesses in one run: {option}")
            }
            PlanError::LimitNotMet { function, limit, enough } => {
                let name = self.function(*function);
                anyhow!("no {limit} witnesses were found that distinguish two successors of a branch in `{name}`: take {enough} in one run")
            }
            other @ PlanError::OtherKind(_) => anyhow!("{other}"),
        }
    }

    /// A distribution that the user wrote.
    fn read(&self, path: &Path) -> Result<Distribution> {
        let text = std::fs::read(path).with_context(|| {
            format!("cannot read the distribution {} (`trodden-lab with --plan=json -- trace record` prints one)", path.display())
        })?;
        let file: DistributionFile = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no distribution: it is to be {{\"profiles\":[[\"0xADDRESS\",...],...]}}", path.display()))?;
        let name = path.display();
        ensure!(!file.profiles.is_empty(), "{name} has no profile: give at least one, or leave --distribution out");
        let own = format!("{:#x}", self.hash);
        if let Some(hash) = file.hash.filter(|hash| *hash != own) {
            bail!("{name} is for another build (hash {hash}, this one has {own}): make it again with `--plan=json`");
        }
        let profile = |words: &Vec<String>| words.iter().map(|w| self.witness(w)).collect::<Result<Vec<Witness>>>();
        let profiles = file.profiles.iter().map(profile).collect::<Result<Vec<_>>>().with_context(|| format!("in {name}"))?;
        let distribution = Distribution::new(&self.model.program, KIND, profiles)?;
        let most = self.limit().unwrap_or(usize::MAX);
        if let Some(at) = distribution.profiles.iter().position(|p| p.len() > most) {
            bail!("profile {} of {name} has {} witnesses, more than the limit of {most}", at + 1, distribution.profiles[at].len());
        }
        Ok(distribution)
    }

    /// The witness that a word names.
    fn witness(&self, word: &str) -> Result<Witness> {
        let address = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).with_context(|| format!("`{word}` is no address"))?,
            None => self.code.entry_of(word).with_context(|| format!("there is no function `{word}`, or it stays opaque"))?,
        };
        let known = self.model.witnesses.get(&address).copied();
        known.with_context(|| format!("no block starts at {address:#x} in a function that is traced: `--plan=json` lists such blocks"))
    }

    /// Refuses what cannot be given back.
    fn check(&self, structure: &Structure, distribution: &Distribution) -> Result<()> {
        let marked = members(&self.model.program, distribution);
        let pairwise = check_structure(structure, &marked, LOOKAHEAD);
        if !pairwise.is_realizable() {
            let found = ambiguous::find(structure, &marked, &pairwise.violations[..pairwise.violations.len().min(LOOKED_AT)], SEARCH);
            return Err(self.refused(&pairwise.violations, &found));
        }
        if self.options.paper {
            let paper = check_paper(&self.model.program, distribution)?;
            let theorem = if paper.path.is_empty() { "graph" } else { "path" };
            if let Some(violation) = paper.path.iter().chain(&paper.graph).next() {
                bail!(
                    "the paper's {theorem} condition rejects {}; the pairwise condition holds, and is enough: take `--check pairwise`",
                    self.pair(violation)
                );
            }
        }
        Ok(())
    }

    fn refused(&self, violations: &[Violation], found: &[Option<[Blocks; 2]>]) -> anyhow::Error {
        let shown = found.iter().position(Option::is_some).unwrap_or(0);
        let mut text = format!("no run distinguishes {}", self.pair(&violations[shown]));
        if violations.len() > 1 {
            text.push_str(&format!(" ({} pairs of targets in all)", violations.len()));
        }
        if let Some(Some([one, other])) = found.get(shown) {
            let (one, other) = (self.execution(one), self.execution(other));
            text.push_str(&format!("; these two executions leave the same partial traces:\n  {one}\n  {other}\nWhat helps"));
        }
        let remedy = match &self.options.distribution {
            Some(_) => "add a block behind one of the targets to a profile",
            None if self.limit().is_some() => {
                "allow more witnesses in a run (another --collector, a greater --limit of `trodden-lab with`), or leave its \
                    function out with `--opaque`"
            }
            None => "leave its function out with `--opaque`, or take `--runs 1`",
        };
        let replaceable = self.options.distribution.is_none() && self.limit().is_none();
        Refused { what: text, remedy, replaceable }.into()
    }

    fn pair(&self, violation: &Violation) -> String {
        let [one, other] = violation.targets.map(|t| self.target(violation.branch, t));
        format!("where {} goes: {one} or {other}", branch_in_words(self.model, self.code, violation.branch))
    }

    fn function(&self, f: WitnessFunctionId) -> &str {
        // The last one is the code outside.
        self.model.functions.get(f.index()).map_or("code of other files", |f| f.map_or("an indirect call", |f| self.code.name(f)))
    }

    fn node(&self, f: WitnessFunctionId, node: Node) -> String {
        place(self.model, self.code, self.model.program.node_witness(f, node))
    }

    fn target(&self, branch: BranchNode, target: BranchTarget) -> String {
        match (target, branch) {
            (
                BranchTarget::Node(node, _),
                BranchNode::Node(f, _) | BranchNode::Call(f, _) | BranchNode::Opaque(f, _) | BranchNode::Unwinding(f, _),
            ) => self.node(f, node),
            (BranchTarget::Function(callee), _) => format!("into {}", self.function(callee)),
            (BranchTarget::Returns, _) => "back to its caller".to_owned(),
            (BranchTarget::Unwinds, _) => "out of the function by unwinding".to_owned(),
            (BranchTarget::Ends, _) => "to the program's end".to_owned(),
            (BranchTarget::GoesOn | BranchTarget::Node(..), _) => "on behind it".to_owned(),
        }
    }

    fn execution(&self, blocks: &Blocks) -> String {
        let address = |(f, n): &(WitnessFunctionId, Node)| match self.model.addresses[self.model.program.node_witness(*f, *n).index()] {
            Some(address) => format!("{address:#x}"),
            None => "-".to_owned(),
        };
        let skipped = blocks.len().saturating_sub(NAMED);
        let named: Vec<String> = blocks.iter().skip(skipped).map(address).collect();
        format!("{}{}", if skipped > 0 { "... " } else { "" }, named.join(" "))
    }
}

/// A branch by its place.
pub fn branch_in_words(model: &Model, code: &Code, branch: BranchNode) -> String {
    let node = |f, n| place(model, code, model.program.node_witness(f, n));
    match branch {
        BranchNode::Node(f, n) => node(f, n),
        BranchNode::Call(f, n) => format!("a call in {}", node(f, n)),
        BranchNode::Opaque(f, n) => format!("the other file's function that {} calls", node(f, n)),
        BranchNode::Unwinding(f, n) => format!("what is thrown in {}", node(f, n)),
        BranchNode::Outside => "code of other files".to_owned(),
    }
}
