#!/usr/bin/env bash
# Fuzz the decoders and parsers with libFuzzer: "scripts/fuzz.sh all --inputs 200000 --resume" (docs/developing.md).
source "$(dirname "$0")/env.sh"

# atheris has wheels for some versions of Python on Linux only, so it is no requirement of the tests.
if ! PYTHONPATH=build/fuzz/atheris python -c "import atheris" 2>/dev/null; then
    python -m pip install --quiet --disable-pip-version-check --no-deps --target build/fuzz/atheris atheris==3.0.0
fi
PYTHONPATH=build/fuzz/atheris exec nice -n 19 python -m tests.fuzz "$@"
