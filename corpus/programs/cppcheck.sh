# shellcheck shell=bash
ABOUT="source package cppcheck 2.10-2; C++; 1 thread; exceptions, virtual calls, standard containers; static analyser"
PACKAGES="libstdc++-12-dev"

fetch() { debian_source cppcheck 2.10-2; }

build() {
    compile '-std=c++11 -Ilib -Iexternals/simplecpp -Iexternals/tinyxml2 -Iexternals/picojson -DNDEBUG -DFILESDIR="\".\"" -w' -lpthread lib/*.cpp cli/*.cpp externals/*/*.cpp
}

inputs() {
    cp -r "$SRC/cfg" .
    mkdir -p code
    cp "$SRC"/lib/*.{h,cpp} "$SRC"/cli/*.cpp code/
    cp -r "$SRC/samples" .
    gen csource 3 60 >code/made.c
}

train() {
    x -q --output-file=found samples code/pathmatch.cpp
    file found
}

ref() {
    x -q --enable=style,warning,performance --inconclusive --output-file=found samples code/path.cpp code/made.c
    file found
}
