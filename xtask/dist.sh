#!/bin/sh
# Run by `cargo xtask dist --check` in a bare Debian system, as root: installs the package, runs it as a user, removes it; unpacks the
# archive, runs that, moves it, runs it again.
set -eu
export DEBIAN_FRONTEND=noninteractive
say() { printf '\n-- %s\n' "$*"; }
get() { apt-get -qq -y --no-install-recommends install "$@" > /dist/apt.log 2>&1 || { cat /dist/apt.log; exit 1; }; }
# A folder to put before the search path, or none.
as_user() { runuser -u user -- env HOME=/home/user PATH="${1:+$1:}/usr/local/bin:/usr/bin:/bin" sh -eu /dist/dist-user.sh; }

useradd --create-home user
apt-get -qq update
say "the package is installed, with what it depends on and no more"
get /dist/trodden_*.deb
dpkg-query -W trodden clang-22 libc6
dpkg --verify trodden
as_user ""
say "the same with make, QEMU, lld and LLVM's tools"
get make qemu-user lld-22 llvm-22
as_user ""
say "the package is removed"
apt-get -qq -y remove trodden > /dist/apt.log 2>&1
for left in /usr/bin/trodden /usr/bin/trodden-cc /usr/bin/trodden-c++ /usr/bin/cargo-trodden /usr/lib/trodden /usr/share/doc/trodden; do
    if [ -e "$left" ] || [ -L "$left" ]; then
        echo "$left is left behind"
        exit 1
    fi
done

say "the archive is unpacked"
tar -xf /dist/trodden-*-x86_64-linux.tar.gz -C /opt
name=$(basename /opt/trodden-*)
as_user "/opt/$name/bin"
say "the archive is moved to a folder whose name has a blank"
mkdir "/srv/other place"
mv "/opt/$name" "/srv/other place/"
as_user "/srv/other place/$name/bin"
