#!/usr/bin/env bash
# Mutation testing: "scripts/mutation.sh formats offsets check" (docs/reliability.md).
source "$(dirname "$0")/env.sh"

# Tests of a submission replay the record, and need no coverage.
python -c "import coverage" 2>/dev/null || python -m pip install --quiet --disable-pip-version-check "coverage>=7.6"
exec nice -n 15 python -m tests.mutation "$@"
