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
# Debian 13 has clang 19; clang 22 is a security update of both releases.
. /etc/os-release
case $VERSION_ID in 12) first=22 second=19 ;; *) first=19 second=22 ;; esac
say "installing the package with its dependencies only, and with clang $first"
started=$(date +%s)
get "clang-$first" /dist/trodden_*.deb
as_user ""
echo "installed, built, recorded and reported in $(($(date +%s) - started)) s"
if [ -e "/usr/bin/clang-$second" ] || command -v rustc || command -v cargo; then
    echo "clang $second or Rust was installed as well"
    exit 1
fi
dpkg-query -W trodden "clang-$first" libc6
dpkg --verify trodden
say "compiling with clang $second"
get "clang-$second"
clang=clang-$second
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
