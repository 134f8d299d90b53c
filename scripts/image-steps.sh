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

# The pinned requirements of the image, from requirements.lock: without the extras; slim: also without Spark. Fails if the
# wheel needs a package that has no pin. The hashes are of the files for one architecture: others get the versions alone.
pinned() {
    python3 - "$1" "$2" "$3" <<'PYTHON'
import email, platform, re, sys, zipfile

variant, wheel, lock = sys.argv[1:]
with zipfile.ZipFile(wheel) as opened:
    (name,) = (entry for entry in opened.namelist() if entry.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(opened.read(name))
with open(lock, encoding="utf-8") as file:
    head, *lines = file.read().split("# Only for the extras:")[0].splitlines()
of_spark = re.compile(r"(pyspark|py4j)\b")
pins = [line for line in lines if line and line[0] != "#" and not (variant == "slim" and of_spark.match(line))]
names = {line.split("==")[0] for line in pins}
for line in metadata.get_all("Requires-Dist", []):
    requirement = re.split(r"[^A-Za-z0-9._-]", line)[0].lower().replace("_", "-").replace(".", "-")
    if ";" not in line and not (variant == "slim" and of_spark.match(line)) and requirement not in names:
        sys.exit(f"requirements.lock has no pin of {requirement}")
if not re.search(rf"\b{re.escape(platform.machine())}\b", head):
    print(f"requirements.lock has no hashes for {platform.machine()}: only versions are pinned", file=sys.stderr)
    pins = [line.split()[0] for line in pins]
print("\n".join(pins))
PYTHON
}

case "${1:-} ${2:-}" in
"build slim" | "build java") # the first stage: kstate and its libraries in /opt/kstate
    wheel=$3 lock=$4
    install python3 python3-venv ca-certificates
    python3 -m venv /opt/kstate
    pinned "$2" "$wheel" "$lock" >/tmp/pinned.txt
    pip="/opt/kstate/bin/pip --disable-pip-version-check"
    $pip install --quiet --no-cache-dir --no-compile --no-deps -r /tmp/pinned.txt
    $pip install --quiet --no-cache-dir --no-compile --no-deps "$wheel"
    $pip uninstall --quiet --yes pip setuptools
    # What nobody runs: tests and headers of libraries, and what a Java without a Python would read.
    find /opt/kstate/lib -type d \( -name tests -o -name __pycache__ -o -path '*/pyarrow/include' \) -prune -exec rm -rf {} +
    rm -f /tmp/pinned.txt
    ;;
"run slim" | "run java") # the second stage, into which /opt/kstate is copied: what it runs on, and as whom
    packages="python3 ca-certificates"
    [ "$2" = slim ] || packages="$packages openjdk-17-jre-headless procps" # Spark's scripts ask ps
    # shellcheck disable=SC2086
    install $packages
    groupadd --gid 10001 kstate
    useradd --uid 10001 --gid 10001 --home-dir /home/kstate --create-home --shell /usr/sbin/nologin kstate
    ;;
"pins slim" | "pins java") # what the first stage installs
    pinned "$2" "$3" "$4"
    ;;
"warm java") # there, as root: what makes Spark start quicker, for whatever user a container has
    /opt/kstate/bin/kstate warm-up --for-all
    ;;
*)
    echo "which step? image-steps.sh build|pins slim|java WHEEL LOCK, run slim|java, warm java" >&2
    exit 2
    ;;
esac
