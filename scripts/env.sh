# Sourced by the other scripts: makes the project's own Python environment in .venv, once per pyproject.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=""
for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        # The interpreter behind an active .venv, which would go with it below.
        python=$("$candidate" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
        break
    fi
done
[ -n "$python" ] || { echo "Python 3.10 or newer is needed" >&2; exit 2; }

stamp=.venv/.installed-for-$(cksum <pyproject.toml | cut -d' ' -f1)
if [ ! -e "$stamp" ]; then
    echo "making .venv, once: kstate, Spark, and what they are tested with (nearly 1 GB; half a minute or more) ..." >&2
    rm -rf .venv
    "$python" -m venv .venv || { echo "python3 -m venv failed (Debian: apt-get install python3-venv)" >&2; exit 2; }
    echo "installing packages; nothing is said until they are there ..." >&2
    # Dependency groups came with pip 25.1, which not every Python brings.
    .venv/bin/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
    .venv/bin/pip install --quiet --disable-pip-version-check -e . --group dev
    touch "$stamp"
    echo "installed" >&2
fi
PATH="$PWD/.venv/bin:$PATH"
export PATH
