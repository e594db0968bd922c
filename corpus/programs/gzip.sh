# shellcheck shell=bash
ABOUT="source package gzip 1.12-1; C; 1 thread; deflate"

fetch() { debian_source gzip 1.12-1; }

build() {
    configure --disable-dependency-tracking
    # Debian's patches make files of the build system look out of date, which they are not.
    make -j"$JOBS" MAKEINFO=true ACLOCAL=true AUTOCONF=true AUTOHEADER=true AUTOMAKE=true
    cp gzip "$BIN"
}

inputs() {
    gen text 1 6000000 >text
    gen text 2 5000000 >book
    gen log 3 8000000 >log
    gen binary 4 4000000 >bin
    gen random 5 1000000 >random
    gen zeros 0 5000000 >zeros
}

train() { x -n -c text; }

ref() { x -n -9 -c book log bin random zeros; }
