# shellcheck shell=bash
ABOUT="source package bzip2 1.0.8-5; C; 1 thread; block sorting, Huffman coding"

fetch() { debian_source bzip2 1.0.8-5; }

build() {
    compile -D_FILE_OFFSET_BITS=64 "" blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c bzip2.c
}

inputs() {
    gen text 1 6000000 >text
    gen text 2 8000000 >book
    gen log 3 8000000 >log
    gen binary 4 6000000 >bin
    gen random 5 1000000 >random
    gen zeros 0 4000000 >zeros
}

train() { x -c text; }

ref() { x -9 -c book log bin random zeros; }

suite() {
    local kind level
    for kind in text log csv json binary random zeros; do
        made "s-$kind" "$kind" 20 200000
        for level in 1 2 5 9; do x "-$level" -c "s-$kind"; done
        given cp "s-$kind" again
        x -k -f again
        x -t again.bz2
        x -c -d again.bz2
        x -c -d -s again.bz2
        x -d -f again.bz2
    done
    made s-empty text 1 0
    made s-small text 2 40
    x -c s-empty
    x -1 -c s-small
    x -c s-small s-text s-empty
    x -i s-csv -z
    x -c --fast s-json
    x -s 2 -t s-text
    given cp s-log again
    x -f again
    given truncate -s 9000 again.bz2
    x -s 2 -t again.bz2
    x --help
}
