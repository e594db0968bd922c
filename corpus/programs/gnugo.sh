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
