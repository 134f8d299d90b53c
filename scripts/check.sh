#!/usr/bin/env bash
# What every change passes before anything else: lint, format, types, imports, unit tests. A minute, without Java or strace.
# "scripts/check.sh static" leaves the tests out; what else is given goes to pytest.
source "$(dirname "$0")/env.sh"

static() {
    ruff check . && ruff format --check . && mypy && lint-imports
}
if [ "${1:-}" = static ]; then
    static
    exit
fi

said=$(mktemp)
trap 'rm -f "$said"' EXIT
# Beside the tests: each of the two leaves a processor idle now and then.
static >"$said" 2>&1 &
code=0
python -m pytest -q -n 2 --dist loadfile "$@" tests/unit || code=$?
wait $! || code=$?
cat "$said"
exit "$code"
