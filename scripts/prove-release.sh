#!/usr/bin/env bash
# Whether a release of Kafka Streams takes what kstate migrates to it and from it: "scripts/prove-release.sh 4.4.0".
# Its row in kstate_cli/releases.py comes first. "all" behind it: beside the last release of every line, not three of them.
# What follows goes to pytest: -k "killed or query" runs a part. Without a release: every pair of {3.2 … 4.3}.
# Pairs that have passed are in tests/interop/pairs.jsonl and are not run again, the rest in tests/interop/proven.jsonl; the
# tables in docs/compatibility.md and docs/development/pairs.md are made from both.
source "$(dirname "$0")/env.sh"

for tool in java mvn; do
    command -v "$tool" >/dev/null 2>&1 || { echo "$tool is needed to run real Kafka Streams (Java 17, Maven)" >&2; exit 2; }
done
export KSTATE_INTEROP_RECORD=${KSTATE_INTEROP_RECORD:-$PWD/tests/interop/pairs.jsonl}
tests=(tests/interop/test_matrix.py::test_migrated_directory_serves_the_same)
proving=()
if [ $# -ge 1 ]; then
    proving=("$1")
    shift
    export KSTATE_INTEROP_RELEASE=${proving[0]}
    python -c 'import sys; from kstate_cli.releases import release; release(sys.argv[1])' "${proving[0]}"
    # Every kind restored, the table of "check", queries, and what a kill leaves: with this release in the place of those usual.
    tests+=(
        tests/interop/test_restore_kinds.py tests/interop/test_check.py::test_kafka_streams_confirms_the_prediction
        tests/interop/test_query.py::test_answers_are_those_of_the_release
        tests/interop/test_query.py::test_histories_are_those_of_a_restored_store
        tests/interop/test_killed.py::test_exactly_once tests/interop/test_killed.py::test_at_least_once
    )
fi
if [ "${1:-}" = all ]; then
    export KSTATE_INTEROP=all
    shift
fi
results=$(mktemp --suffix=.xml)
trap 'rm -f "$results"' EXIT
code=0
python -m pytest -q -n 2 --junitxml="$results" "${tests[@]}" "$@" || code=$?
[ "$code" = 5 ] && code=0 # nothing was left to run
python -m tests.interop.proving ${proving[0]:+"${proving[0]}" "$results"}
python -m tests.marked_tables
exit "$code"
