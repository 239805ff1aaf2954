#!/usr/bin/env bash
# 32-bit Wine in a folder of its own, from Debian's i386 packages; the system's packages stay as they are.
# As root: it is run by chroot, because a 32-bit tree brings its own loader. To undo it, umount everything
# below FOLDER/root FIRST (this machine's /tmp and the checkout are mounted there), then remove FOLDER.
set -euo pipefail
folder=$(mkdir -p "${1:?usage: wine32.sh FOLDER}" && cd "$1" && pwd)
work=$(cd "$(dirname "$0")/../.." && pwd) # the checkout, and what lies beside it
root=$folder/root
mkdir -p "$folder"/{lists/partial,cache/archives/partial} "$root"
: > "$folder/status"
cat > "$folder/apt.conf" <<CONF
Dir::State "$folder";
Dir::State::status "$folder/status";
Dir::Cache "$folder/cache";
APT::Architecture "i386";
APT::Architectures {"i386";};
CONF
apt-get -qq -c "$folder/apt.conf" update || true # an index that is out of step is left out
apt-get -qq -c "$folder/apt.conf" install -d -y --no-install-recommends wine32
for package in "$folder"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
ln -sf wineserver32 "$root/usr/lib/wine/wineserver"
cp "$root/usr/i686-w64-mingw32/lib/zlib1.dll" "$root/usr/lib/i386-linux-gnu/wine/i386-windows/"
# What it must see, under the same paths.
for seen in /proc /dev /tmp "$work" "$folder"; do
    mkdir -p "$root$seen"
    mountpoint -q "$root$seen" || mount --bind "$seen" "$root$seen"
done
cat > "$folder/wine" <<RUN
#!/bin/sh
exec chroot "$root" /usr/lib/wine/wine "\$@"
RUN
chmod +x "$folder/wine"
export WINEPREFIX=$folder/prefix WINEARCH=win32 WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" HOME=/root
mkdir -p "$WINEPREFIX" "$root/root"
"$folder/wine" wineboot -i || test -f "$WINEPREFIX/system.reg"
cp "$root/usr/i686-w64-mingw32/lib/zlib1.dll" "$WINEPREFIX/drive_c/windows/system32/"
echo "export WINDBG_MCP_WINE32=$folder/wine WINDBG_MCP_WINE32_PREFIX=$folder/prefix"
