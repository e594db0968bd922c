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

suite() {
    local seed options=("" -no-pre -luby -no-luby "-rnd-freq=0.1" "-ccmin-mode=0" "-ccmin-mode=1" "-phase-saving=0" -rcheck -asymm -no-elim "-gc-frac=0.05")
    for seed in {1..48}; do
        made "s-$seed.cnf" cnf "$seed" $((20 + seed * 2)) $((3400 + seed % 8 * 250))
        # shellcheck disable=SC2086
        x -s 10,20 -verb=$((seed % 3)) ${options[seed % ${#options[@]}]} "s-$seed.cnf"
    done
    for seed in 15 35 77 143 221 899; do
        made "s-$seed.factor" factor 1 6 "$seed"
        x -s 10,20 "s-$seed.factor" s-result
    done
    given eval 'echo "p cnf 2 2" >s-empty.cnf'
    x -s 10,20 s-empty.cnf
    given eval 'printf "p cnf 1 2\n1 0\n-1 0\n" >s-no.cnf'
    x -s 20 s-no.cnf
    x -s 1 s-none.cnf
    keep '/[Tt]ime|Memory/d; s/\(.*//; p'
}
