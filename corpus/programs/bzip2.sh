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
