#!/usr/bin/env bash
# Which lines and branches of kstate the tests run, in workers, subprocesses and Spark tasks too: "scripts/coverage.sh"
# measures every folder of tests, "scripts/coverage.sh unit restore" only these. A folder that was measured with the same
# kstate_cli is not measured again, so an interrupted run continues. The report names what is not covered.
source "$(dirname "$0")/env.sh"

python -c "import coverage" 2>/dev/null || python -m pip install --quiet --disable-pip-version-check "coverage>=7.10"
version=$(find kstate_cli -name '*.py' -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-12)
build=$PWD/build/coverage/$version
mkdir -p "$build"
all=(unit sorting dumps journals screens frozen examples processes kills walker fuzz races faults directories restore packaging loop worlds interop)
[ "$#" -gt 0 ] || set -- "${all[@]}"
code=0
for part in "$@"; do
    [ -e "$build/$part" ] && continue
    echo "measuring tests/$part ..." >&2
    rm -rf "$build/raw" && mkdir -p "$build/raw" && chmod 1777 "$build/raw" # tests run commands as other users
    COVERAGE_FILE=$build/raw/$part nice -n 15 python -m coverage run -m pytest -q -n 4 --dist loadfile \
        --no-loadscope-reorder -p no:cacheprovider "tests/$part" >"$build/$part.log" 2>&1 || { code=$?; tail -n 5 "$build/$part.log" >&2; }
    python -m coverage combine --quiet --data-file="$build/$part" "$build/raw"
    rm -rf "$build/raw"
done
found=()
for part in "${all[@]}"; do [ -e "$build/$part" ] && found+=("$build/$part"); done
python -m coverage combine --quiet --keep --data-file="$build/combined" "${found[@]}"
python -m coverage report --data-file="$build/combined" --show-missing --skip-covered --sort=miss
exit "$code"
