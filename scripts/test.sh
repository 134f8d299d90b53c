#!/usr/bin/env bash
# All checks and tests. "scripts/test.sh all" runs every pair of releases and every fault instead of the usual subset.
source "$(dirname "$0")/env.sh"

for tool in java mvn; do
    command -v "$tool" >/dev/null 2>&1 || { echo "$tool is needed to run real Kafka Streams (Java 17, Maven)" >&2; exit 2; }
done
if ! command -v strace >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y -qq strace >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq strace; } >/dev/null
    else
        echo "strace is needed for the fault tests (Debian: apt-get install strace)" >&2
        exit 2
    fi
fi
if [ "${1:-}" = all ]; then
    export KSTATE_INTEROP=all KSTATE_FAULTS=all
    shift
fi

ruff check .
ruff format --check .
mypy
lint-imports
# Two at a time, a file never split: most tests wait for a JVM or a disk.
exec python -m pytest -q --durations=15 -n 2 --dist loadfile "$@"
