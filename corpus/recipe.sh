#!/usr/bin/env bash
# Real programs from source packages, with inputs that a generator makes: the same bytes on every machine.
#
#   recipe.sh COMMAND PROGRAM WORKDIR
#     list                  names of the programs (no other arguments)
#     about                 source, language, threads
#     packages              Debian packages that the build needs, beside the compilers
#     fetch                 source package or crate -> WORKDIR/src/PROGRAM
#     build                 -> WORKDIR/bin/$BUILD/PROGRAM
#     inputs                -> WORKDIR/in/PROGRAM
#     train | ref | suite   a short and a long run, and many runs of small inputs; prints a checksum of what the program printed
#     train-lines | ref-lines | suite-lines   prints the command lines of a run instead (of a program without a suite: none)
#   PROGRAM may be `all`.
#   recipe.sh source PACKAGE WORKDIR   the original archive of any Debian source package, of the system's release -> WORKDIR/src/PACKAGE
#
# Environment:
#   CC CXX CFLAGS CXXFLAGS LDFLAGS AR RANLIB NM   compilers and flags of the C and C++ builds
#   CARGO_BUILD RUSTFLAGS                         the cargo command of the Rust builds (default: cargo build), and its flags
#   BUILD    name of the build, so that several live side by side (default: plain)
#   RUNNER   prefix of each run, such as `perf stat` or `trodden record --`
#   JOBS     compilations at a time (default: number of cores)
#
# What a run printed is kept as WORKDIR/out/$BUILD/PROGRAM.{train,ref,suite}.{out,err}. Programs run in WORKDIR/in/PROGRAM.
# Each program is a file of its own in programs/: variables ABOUT and PACKAGES, functions fetch, build, inputs, train and ref, and suite if there is one.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${CC:=clang-22}" "${CXX:=clang++-22}" "${CFLAGS:=-O2 -g}" "${LDFLAGS:=}"
: "${CXXFLAGS:=$CFLAGS}" "${AR:=llvm-ar-22}" "${RANLIB:=llvm-ranlib-22}" "${NM:=llvm-nm-22}"
: "${BUILD:=plain}" "${RUNNER:=}" "${JOBS:=$(nproc)}" "${CARGO_BUILD:=cargo build}"
export CC CXX CFLAGS CXXFLAGS LDFLAGS AR RANLIB NM BUILD RUNNER JOBS CARGO_BUILD LC_ALL=C TZ=UTC
unset MAKEFLAGS MFLAGS MAKELEVEL

die() { echo "corpus: $*" >&2; exit 1; }
say() { echo "corpus: $*" >&2; }

# shellcheck source=sources.sh
. "$HERE/sources.sh"
# shellcheck source=building.sh
. "$HERE/building.sh"
# shellcheck source=running.sh
. "$HERE/running.sh"

usage() { sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | sed '$d;s/^# \{0,1\}//' >&2; exit 2; }

programs() { for file in "$HERE"/programs/*.sh; do basename "$file" .sh; done; }

# one COMMAND: for the program $P, whose recipe is read into this shell.
one() {
    [ -f "$HERE/programs/$P.sh" ] || die "no program $P; there are: $(programs | xargs)"
    # shellcheck source=/dev/null
    . "$HERE/programs/$P.sh"
    BIN=$W/bin/$BUILD/$P SRC=$W/src/$P
    case $1 in
    about) echo "$P: $ABOUT" ;;
    packages) echo "${PACKAGES:-}" ;;
    fetch) fetch ;;
    build) build_beside ;;
    inputs) inputs_once ;;
    train | ref | suite) checked_run "$1" ;;
    train-lines | ref-lines) MODE=lines; "${1%-lines}" ;;
    suite-lines) MODE=lines; if has_suite; then suite; fi ;;
    build-here) set -x; build ;;
    inputs-here) set -x; inputs ;;
    *) usage ;;
    esac
}

main() {
    local command=${1:-} selected=${2:-}
    case $command in
    list) programs; return ;;
    about | packages) W= ;;
    '' | -h | --help) usage ;;
    *)
        [ $# = 3 ] || usage
        mkdir -p "$3"
        W=$(cd "$3" && pwd) ;;
    esac
    [ -n "$selected" ] || usage
    if [ "$command" = source ]; then
        P=$selected
        debian_source "$P" '' upstream
        return
    fi
    [ "$selected" != all ] || selected=$(programs)
    for P in $selected; do (one "$command"); done
}
main "$@"
