#!/bin/sh
# The steps of the container image, which has two variants: "slim" (no Java, no Spark) and "java" (both, for restorations
# on Spark). The Dockerfile runs them, and scripts/image-root.sh, in a plain Debian: what one of them shows holds for both.
set -eu

install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log
    find /var/cache/apt/archives -name '*.deb' -delete
}

# What the wheel itself says that it needs; slim: but for Spark.
needed() {
    "$1/bin/python" - "$2" "$3" <<'PYTHON'
import email, re, sys, zipfile

wheel, variant = sys.argv[1:]
with zipfile.ZipFile(wheel) as opened:
    (name,) = (one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
    told = email.message_from_bytes(opened.read(name))
for line in told.get_all("Requires-Dist", []):
    if "extra ==" not in line and not (variant == "slim" and re.match(r"pyspark\b", line)):
        print(line)
PYTHON
}

case "${1:-} ${2:-}" in
"build slim" | "build java") # the first stage: kstate and its libraries in /opt/kstate
    wheel=$3
    install python3 python3-venv ca-certificates
    python3 -m venv /opt/kstate
    needed /opt/kstate "$wheel" "$2" >/tmp/needed.txt
    pip="/opt/kstate/bin/pip --disable-pip-version-check"
    $pip install --quiet --no-cache-dir --no-compile -r /tmp/needed.txt
    $pip install --quiet --no-cache-dir --no-compile --no-deps "$wheel"
    $pip uninstall --quiet --yes pip setuptools
    # What nobody runs: tests and headers of libraries, and what a Java without a Python would read.
    find /opt/kstate/lib -type d \( -name tests -o -name __pycache__ -o -path '*/pyarrow/include' \) -prune -exec rm -rf {} +
    rm -f /tmp/needed.txt
    ;;
"run slim" | "run java") # the second stage, into which /opt/kstate is copied: what it runs on, and as whom
    packages="python3 ca-certificates"
    [ "$2" = slim ] || packages="$packages openjdk-17-jre-headless procps" # Spark's scripts ask ps
    # shellcheck disable=SC2086
    install $packages
    groupadd --gid 10001 kstate
    useradd --uid 10001 --gid 10001 --home-dir /home/kstate --create-home --shell /usr/sbin/nologin kstate
    ;;
"warm java") # there, as root: what makes Spark start quicker, for whatever user a container has
    /opt/kstate/bin/kstate warm-up --for-all
    ;;
*)
    echo "which step? image-steps.sh build|run slim|java [WHEEL], warm java" >&2
    exit 2
    ;;
esac
