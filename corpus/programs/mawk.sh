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

# Programs without input, and programs on a log and a table.
suite() {
    local program
    made s.log log 21 200000
    made s.csv csv 22 200000
    while IFS= read -r program; do x "$program"; done <"$HERE/inputs/suite-alone.awk"
    while IFS= read -r program; do
        x "$program" s.log
        x -F, "$program" s.csv
    done <"$HERE/inputs/suite-lines.awk"
    x -v a=3 -v b=x 'BEGIN { print a + 1, b a }'
    x -f bench.awk s.csv
    x -f more.awk s.log
    x -s 2 'BEGIN { print (1 }'
    x -s 3 'BEGIN { exit 3 }'
}
