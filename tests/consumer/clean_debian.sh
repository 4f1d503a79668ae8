#!/usr/bin/env bash
# Usage: tests/consumer/clean_debian.sh WORK PACKAGE.deb...
# Installs the Debian packages in a tree of Debian where nothing else is, and uses them as a user would: a man page opens, a tool
# runs, an example links by pkg-config. Needs root, debootstrap and apt's mirror; WORK is made anew.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,4p' "$0" | cut -c3-; exit 2; }
work=$(mkdir -p "$1" && cd "$1" && pwd)
shift
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
tree=$work/tree
rm -rf "$tree"
debootstrap --variant=minbase "$suite" "$tree" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log"; exit 1; }
mkdir "$tree/packages"
cp "$@" "$tree/packages/"
cp -fL /etc/resolv.conf "$tree/etc/resolv.conf"

cat >"$tree/packages/use.sh" <<'USE'
set -eux
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt-get -q update
apt-get -q -y --no-install-recommends install /packages/*.deb man-db gcc pkg-config
dpkg --audit
man treadle-micro | grep -q -- --smoke
for page in $(dpkg -L treadle-tools | grep '^/usr/share/man/man1/'); do man "$(basename "$page" .1.gz)" >/page; test -s /page; done
treadle-micro --smoke >/said
treadle-compare --version
cd /usr/share/doc/libtreadle-dev/examples/c
gcc -Wall -Werror epoll.c -o /epoll $(pkg-config --cflags --libs treadle-core treadle-wake)
/epoll
gcc -Wall -Werror lookup.c -o /lookup $(pkg-config --cflags --libs treadle-resolve)
/lookup 127.0.0.2
apt-get -q -y purge libtreadle-dev treadle-tools
test -z "$(find /usr -name '*treadle*' -not -path '/usr/share/doc/*')"
USE
# What the tree mounts goes away with its namespace.
if ! unshare --mount --propagation private bash -c '
  for folder in dev proc sys; do mount --rbind "/$folder" "$1/$folder"; done
  exec chroot "$1" sh /packages/use.sh' _ "$tree" >"$work/use.log" 2>&1 </dev/null; then
  tail -n 30 "$work/use.log"
  exit 1
fi
echo "installed, used and purged: $(cd "$tree/packages" && echo *.deb)"
