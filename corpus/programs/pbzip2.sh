# shellcheck shell=bash
ABOUT="source package pbzip2 1.1.13-1 with the sources of bzip2 1.0.8-5; C++ and C; 2 workers + reader and writer"
PACKAGES="libstdc++-12-dev"

fetch() {
    P=bzip2 debian_source bzip2 1.0.8-5
    debian_source pbzip2 1.1.13-1
}

build() {
    cp "$W"/src/bzip2/{*.h,blocksort.c,huffman.c,crctable.c,randtable.c,compress.c,decompress.c,bzlib.c} .
    compile "-I. -pthread -D_POSIX_PTHREAD_SEMANTICS -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 -DUSE_STACKSIZE_CUSTOMIZATION -Wno-reserved-user-defined-literal -w" -pthread \
        pbzip2.cpp BZ2StreamScanner.cpp ErrorContext.cpp blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c
}

inputs() {
    gen text 1 8000000 >text
    gen text 2 16000000 >book
    gen log 3 12000000 >log
    gen binary 4 12000000 >bin
}

train() { x -p2 -q -c text; }

ref() { x -p2 -q -c book log bin; }

suite() {
    local kind level
    for kind in text log csv json binary random zeros; do
        made "s-$kind" "$kind" 20 700000
        for level in 1 4 9; do x -p2 -q "-$level" -c "s-$kind"; done
        x -p1 -q -c "s-$kind"
        x -p2 -q -b3 -c "s-$kind"
        given cp "s-$kind" again
        x -p2 -q -k -f again
        x -p2 -q -t again.bz2
        x -p2 -q -c -d again.bz2
        x -p2 -q -d -f again.bz2
    done
    made s-empty text 1 0
    made s-large log 8 5000000
    x -p2 -q -c s-empty
    x -p2 -q -c s-large s-text
    x -p2 -q -r -c s-large
    x -i s-csv -p2 -q -c
    x -s 2 -p2 -q -t s-text
    x -s 255 -h
}
