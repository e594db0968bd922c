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
