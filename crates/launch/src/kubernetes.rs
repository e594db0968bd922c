//! Runs tasks as an Indexed Job of Kubernetes. The engine writes a manifest, which the user applies, and waits for the results.
//!
//! The job's folder must be on a volume that is mounted at the same path on this machine and in the pods. Kubernetes restarts the pod of
//! each failed task.

use crate::{JobEvent, LaunchError, LaunchJob, StopFlag};
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Options of the Kubernetes engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// The container image, which must contain a shell and all programs that the tasks run.
    pub image: String,
    /// The persistent volume claim for the volume that contains the job's folder and the tasks' input files.
    pub claim: String,
    /// Mount point of the volume on this machine and in the pods.
    pub mount: PathBuf,
    /// Maximum number of times that a task without a result is tried again.
    pub retries: u32,
}

/// Renders the manifest that the user applies with `kubectl`.
pub fn render_job_manifest(job: &LaunchJob, kubernetes: &Kubernetes) -> String {
    // A JSON string is also a valid YAML string.
    let text = |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
    let (image, claim, mount) = (text(&kubernetes.image), text(&kubernetes.claim), text(&kubernetes.mount.to_string_lossy()));
    let (name, count, retries, each) = (&job.name, job.tasks.len(), kubernetes.retries, text(&job.rank_script().to_string_lossy()));
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

pub(crate) fn run_with_kubernetes(
    job: &LaunchJob,
    kubernetes: &Kubernetes,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, LaunchError> {
    let path = job.folder.join("job.yaml");
    fs::write(&path, render_job_manifest(job, kubernetes)).map_err(|source| LaunchError::File { path: path.clone(), source })?;
    report(JobEvent::Note(format!("waiting for results. Start the job with: kubectl apply -f {}", path.display())));
    let mut known = 0;
    loop {
        stop.check()?;
        let done = job.tasks.len() - job.tasks_without_result().len();
        if done != known {
            report(JobEvent::Done(done, job.tasks.len()));
            known = done;
        }
        if done == job.tasks.len() {
            return Ok(vec![1; done]);
        }
        sleep(POLL_INTERVAL);
    }
}
