#!/bin/sh
# Run as root by `cargo xtask dist --check` in a minimal Debian system. Installs the package, runs trodden as a user and removes the package;
# then unpacks the archive, runs trodden, moves the archive's folder and runs trodden again.
set -eu
clang=
export DEBIAN_FRONTEND=noninteractive
say() { printf '\n-- %s\n' "$*"; }
get() { apt-get -qq -y --no-install-recommends install "$@" > /dist/apt.log 2>&1 || { cat /dist/apt.log; exit 1; }; }
# Argument: a folder to prepend to the search path, or an empty text.
as_user() { runuser -u user -- env HOME=/home/user ${clang:+"TRODDEN_CLANG=$clang"} PATH="${1:+$1:}/usr/local/bin:/usr/bin:/bin" sh -eu /dist/dist-user.sh; }

useradd --create-home user
apt-get -qq update
say "installing the package with its dependencies only"
get /dist/trodden_*.deb
dpkg-query -W trodden clang-22 libc6
dpkg --verify trodden
as_user ""
say "compiling with clang 19"
get clang-19
clang=clang-19
as_user ""
clang=
say "installing make, QEMU, lld and LLVM's tools too"
get zstd make qemu-user lld-22 llvm-22
as_user ""
say "removing the package"
apt-get -qq -y remove trodden > /dist/apt.log 2>&1
for left in /usr/bin/trodden /usr/bin/trodden-cc /usr/bin/trodden-c++ /usr/bin/cargo-trodden /usr/lib/trodden /usr/share/doc/trodden; do
    if [ -e "$left" ] || [ -L "$left" ]; then
        echo "$left still exists after removing the package"
        exit 1
    fi
done

say "unpacking the archive"
tar -xf /dist/trodden-*-x86_64-linux.tar.zst -C /opt
name=$(basename /opt/trodden-*)
as_user "/opt/$name/bin"
say "moving the archive to a folder with a space in its name"
mkdir "/srv/other place"
mv "/opt/$name" "/srv/other place/"
as_user "/srv/other place/$name/bin"
