#!/usr/bin/env bash
# Whether a release of Kafka Streams takes what kstate migrates to it and from it: "scripts/prove-release.sh 4.4.0".
# Its row in kstate_cli/releases.py comes first. "all" behind it: beside every release that is proven, not three of them.
source "$(dirname "$0")/env.sh"

[ $# -ge 1 ] || { echo "which release? scripts/prove-release.sh 4.4.0 [all]" >&2; exit 2; }
for tool in java mvn; do
    command -v "$tool" >/dev/null 2>&1 || { echo "$tool is needed to run real Kafka Streams (Java 17, Maven)" >&2; exit 2; }
done
export KSTATE_INTEROP_RELEASE=$1
if [ "${2:-}" = all ]; then
    export KSTATE_INTEROP=all
fi
python -m pytest -q -n 2 tests/interop/test_matrix.py::test_migrated_directory_serves_the_same
python -m tests.interop.proving "$@"
