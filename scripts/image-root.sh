#!/usr/bin/env bash
# The steps of the Dockerfile where there is no container engine: in two plain Debian roots, made by debootstrap, entered
# by chroot. "scripts/image-root.sh WHEEL [slim|java]", as root. Says how large the image is, and runs kstate in it as the
# user that it has. Some minutes; nothing of it is left.
set -euo pipefail
steps=$(cd "$(dirname "$0")" && pwd)/image-steps.sh

wheel=${1:-} variant=${2:-slim}
if [ ! -f "$wheel" ]; then echo "which wheel? scripts/image-root.sh WHEEL [slim|java]" >&2; exit 2; fi
if [ "$(id -u)" != 0 ]; then echo "chroot is for root" >&2; exit 2; fi
command -v debootstrap >/dev/null || { echo "debootstrap is needed (Debian: apt-get install debootstrap)" >&2; exit 2; }
most=$((180 * 1000 * 1000)) # bytes of the compressed layers, without Java and Spark

work=$(mktemp -d)
mounted() { mountpoint -q "$work/$1/proc"; }
trap 'for root in build image; do if mounted $root; then umount "$work/$root/proc"; fi; done; rm -rf --one-file-system "$work"' EXIT
debootstrap --variant=minbase bookworm "$work/base" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 6; }
rm -rf "$work"/base/var/cache/apt/archives/*.deb "$work"/base/var/lib/apt/lists/*
# What the image debian:bookworm-slim leaves out of such a root, too.
find "$work/base/usr/share/doc" "$work/base/usr/share/man" "$work/base/usr/share/locale" -type f -delete
cat >"$work/base/etc/dpkg/dpkg.cfg.d/slim" <<'DPKG'
path-exclude /usr/share/doc/*
path-exclude /usr/share/man/*
path-exclude /usr/share/locale/*
DPKG

# The way out of this host while the image is made; /proc, without which no Java is installed; /etc/hosts, without which
# there is no localhost, and no Spark: an engine lends its own.
lend() {
    mkdir -p "$1/proc"
    mount -t proc proc "$1/proc"
    echo '127.0.0.1 localhost' >"$1/etc/hosts"
    cp /etc/resolv.conf "$1/etc/resolv.conf"
    mkdir -p "$1/etc/ssl/certs" "$1/wheel"
    cp "$steps" "$1/image-steps.sh"
    cp "$wheel" "$(dirname "$steps")/../requirements.lock" "$1/wheel/"
}
inside() {
    local root=$1
    shift
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 ${PIP_CERT:+PIP_CERT=/host.crt} chroot "$root" "$@"
}

cp -a "$work/base" "$work/build"
lend "$work/build"
[ -z "${PIP_CERT:-}" ] || cp "$PIP_CERT" "$work/build/host.crt"
inside "$work/build" sh /image-steps.sh build "$variant" "/wheel/$(basename "$wheel")" /wheel/requirements.lock

cp -a "$work/base" "$work/image"
lend "$work/image"
inside "$work/image" sh /image-steps.sh run "$variant"
cp -a "$work/build/opt/kstate" "$work/image/opt/"
[ "$variant" = slim ] || inside "$work/image" sh /image-steps.sh warm "$variant"
umount "$work/build/proc" "$work/image/proc"
rm -rf --one-file-system "$work/image/image-steps.sh" "$work/image/wheel" "$work/build"

size=$(tar -C "$work/image" -c . | gzip | wc -c)
echo "image $variant: $((size / 1000000)) MB compressed, $(du -sm "$work/image" | cut -f1) MiB on disk"

as_user() { chroot --userspec=10001:10001 "$work/image" env -i PATH=/opt/kstate/bin:/usr/bin:/bin HOME=/home/kstate LANG=C.UTF-8 TMPDIR=/tmp sh -c "cd && $1"; }
mount -t proc proc "$work/image/proc"
as_user 'kstate --version --verbose'
as_user 'kstate demo >/dev/null 2>demo.txt || { cat demo.txt; exit 1; }'
as_user 'kstate examples --out examples -q >/dev/null'
as_user "kstate restore orders --from-changelog examples/dump --spec examples/dump.toml --for 4.3 -q $([ "$variant" = slim ] || echo --engine spark) >/dev/null"
as_user 'kstate ls orders >/dev/null && kstate verify orders -q >/dev/null'
[ "$variant" = slim ] || as_user "ls /var/cache/kstate/spark/*.jsa >/dev/null"
# shellcheck disable=SC2016 # there, not here
as_user 'test "$(id -u)" = 10001 && ! touch /opt/kstate/x 2>/dev/null'
if [ "$variant" = slim ]; then
    as_user '! command -v java >/dev/null && ! test -e /opt/kstate/lib/python3*/site-packages/pyspark'
    [ "$size" -le "$most" ] || { echo "larger than $most bytes" >&2; exit 1; }
fi
echo "it works: demo, examples, restore, ls, verify"
