//! A Slurm cluster of three nodes on this machine (`xtask/slurm.sh`), one of which can be killed.

use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use trodden_corpus::steps;

/// A temporary cluster. Dropping it stops the cluster.
pub struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    /// Starts a cluster that keeps its files in `folder`.
    pub fn start(folder: &Path) -> Result<Cluster> {
        let cluster = Cluster { folder: folder.to_owned() };
        steps::run(&mut cluster.script_command("start"))?;
        Ok(cluster)
    }

    pub fn configuration_file(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    fn script_command(&self, word: &str) -> Command {
        let mut command = Command::new("bash");
        command.arg(steps::checkout_root().join("xtask/slurm.sh")).arg(word).env("SLURM_FOLDER", &self.folder);
        command
    }

    /// Waits until a job runs on the first node, and then kills the node. Returns the script's output, or `None` if `is_done` was set
    /// before.
    pub fn kill_node(&self, is_done: &AtomicBool) -> Result<Option<String>> {
        while !is_done.load(Ordering::Relaxed) {
            let mut queue = Command::new("squeue");
            queue.args(["-h", "-r", "-w", "n1", "-t", "R", "-o", "%i"]).env("SLURM_CONF", self.configuration_file());
            if steps::output(&mut queue).is_ok_and(|jobs| !jobs.trim().is_empty()) {
                return steps::output(self.script_command("kill-node").arg("n1")).map(|reported| Some(reported.trim().to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(None)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.script_command("stop").status();
    }
}
