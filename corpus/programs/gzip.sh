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

suite() {
    local kind level
    for kind in text log csv json binary random zeros; do
        made "s-$kind" "$kind" 20 200000
        for level in 1 2 3 4 5 6 7 8 9; do x -n "-$level" -c "s-$kind"; done
        given cp "s-$kind" again
        x -n -f again
        x -l again.gz
        x -t again.gz
        x -d -c again.gz
        x -i again.gz -d
        x -d -f again.gz
    done
    made s-empty text 1 0
    made s-small text 2 40
    x -n -c s-empty
    x -n -1 -c s-small
    x -n -c s-small s-text s-empty
    x -n --rsyncable -c s-log
    x -i s-csv -n -c
    x -s 1 -t s-text
    given "$(type -P gzip)" -n -k -f s-log
    given truncate -s 9000 s-log.gz
    x -s 1 -t s-log.gz
    x --help
}
