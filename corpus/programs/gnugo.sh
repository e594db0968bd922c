# shellcheck shell=bash
ABOUT="source package gnugo 3.8-11 (upstream archive); C; 1 thread; game tree search, pattern matching (regression positions; genmove fails an assertion in clang builds)"

fetch() { debian_source gnugo 3.8-11 upstream; }

build() {
    CFLAGS="$CFLAGS -std=gnu89 -fcommon -w" configure --without-curses --without-readline --disable-color
    make -j"$JOBS"
    cp interface/gnugo "$BIN"
}

inputs() {
    cp -r "$SRC/regression/games" .
    { cat "$SRC/regression/reading.tst"; echo quit; } >train.gtp
    { cat "$SRC/regression/connection.tst"; sed -n 1,60p "$SRC/regression/owl.tst"; echo quit; } >ref.gtp
}

train() { x -i train.gtp --mode gtp --quiet --seed 7 --level 8; }

ref() { x -i ref.gtp --mode gtp --quiet --seed 7 --level 8; }

# The program's own tests, but those that the other runs are made of; only commands that do not reach the assertion.
suite() {
    local test
    given cp -r "$SRC/regression/golois" .
    for test in arend atari_atari break_in capture connect ld_owl lazarus manyfaces ninestones nngs nngs2 optics semeai tactics tactics1 trevor trevora unconditional; do
        given eval "{ grep -E '^ *(loadsgf|[0-9]+ +(attack|defend|owl_attack|owl_defend|connect|disconnect|eval_eye|unconditional_status|ladder_attack|same_dragon)) ' '$SRC/regression/$test.tst'; echo quit; } >s-$test.gtp"
        x -i "s-$test.gtp" --mode gtp --quiet --seed 7 --level 8
    done
}
