# shellcheck shell=bash
ABOUT="source package minisat2 2.2.1-5; C++; 1 thread; SAT solver"
PACKAGES="zlib1g-dev libstdc++-12-dev"

fetch() { debian_source minisat2 1:2.2.1-5; }

build() {
    compile "-I. -D__STDC_LIMIT_MACROS -D__STDC_FORMAT_MACROS -DNDEBUG -Wno-reserved-user-defined-literal -w" -lz minisat/simp/*.cc minisat/core/Solver.cc minisat/utils/*.cc
}

inputs() {
    gen cnf 1 220 4260 >random.cnf
    gen factor 1 17 4294967291 >factor.cnf
}

# The statistics show that the search took the same course; rates, times and memory are dropped.
train() { x -s 20 -verb=1 random.cnf; keep '/[Tt]ime|Memory/d; s/\(.*//; p'; }

ref() { x -s 20 -verb=1 factor.cnf; keep '/[Tt]ime|Memory/d; s/\(.*//; p'; }
