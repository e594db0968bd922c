//! Engines that run the jobs of a recording: `--engine local|slurm:OPTIONS|kubernetes:IMAGE,CLAIM|template:COMMAND`.

use anyhow::{Context, Result, ensure};
use std::env;
use std::fs;
use std::path::Path;
use trodden_launch::process::find_in_search_path;
use trodden_launch::{Kubernetes, LaunchEngine, Local, Slurm, Template};
use trodden_profile::private;

/// An engine and its options, as given on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// Processes on this machine.
    #[default]
    Local,
    /// A job array on a Slurm cluster, with options of sbatch.
    Slurm(Vec<String>),
    /// An Indexed Job of Kubernetes.
    Kubernetes {
        /// Name of the container image.
        image: String,
        /// Name of the persistent volume claim that contains the working folder.
        claim: String,
    },
    /// A shell command that takes scripts and runs them on other machines.
    Template(String),
}

/// Settings that apply to all engines.
#[derive(Clone, Copy, Debug)]
pub struct EngineParameters<'a> {
    /// Maximum number of jobs at a time; `None` for the number of cores.
    pub jobs: Option<usize>,
    /// Memory limit of each job on this machine, in bytes.
    pub memory: Option<u64>,
    /// Number of times that a job is run again if it produces no result.
    pub retries: u32,
    /// A folder that all machines share. Kubernetes creates it if necessary.
    pub shared: Option<&'a Path>,
}

impl EngineChoice {
    /// Returns the name of the engine, without its options.
    pub fn name(&self) -> &'static str {
        match self {
            EngineChoice::Local => "local",
            EngineChoice::Slurm(_) => "slurm",
            EngineChoice::Kubernetes { .. } => "kubernetes",
            EngineChoice::Template(_) => "template",
        }
    }

    /// Creates the engine. Fails if the engine needs a shared folder and there is none, or needs a program that is not installed.
    pub fn create_engine(&self, parameters: &EngineParameters) -> Result<LaunchEngine> {
        let EngineParameters { jobs, memory, retries, shared } = *parameters;
        let parallel = jobs.unwrap_or(Local::default().parallel);
        ensure!(
            memory.is_none() || *self == EngineChoice::Local,
            "--memory limits only copies of the program that run on this machine. Omit --memory or --engine"
        );
        Ok(match self {
            EngineChoice::Local => LaunchEngine::Local(Local { parallel, memory, retries }),
            EngineChoice::Slurm(options) => {
                shared.context("--engine slurm needs a working folder that all machines of the cluster share. Add --work FOLDER")?;
                let found = find_in_search_path("sbatch".as_ref(), env::var_os("PATH").as_deref(), Path::is_file);
                ensure!(
                    found.is_some(),
                    "cannot find `sbatch` on the search path. Run this command on a machine that can submit jobs to Slurm"
                );
                LaunchEngine::Slurm(Slurm { options: options.clone(), retries, ..Slurm::default() })
            }
            EngineChoice::Template(line) => LaunchEngine::Template(Template { line: line.clone(), parallel, retries }),
            EngineChoice::Kubernetes { image, claim } => {
                let folder =
                    shared.context("--engine kubernetes needs a folder on the volume of its persistent volume claim. Add --work FOLDER")?;
                private::create_folder(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
                let mount = fs::canonicalize(folder).with_context(|| format!("cannot read {}", folder.display()))?;
                LaunchEngine::Kubernetes(Kubernetes { image: image.clone(), claim: claim.clone(), mount, retries })
            }
        })
    }
}

/// Parses the value of `--engine`.
pub fn parse_engine(text: &str) -> Result<EngineChoice, String> {
    let (name, rest) = text.split_once(':').map_or((text, ""), |(name, rest)| (name, rest.trim()));
    match (name, rest) {
        ("local", "") => Ok(EngineChoice::Local),
        ("slurm", options) => Ok(EngineChoice::Slurm(options.split_whitespace().map(str::to_owned).collect())),
        ("template", line) if ["{script}", "{index}", "{each}"].iter().any(|placeholder| line.contains(placeholder)) => {
            Ok(EngineChoice::Template(line.to_owned()))
        }
        ("template", line) if !line.is_empty() => {
            Err("the template must contain {script}, {index} or {each}, as in template:ssh host{index} sh {script}".into())
        }
        ("kubernetes", rest) => match rest.split_once(',') {
            Some((image, claim)) if !image.is_empty() && !claim.is_empty() => {
                Ok(EngineChoice::Kubernetes { image: image.to_owned(), claim: claim.to_owned() })
            }
            _ => Err("expected a container image and a volume claim: kubernetes:IMAGE,CLAIM".into()),
        },
        _ => Err("expected local, slurm[:OPTIONS], kubernetes:IMAGE,CLAIM or template:COMMAND".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_parsed_with_their_options() {
        assert_eq!(parse_engine("local"), Ok(EngineChoice::Local));
        assert_eq!(parse_engine("slurm"), Ok(EngineChoice::Slurm(Vec::new())));
        assert_eq!(parse_engine("slurm:--partition=a  --time=9"), Ok(EngineChoice::Slurm(vec!["--partition=a".into(), "--time=9".into()])));
        assert_eq!(
            parse_engine("template:ssh host{index}:22 sh {script}"),
            Ok(EngineChoice::Template("ssh host{index}:22 sh {script}".into()))
        );
        let kubernetes = EngineChoice::Kubernetes { image: "registry:5000/tools:1".into(), claim: "data".into() };
        assert_eq!(parse_engine("kubernetes:registry:5000/tools:1,data"), Ok(kubernetes));
        for wrong in ["", "loca", "local:4", "template", "template: ", "template:sh", "kubernetes", "kubernetes:x", "kubernetes:,data"] {
            assert!(parse_engine(wrong).is_err(), "{wrong}");
        }
        let parameters = EngineParameters { jobs: None, memory: None, retries: 1, shared: None };
        assert!(parse_engine("slurm").unwrap().create_engine(&parameters).unwrap_err().to_string().contains("--work"));
    }
}
