# shellcheck shell=bash
ABOUT="source package mawk 1.3.4.20200120-3.1; C; 1 thread; byte code interpreter, own regular expressions"

fetch() { debian_source mawk 1.3.4.20200120-3.1; }

build() {
    configure
    make
    cp mawk "$BIN"
}

inputs() {
    gen log 11 8000000 >small.log
    gen log 12 14000000 >big.log
    gen csv 13 6000000 >big.csv
    cp "$HERE"/inputs/*.awk .
}

train() { x -f bench.awk small.log; }

ref() { x -f bench.awk -f more.awk big.log big.csv; }
