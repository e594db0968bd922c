# shellcheck shell=bash
ABOUT="source package sqlite3 3.40.1-2+deb12u2; C; 1 thread; sqlite3VdbeExec is one big switch; speedtest1 with its clock replaced by 0"
PACKAGES="tcl"

fetch() { debian_source sqlite3 3.40.1-2+deb12u2; }

build() {
    # The amalgamation is made by helper programs, which are not to be instrumented.
    CFLAGS=-O1 LDFLAGS='' configure --disable-readline
    make BCC=clang-22 sqlite3.c
    sed 's/^sqlite3_int64 speedtest1_timestamp(void){/& return 0;/' test/speedtest1.c >speedtest1.c
    compile "-I. -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION" -lm sqlite3.c speedtest1.c
}

inputs() { :; }

train() { x --memdb --verify --size 25 --testset main; }

ref() {
    x --memdb --verify --size 80 --testset main
    x --memdb --verify --size 15 --testset orm
    x --memdb --verify --size 60 --testset cte
    x --memdb --verify --size 15 --testset fp
}

suite() {
    local set options=("" --without-rowid --primarykey --reprepare --shrink-memory --utf16be --utf16le --strict --notnull --nomemstat "--temp 6" "--pagesize 1024" "--lookaside 0 0" "--repeat 3"
        "--cachesize 20" --big-transactions --autovacuum --incrvacuum "--journal memory" "--pcache 40 5000")
    for set in main cte orm fp; do
        for option in "${options[@]}"; do
            # shellcheck disable=SC2086
            x --memdb --verify --size 4 --testset "$set" $option
        done
    done
    given rm -f s-database
    x --verify --size 4 --journal wal --checkpoint s-database
    given rm -f s-database
    x --size 4 --nosync --exclusive --mmap 1000000 s-database
    given rm -f s-database
    x --memdb --explain --size 2
    x --memdb --stats --size 2
}
