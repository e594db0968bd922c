#!/bin/sh
# Run by `dist.sh` as an ordinary user, with trodden on the search path. Uses every installed program and library once.
set -eu
fail() { echo "dist-user.sh: $*" >&2; exit 1; }
work=$(mktemp -d)
cd "$work"
export TRODDEN_CACHE="$work/store"
clang=${TRODDEN_CLANG:-$(command -v clang-22 || command -v clang-19)}

echo "$(trodden --version), in $(dirname "$(command -v trodden)")"
for other in trodden-cc trodden-c++ cargo-trodden; do
    [ "$(readlink "$(command -v "$other")")" = trodden ] || fail "$other is not a link to trodden"
done
trodden doctor

# Count a C++ program built with the one-word driver, and record the waiting time of a C program with threads.
cat > hello.cc << 'END'
#include <cstdio>
#include <vector>
int main() { std::vector<int> all{3, 1, 2}; int sum = 0; for (int one : all) sum += one; std::printf("%d\n", sum); }
END
trodden-c++ -O1 -g hello.cc -o hello
[ "$(trodden record --no-store -o hello.trodden -- ./hello)" = 6 ] || fail "the C++ program does not print 6"
trodden report hello.trodden > hello.text
grep -q main hello.text || fail "the function main is not in the report"
cat > wait.c << 'END'
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *hold(void *_) { pthread_mutex_lock(&lock); usleep(100000); pthread_mutex_unlock(&lock); return _; }
int main(void) {
  pthread_t other;
  pthread_create(&other, 0, hold, 0);
  usleep(20000);
  hold(0);
  return pthread_join(other, 0);
}
END
"$clang" -O1 -g wait.c -o wait -lpthread
trodden waits record --output wait.waits -- ./wait
trodden report wait.waits > waits
head -8 waits
grep -q "lock contention" waits || fail "the report shows no lock contention"

# Count a real program.
cp -r /dist/bzip2 .
cd bzip2
if command -v make > /dev/null; then
    trodden build -- make -s bzip2
else
    trodden-cc -O2 -D_FILE_OFFSET_BITS=64 bzip2.c blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c -o bzip2
fi
trodden record -- ./bzip2 --keep --force sample3.ref
trodden report --top 1 --steps 14 > ../report
cat ../report
grep -q mainGtU ../report || fail "the report does not show mainGtU as the hottest path"
./bzip2 --decompress --stdout sample3.ref.bz2 | cmp - sample3.ref || fail "the output of the instrumented bzip2 is wrong"
trodden report --json > ../report.json
grep -q '"schema_version"' ../report.json || fail "the JSON report has no schema version"

# Trace and simulate the same program, built without instrumentation.
"$clang" -O2 -w -D_FILE_OFFSET_BITS=64 bzip2.c blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c -o plain
head -c 2000 sample3.ref > small
trodden trace record --output small.trace -- ./plain --stdout small > small.bz2
./bzip2 --decompress --stdout small.bz2 | cmp - small || fail "the output of the traced bzip2 is wrong"
trodden report small.trace > shown
head -5 shown
grep -q main shown || fail "the trace does not show the function main"
if command -v qemu-x86_64 > /dev/null; then
    if qemu-x86_64 -h | grep -q -- -plugin; then
        trodden simulate -- ./plain --stdout small > simulated
        head -20 simulated
    elif trodden simulate -- ./plain --stdout small > simulated 2>&1; then
        fail "simulation succeeded although this QEMU does not support plugins"
    else
        # QEMU in Debian 13 is built without plugins.
        grep -q "built with plugins" simulated || fail "the error does not mention that QEMU must be built with plugins"
        echo "this system's QEMU does not support plugins"
    fi
fi
cd /
rm -r "$work"
