//! Tasks as an Indexed Job of Kubernetes: a manifest is written, the user applies it, and results are waited for.
//!
//! The job's folder must be on a volume that the pods see under the same name. Pods that fail are started again, each task for itself.

use crate::{Error, JobEvent, LaunchJob, LaunchStop};
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// How often pods are looked at.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// What pods need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// Their container image, with a shell and what the commands need.
    pub image: String,
    /// The claim of the volume that has the job's folder and whatever else the commands read.
    pub claim: String,
    /// Where that volume is mounted, here and there.
    pub mount: PathBuf,
    /// How often a task without a result is run again.
    pub retries: u32,
}

/// The manifest of a job.
pub fn manifest(job: &LaunchJob, kubernetes: &Kubernetes) -> String {
    // JSON strings are YAML strings.
    let text = |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
    let (image, claim, mount) = (text(&kubernetes.image), text(&kubernetes.claim), text(&kubernetes.mount.to_string_lossy()));
    let (name, count, retries, each) = (&job.name, job.tasks.len(), kubernetes.retries, text(&job.each().to_string_lossy()));
    format!(
        "apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {count}
  parallelism: {count}
  backoffLimitPerIndex: {retries}
  maxFailedIndexes: {count}
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: task
          image: {image}
          command: [\"sh\", {each}]
          volumeMounts:
            - name: job
              mountPath: {mount}
      volumes:
        - name: job
          persistentVolumeClaim:
            claimName: {claim}
"
    )
}

/// Writes the manifest and waits for results.
pub(crate) fn run(
    job: &LaunchJob,
    kubernetes: &Kubernetes,
    stop: &LaunchStop,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, Error> {
    let path = job.folder.join("job.yaml");
    fs::write(&path, manifest(job, kubernetes)).map_err(|source| Error::File { path: path.clone(), source })?;
    report(JobEvent::Note(format!("waiting for results; start the job with: kubectl apply -f {}", path.display())));
    let mut known = 0;
    loop {
        stop.check()?;
        let done = job.tasks.len() - job.open().len();
        if done != known {
            report(JobEvent::Done(done, job.tasks.len()));
            known = done;
        }
        if done == job.tasks.len() {
            return Ok(vec![1; done]);
        }
        sleep(POLL_EVERY);
    }
}
