#!/usr/bin/env bash
# Pin the base image of the Dockerfile by its newest digest: "scripts/base-image.sh". It needs docker, and changes the line
# ARG BASE only. Run it before a release, so that the image has the fixes of Debian; commit the difference.
set -euo pipefail
cd "$(dirname "$0")/.."
base=debian:bookworm-slim
docker pull --quiet "$base" >/dev/null
digest=$(docker image inspect --format '{{join .RepoDigests "\n"}}' "$base" | sed -n 's/^[^@]*@\(sha256:[0-9a-f]\{64\}\)$/\1/p' | head -1)
[ -n "$digest" ] || { echo "docker knows no digest of $base" >&2; exit 6; }
sed -i "s|^ARG BASE=.*|ARG BASE=$base@$digest|" Dockerfile
grep '^ARG BASE=' Dockerfile
