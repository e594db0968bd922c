# shellcheck shell=bash
ABOUT="source package link-grammar 5.13.0+dfsg-2 (Debian unstable, upstream archive); C; 1 thread; natural-language parser"
PACKAGES="flex"

fetch() { debian_source link-grammar 5.13.0+dfsg-2 upstream-newer; }

build() {
    sed -E 's/@LINK_MAJOR_VERSION@/5/; s/@LINK_MINOR_VERSION@/13/; s/@LINK_MICRO_VERSION@/0/; s/@[A-Z_]+@//g' link-grammar/link-features.h.in >link-grammar/link-features.h
    flex -o link-grammar/post-process/pp_lexer.c link-grammar/post-process/pp_lexer.l
    compile '-I. -Ilink-grammar -D_GNU_SOURCE -DVERSION="\"5.13.0\"" -DPACKAGE_VERSION="\"5.13.0\"" -DPACKAGE_BUGREPORT="\"\"" -DDICTIONARY_DIR="\".\""
        -DHAVE_REGEX_H -DHAVE_LOCALE_T -DHAVE_LOCALE_T_IN_LOCALE_H -DHAVE_STRNDUP -DHAVE_STRTOK_R -DHAVE_ASPRINTF -DHAVE_POSIX_MEMALIGN -DHAVE_ALLOCA_H -DHAVE_THREADS_H -DHAVE_STRERROR_R -DHAVE_TYPEOF -DHAVE___BUILTIN_TYPES_COMPATIBLE_P -w' \
        "-lm -lpthread" $(find link-grammar/{dict-common,dict-file,dict-ram,linkage,parse,post-process,prepare,print,tokenize} -name '*.c' ! -name aspell-memleak.c ! -name pc-display.c) \
        link-grammar/{config,connectors,disjunct-utils,error,memory-pool,options,resources,sentence,string-set,string-id,tracon-set,utilities}.c \
        link-parser/{link-parser,command-line,lg_readline,parser-utilities,lg_xdg}.c
}

inputs() {
    cp -r "$SRC/data" .
    sed -n 1,250p data/en/corpus-basic.batch >train.batch
    cp data/en/corpus-basic.batch ref.batch
}

train() { x -i train.batch en -batch; }

ref() { x -i ref.batch en -batch; }

# Other sentences of its authors, and other languages.
suite() {
    local part language
    for part in biolg voa fix-needed fixes; do
        given eval "sed -n 1,200p data/en/corpus-$part.batch >s-$part.batch"
        x -i "s-$part.batch" en -batch
    done
    for language in de ar tr kz vn fa; do x -i "data/$language/corpus-basic.batch" "$language" -batch; done
    given eval 'printf "%s\n" "The cat sat on the mat." "Colourless green ideas sleep furiously" "He said that she would come" "" "Is this a test?" >s-some'
    x -i s-some en
    x -i s-some en -links=0 -constituents=1
    x -i s-some en -null -limit=10
    x -i s-some en -disjuncts
    x -s 255 -i s-some en -nonsense
}
