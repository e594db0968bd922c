#!/bin/bash
# A temporary Slurm cluster of several nodes on one machine, for testing jobs: slurm.sh start|stop|kill-node NODE
#
# Needs Debian's packages slurmctld, slurmd, slurm-client and munge, but neither root nor system services. The folder SLURM_FOLDER (default: below TMPDIR) contains
# configuration, key, state and logs. There are NODES nodes (default 3) with CPUS processors each (default 2), named n1, n2, ...; ports start at BASE_PORT (default 26800).
# Commands find the cluster through SLURM_CONF=$SLURM_FOLDER/slurm.conf.
set -euo pipefail
user=$(id -un)
folder=${SLURM_FOLDER:-${TMPDIR:-/tmp}/slurm-$user}
nodes=${NODES:-3}
port=${BASE_PORT:-26800}
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin

configure() {
  local host
  host=$(uname -n)
  mkdir -p "$folder"/{state,spool,log}
  chmod 755 "$folder"
  [ -s "$folder/munge.key" ] || (umask 077 && head -c 128 /dev/urandom > "$folder/munge.key")
  # A node counts as lost after 8 s without a sign of life. Its jobs run again once their credentials have expired.
  cat > "$SLURM_CONF" <<CONF
ClusterName=trial
SlurmctldHost=${host%%.*}(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,batch_sched_delay=0
JobRequeue=1
ReturnToService=2
SlurmdTimeout=8
KillWait=3
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld.log
StateSaveLocation=$folder/state
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdSpoolDir=$folder/spool/%n
SlurmdParameters=config_overrides
NodeName=n[1-$nodes] NodeHostname=${host%%.*} NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=${CPUS:-2} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
}

start() {
  local i
  configure
  munged --key-file="$folder/munge.key" --socket="$folder/munge.sock" --pid-file="$folder/munged.pid" \
    --log-file="$folder/log/munged.log" --seed-file="$folder/munged.seed"
  slurmctld -f "$SLURM_CONF" -c -i
  for i in $(seq "$nodes"); do slurmd -N "n$i" -f "$SLURM_CONF"; done
  for i in $(seq 300); do
    [ "$(sinfo -h -N -t idle -o %N 2> /dev/null | wc -l)" = "$nodes" ] && return
    sleep 0.2
  done
  echo "the cluster did not start: see $folder/log" >&2
  return 1
}

stop() {
  local file
  scontrol shutdown 2> /dev/null || true
  sleep 1
  for file in "$folder"/slurmd.*.pid "$folder"/slurmctld.pid "$folder"/munged.pid; do
    [ ! -s "$file" ] || kill "$(cat "$file")" 2> /dev/null || true
  done
}

# Kills the node's daemon, the daemons of its jobs and all their processes at once, as if the machine had failed.
kill_node() {
  local job step jobs
  jobs=$(squeue -r -h -w "$1" -t R -o %A)
  kill -9 "$(cat "$folder/slurmd.$1.pid")"
  for job in $jobs; do
    for step in $(pgrep -f "^slurmstepd: \[$job\."); do
      # shellcheck disable=SC2046
      kill -9 $(descendants "$step") "$step" 2> /dev/null || true
    done
  done
  echo "killed node $1; jobs on it: $(wc -w <<< "$jobs")"
}

descendants() {
  local child
  for child in $(pgrep -P "$1"); do
    descendants "$child"
    echo "$child"
  done
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  kill-node) kill_node "$2" ;;
  *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
esac
