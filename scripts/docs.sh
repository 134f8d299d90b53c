#!/usr/bin/env bash
# The documentation as a site, in build/docs: every warning, and every link within it that leads nowhere, is an error.
# "scripts/docs.sh links" looks whether addresses elsewhere answer, which needs the network.
source "$(dirname "$0")/env.sh"

build() {
    python -m sphinx -b "$1" -W --keep-going -n -q -d build/doctrees docs "$2"
}
if [ "${1:-}" = links ]; then
    build linkcheck build/links
else
    build html build/docs
    echo "build/docs/index.html"
fi
