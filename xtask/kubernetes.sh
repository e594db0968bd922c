#!/bin/bash
# Checks that Kubernetes would accept the manifest of `trodden record --copies --engine kubernetes`, and that the commands of its pods work. Run it as xtask/kubernetes.sh in the project's folder.
#
# The script builds a program and records it with three copies. It validates the manifest strictly against Kubernetes' schemas, and runs the container's command for each index as pods would,
# killing and restarting one of them. The profile must equal that of the program itself. No cluster is needed, so volumes and images are not tested. Needs python3 with venv (Debian:
# python3-venv), and PyPI for the schemas (kubernetes-validate). TRODDEN can name a trodden that is already built.
set -euo pipefail
project=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$folder"' EXIT

if [ -z "${TRODDEN:-}" ]; then
  cargo build --manifest-path "$project/Cargo.toml" --release --package trodden --package trodden-instrument
  TRODDEN=${CARGO_TARGET_DIR:-$project/target}/release/trodden
fi
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet kubernetes-validate

cd "$folder"
export TRODDEN_CACHE=$folder/store
cat > prog.c <<'C'
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int step(int n) { int s = 0; if (n & 1) s += 3; if (n & 2) s ^= n; if (n & 4) s *= 5; return s; }
__attribute__((noinline)) int walk(int n) { int s = 0; for (int i = 0; i < n; i++) s += i % 3 ? step(i) : -i; return s; }
int main(int argc, char **argv) { printf("%d\n", walk(argc > 1 ? atoi(argv[1]) : 100)); return 0; }
C
"$TRODDEN" cc -O1 -g prog.c -o prog
"$TRODDEN" record --no-store -o whole.trodden -- ./prog 100000 > whole.txt
"$TRODDEN" record --no-store -o copies.trodden --copies 3 --engine kubernetes:tools:1,data --work "$folder/work" --weights whole.trodden -- ./prog 100000 > copies.txt &
record=$!
until manifest=$(grep -ls claimName work/*/job.yaml); do
  kill -0 "$record" || { echo "trodden ended without a manifest" >&2; exit 1; }
  sleep 0.2
done
"$folder/venv/bin/kubernetes-validate" --strict "$manifest"

command=$(sed -n 's/^ *command: \["sh", "\(.*\)"\]$/\1/p' "$manifest")
completions=$(sed -n 's/^ *completions: //p' "$manifest")
JOB_COMPLETION_INDEX=0 timeout --signal KILL 0.001 sh "$command" || echo "the first pod was killed"
for index in $(seq 0 $((completions - 1))); do
  JOB_COMPLETION_INDEX=$index sh "$command" &
done
wait "$record"
cmp whole.txt copies.txt
"$TRODDEN" diff whole.trodden copies.trodden
"$TRODDEN" diff whole.trodden copies.trodden | grep -q ", 0 differ"
echo "the profile of $completions pods equals that of the program"
