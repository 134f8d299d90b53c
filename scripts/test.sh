#!/usr/bin/env bash
# All checks, and a part of each kind of test. "scripts/test.sh all" runs every pair of releases, every fault and every case.
source "$(dirname "$0")/env.sh"

for tool in java mvn; do
    command -v "$tool" >/dev/null 2>&1 || { echo "$tool is needed to run real Kafka Streams (Java 17, Maven)" >&2; exit 2; }
done
# The fault tests need strace, the examples' units systemd's own opinion, tests of access ACLs, manual pages troff's, pages a browser's.
for need in strace:strace systemd-analyze:systemd setfacl:acl groff:groff-base chromedriver:chromium-driver; do
    tool=${need%:*} package=${need#*:}
    command -v "$tool" >/dev/null 2>&1 && continue
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"; } >/dev/null
    else
        echo "$tool is needed (Debian: apt-get install $package)" >&2
        exit 2
    fi
done
if ! command -v promtool >/dev/null 2>&1; then # the rules of the alerts; its package would start a service, too
    fetched=$(mktemp -d)
    (
        cd "$fetched"
        apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }
        dpkg -x prometheus_*.deb .
    ) >/dev/null 2>&1 || { echo "promtool is needed (Debian: it is in the package prometheus)" >&2; exit 2; }
    cp "$fetched/usr/bin/promtool" .venv/bin/
    rm -rf "$fetched"
fi
if [ "${1:-}" = all ]; then
    export KSTATE_INTEROP=all KSTATE_FAULTS=all KSTATE_JOURNALS=all KSTATE_SAMPLES=all
    shift
fi

said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Beside the tests, which leave a processor idle now and then.
{ bash scripts/check.sh static && bash scripts/docs.sh; } >"$said" 2>&1 &
beside=$! code=0
# pytest keeps the tests with their rewritten assertions. In a fresh clone each of the four workers would write all of them.
compgen -G "tests/unit/__pycache__/*-pytest-*.pyc" >/dev/null || python -m pytest --collect-only -qq >/dev/null 2>&1 || true
# Four at a time, for two processors: many tests wait for a JVM or a disk. tests/conftest.py orders the files, and
# tests/scheduling.py keeps those together that share a broker or a dump.
python -m pytest -q --durations=10 -n 4 --dist loadfile --no-loadscope-reorder "$@" || code=$?
wait "$beside" || code=$?
cat "$said"
exit "$code"
