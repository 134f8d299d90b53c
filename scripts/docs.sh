#!/usr/bin/env bash
# The documentation as a site, in build/docs: every warning, and every link within it that leads nowhere, is an error.
# "scripts/docs.sh links" looks whether addresses elsewhere answer, which needs the network.
source "$(dirname "$0")/env.sh"

builder=html
[ "${1:-}" != links ] || builder=linkcheck
python -m sphinx -b "$builder" -W --keep-going -n -q -d build/doctrees docs build/docs
[ "$builder" = linkcheck ] || echo "build/docs/index.html"
