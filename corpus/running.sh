# shellcheck shell=bash
# Inputs and runs.

# Checksum of a sample of the generator's files.
SAMPLE="1132207387 150361"

gen() { "$W/in/gen" "$@"; }

generator() {
    [ ! -e "$W/in/gen" ] || return 0
    clang-22 -O2 -o "$W/in/gen.new" "$HERE/inputs/gen.c"
    [ "$({ "$W/in/gen.new" log 7 50000; "$W/in/gen.new" json 7 50000; "$W/in/gen.new" text 7 50000; } | cksum)" = "$SAMPLE" ] ||
        die "the generator of inputs gives other bytes than it should: clang-22 must compile it"
    mv "$W/in/gen.new" "$W/in/gen"
}

inputs_once() {
    mkdir -p "$W/in/$P"
    generator
    [ ! -e "$W/in/$P/.done" ] || return 0
    [ -e "$SRC/.fetched" ] || die "$P: sources are missing; fetch them first"
    (cd "$W/in/$P" && exec bash "$HERE/recipe.sh" inputs-here "$P" "$W") >"$W/in/$P.log" 2>&1 || { tail -20 "$W/in/$P.log" >&2; die "$P: inputs failed"; }
    touch "$W/in/$P/.done"
}

has_suite() { [ "$(type -t suite)" = function ]; }

# made NAME KIND SEED SIZE [ARG]: an input of a suite, made by the generator if it is not there.
made() {
    [ "$MODE" != lines ] && [ ! -e "$1" ] || return 0
    gen "${@:2}" >"$1.new"
    mv "$1.new" "$1"
}

# given COMMAND...: what has to be done before the next run.
given() { [ "$MODE" = lines ] || "$@"; }

# x [-i FILE] [-s STATUS[,STATUS...]] ARGUMENT...: one run of the program; -i: standard input; -s: exit statuses other than 0 that are right.
x() {
    local in=/dev/null want=0 got=0
    while :; do
        case ${1:-} in
        -i) in=$2; shift 2 ;;
        -s) want=$2; shift 2 ;;
        *) break ;;
        esac
    done
    if [ "$MODE" = lines ]; then
        printf 'cd %q && %q' "$W/in/$P" "$BIN"
        [ $# = 0 ] || printf ' %q' "$@"
        printf ' < %q\n' "$in"
        return
    fi
    # shellcheck disable=SC2086
    $RUNNER "$BIN" "$@" <"$in" >>"$OUT.out" 2>>"$OUT.err" || got=$?
    [[ ,$want, = *,"$got",* ]] || { tail -5 "$OUT.err" >&2; die "$P: exit status $got, not $want (output: $OUT.out, $OUT.err)"; }
}

# file NAME: a file that the program wrote belongs to what is compared.
file() {
    [ "$MODE" != lines ] || return 0
    cat "$1" >>"$OUT.out"
    rm -f "$1"
}

# keep SCRIPT: only what `sed -nE SCRIPT` leaves of the output is compared (programs that print times).
keep() {
    [ "$MODE" != lines ] || return 0
    sed -nE "$1" "$OUT.out" >"$OUT.kept"
    mv "$OUT.kept" "$OUT.out"
}

checked_run() {
    OUT=$W/out/$BUILD/$P.$1
    [ -x "$BIN" ] || die "$P: no program $BIN; build it first"
    [ -e "$W/in/$P/.done" ] || die "$P: inputs are missing; make them first"
    [ "$1" != suite ] || has_suite || die "$P has no suite"
    mkdir -p "$W/out/$BUILD"
    : >"$OUT.out"
    : >"$OUT.err"
    MODE=run
    cd "$W/in/$P"
    "$1"
    printf '%s %s %s\n' "$P" "$1" "$(sha256sum <"$OUT.out" | cut -c1-32)"
}
