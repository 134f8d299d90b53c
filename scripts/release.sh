#!/usr/bin/env bash
# A release of what is committed: "scripts/release.sh 0.1.0" makes sdist, wheel, SBOM and checksums in dist/0.1.0, and the
# tag v0.1.0. It pushes and uploads nothing. "--dry-run" behind the version: all of it but the tag.
source "$(dirname "$0")/env.sh"

usage() { echo "which release? scripts/release.sh 0.1.0 [--dry-run]" >&2; exit 2; }
refuse() { echo "no release: $1" >&2; exit 4; }

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "${2:---dry-run}" != --dry-run ]; then usage; fi
version=$1 dry=${2:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$ ]] || usage
tag=v$version out=dist/$version

is=$(python -c 'import kstate_cli; print(kstate_cli.__version__)')
[ "$is" = "$version" ] || refuse "kstate_cli/__init__.py says $is"
[ -z "$(git status --porcelain)" ] || refuse "there are changes that are not committed: git status"
section=$(awk -v "head=## [$version]" 'index($0, head) == 1 { in_it = 1; next } /^## / { in_it = 0 } in_it' CHANGELOG.md)
[ -n "${section//[[:space:]]/}" ] || refuse "CHANGELOG.md has no section '## [$version] - DATE', or nothing in it"
! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || refuse "there is a tag $tag already: git tag -d $tag"
[ ! -e "$out" ] || refuse "$out is there already"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# From what is committed, and nothing that lies beside it. The times in the archives are that of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir "$work/source" "$work/out"
git archive HEAD | tar -x -C "$work/source"
python -m tests.packaging.man_pages "$work/source/man"
python -m build --no-isolation --outdir "$work/out" "$work/source" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 6; }
python -m tests.packaging.lock --check "$work/out/kstate-$version-py3-none-any.whl" ||
    refuse "requirements.lock does not pin the installed dependencies: python -m tests.packaging.lock"
cp requirements.lock "$work/out/kstate-$version.requirements.lock"
python -m tests.packaging.sbom "$work/out/kstate-$version-py3-none-any.whl" requirements.lock >"$work/out/kstate-$version.cdx.json"
printf '%s\n' "$section" | sed '/./,$!d' >"$work/out/NOTES.md"
(cd "$work/out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)

mkdir -p dist
mv "$work/out" "$out"
ls -l "$out"
if [ -n "$dry" ]; then
    echo "not tagged: --dry-run"
else
    git tag -a "$tag" -m "kstate $version"
    echo "tagged $tag. What is left: git push origin $tag, and to upload $out"
fi
