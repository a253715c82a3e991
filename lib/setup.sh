#!/usr/bin/env bash
# Set-up of this checkout, by what is to be done in it: `lib/setup.sh study`, `lib/setup.sh lab` or `lib/setup.sh tests`.
# Each installs the locked packages of the ones before it too, all into .venv. `study` also builds fortio, and `tests` every
# native program. The Makefile calls this when a lock or a source has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

stage=$1
python=${PYTHON:-python3}
venv=.venv
fail() { echo "setup: $1" >&2; exit 1; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || fail "$python is older than 3.11; install Python 3.11+ or run 'make PYTHON=/path/to/python3.11 $stage'"

if [ ! -x $venv/bin/pip ] || ! $venv/bin/python -c '' 2>/dev/null; then
  "$python" -m venv --clear $venv || fail "'$python -m venv' failed; on Debian and Ubuntu: apt install python3-venv"
fi

# uv knows nothing of pip's settings, where companies name their own index and certificates.
pip_setting() { $venv/bin/pip config list 2>/dev/null | sed -n "s/^.*\.$1='\(.*\)'\$/\1/p" | tail -n 1; }
taken_from_pip() { # VARIABLE SETTING: the variable that uv reads, where nobody has set it
  local value
  value=$(pip_setting "$2")
  [ -n "${!1:-}" ] || [ -z "$value" ] || export "$1=$value"
}
taken_from_pip UV_DEFAULT_INDEX index-url
taken_from_pip UV_INDEX extra-index-url
taken_from_pip SSL_CERT_FILE cert

locks=(requirements.lock)
if [ "$stage" != study ] || [ -e $venv/.lab ]; then locks+=(requirements-lab.lock); fi
if [ "$stage" = tests ] || [ -e $venv/.tests ]; then locks+=(requirements-dev.lock requirements-uv.lock); fi

native=
uv=$PWD/.build/uv
end_all() {
  if [ -n "$native" ]; then kill -TERM "$native" 2>/dev/null && wait "$native" || true; fi
  rm -rf "$uv"
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "setup: installing the locked packages for '$stage' and building what it runs; once, about a minute"
# The compiler needs the processor and the packages need the network, so both go on at the same time.
case $stage in
  study) PYTHONPATH=lib $venv/bin/python -m meshtrial.native build fortio & native=$! ;;
  tests) MESHTRIAL_KEEP_GO=1 PYTHONPATH=lib $venv/bin/python -m meshtrial.native build & native=$! ;;
esac

unreachable="the locked packages could not be installed; check the network and the index that pip is set to, then try again"
mkdir -p .build
rm -rf "$uv"
$venv/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --target "$uv" -r requirements-uv.lock \
  || fail "$unreachable"
# The cache lies beside .venv, so that both share their files and nothing is left elsewhere.
run_uv() { UV_CACHE_DIR=$PWD/.cache/uv "$uv/bin/uv" pip "$@" --quiet --python $venv/bin/python; }
run_uv sync --require-hashes "${locks[@]}" || fail "$unreachable"
run_uv install --no-deps --no-build-isolation -e . || fail "meshtrial itself could not be installed from this checkout"

if [ -n "$native" ]; then
  job=$native
  wait "$job" || { code=$?; native=; exit $code; }
  native=
fi
# What .venv holds stays there; the rest are indexes, which are asked anew after a change.
rm -rf .cache/uv
touch "$venv/.$stage"
