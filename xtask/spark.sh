#!/bin/bash
# Checks that the query in the guide's chapter on reports of many users (docs/book/src/field.md) gives the same results in Spark and DuckDB as in trodden. Run it as xtask/spark.sh in the
# project's folder.
#
# The script builds a program, packs reports of its untested paths for USERS users (default 30) and an anonymous one, and aggregates them to a Parquet file, on which both engines run the guide's
# query. Needs python3 with venv, a Java runtime (Debian: python3-venv, openjdk-17-jre-headless), and PyPI, from which about 500 MB are fetched into a folder that is removed afterwards.
# SPARK_PYTHON can name a Python with pyspark and duckdb, and TRODDEN a trodden that is built with the feature parquet.
set -euo pipefail
project=$(cd "$(dirname "$0")/.." && pwd)
users=${USERS:-30}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if [ -z "${TRODDEN:-}" ]; then
  cargo build --manifest-path "$project/Cargo.toml" --release --package trodden --package trodden-instrument --features trodden/parquet
  TRODDEN=${CARGO_TARGET_DIR:-$project/target}/release/trodden
fi
if [ -z "${SPARK_PYTHON:-}" ]; then
  python3 -m venv "$folder/venv"
  SPARK_PYTHON=$folder/venv/bin/python
  "$SPARK_PYTHON" -m pip install --quiet pyspark duckdb
fi

cd "$folder"
export TRODDEN_CACHE=$folder/store
cat > prog.c <<'C'
#include <stdlib.h>
#define NOP __asm__ volatile("nop")
__attribute__((noinline)) int classify(int n) {
    int r = 0;
    for (int bit = 0; bit < 4; bit++) if (n >> bit & 1) { NOP; r += bit; } else { NOP; NOP; r -= 1; }
    if (n & 16) { NOP; r *= 3; }
    if (n & 32) { NOP; NOP; r += 7; }
    if (n & 64) { NOP; NOP; NOP; r ^= 5; }
    return r;
}
__attribute__((noinline)) int rare(int n) { if (n & 1) NOP; return n * 2; }
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 1; i < argc; i++) { int n = atoi(argv[i]); sum += classify(n); if (n > 100) sum += rare(n); }
    return sum > 1000000;
}
C
"$TRODDEN" cc -O1 -g -fno-unroll-loops prog.c -o prog
"$TRODDEN" record --suite tests -- ./prog 1 2 > tests.log 2>&1
"$TRODDEN" instrument ./prog --residual tests -o prog.field 2>> tests.log
# Arguments that differ between users, so that many users share only a few paths.
for user in $(seq 0 "$users"); do
  for report in 1 2; do
    TRODDEN_OUTPUT=$folder/one.raw ./prog.field $((user * 7 % 128)) $((user * user % 61)) $((16 * report)) 48 $((user % 5 * 30))
    "$TRODDEN" fleet pack one.raw --user "$([ "$user" = 0 ] || echo "user $user")" -o one.field 2>> tests.log
    cat one.field >> all.field
    rm one.raw
  done
done
"$TRODDEN" fleet aggregate all.field --rows rows.parquet --top 1000000 --json > sums.json
"$SPARK_PYTHON" "$project/xtask/spark.py" "$project/docs/book/src/field.md" sums.json
