# shellcheck shell=bash
ABOUT="source package hmmer2 2.3.2+dfsg-8 with biosquid 1.9g+cvs20050121-12; C; 1 thread; profile hidden Markov models (hmmsearch)"

fetch() {
    P=biosquid debian_source biosquid 1.9g+cvs20050121-12
    debian_source hmmer2 2.3.2+dfsg-8
}

build() {
    configure --disable-threads
    cp -r "$W/src/biosquid" squid
    rm -f squid/*_main.c squid/test*.c src/*-pvm.c src/pvm.c
    # biosquid comes without a configure script.
    sed 's/@SQD_UINT16@/unsigned short/; s/@SQD_UINT32@/unsigned int/; s/@SQD_UINT64@/unsigned long/' squid/squid.h.in >squid/squid.h
    sed -E 's/^#undef SQUID_(VERSION|DATE|COPYRIGHT|LICENSE).*/#define SQUID_\1 ""/
        s/^#undef (HAVE_STRTOULL|HAVE_FTELLO|HAVE_FSEEKO)\b.*/#define \1 1/; s/^(#define SIZEOF_OFF_T) .*/\1 8/; s/^(#define SIZEOF_UNSIGNED_LONG) .*/\1 8/' squid/squidconf.h.in >squid/squidconf.h
    # Used without a declaration, their values would be taken for integers.
    echo 'double IncompleteGamma(double a, double x); double Gammln(double x);' >>squid/squid.h
    # Both define these, so keep them apart.
    sed -i -E 's/\b(SampleGamma|SampleDirichlet)\b/squid_\1/' squid/dirichlet.c
    rm -f src/{hmmalign,hmmbuild,hmmcalibrate,hmmconvert,hmmemit,hmmfetch,hmmindex,hmmpfam,hmmpostal,weetest,camJul97,states,postprob,threads}.c
    compile "-Isrc -Isquid -std=gnu89 -w" -lm src/*.c squid/*.c
}

inputs() {
    cp "$SRC"/tutorial/{rrm.hmm,globins630.fa} "$SRC"/testsuite/{fn3.hmm,titin.fa} .
    gen protein 5 3000 350 >made.fa
    cat globins630.fa made.fa >train.fa
    gen protein 6 15000 350 >made.fa
    cat titin.fa made.fa >ref.fa
}

train() { x rrm.hmm train.fa; }

ref() { x fn3.hmm ref.fa; }

suite() {
    local model option
    made s-few.fa protein 7 40 120
    given cp "$SRC"/testsuite/{Optiontests.fa,trace_test.hmm,weeviterbi_test.hmm,weeviterbi_test.seq} "$SRC"/tutorial/Artemia.fa .
    for model in rrm.hmm fn3.hmm trace_test.hmm weeviterbi_test.hmm; do
        for option in "" "-A 2" "-E 100" "-T -50" "-Z 1000" --compat "--domE 5" "--domT -20" --forward --null2 --xnu; do
            # shellcheck disable=SC2086
            x $option "$model" s-few.fa
            # shellcheck disable=SC2086
            x $option "$model" Artemia.fa
        done
        x "$model" Optiontests.fa
        x "$model" weeviterbi_test.seq
    done
    x --cut_tc rrm.hmm globins630.fa
    x -s 1 --cut_ga fn3.hmm titin.fa
    x -h
    x -s 1 none.hmm s-few.fa
}
