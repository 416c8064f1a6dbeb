# shellcheck shell=bash
# Sourced by each finding: `packages NAME==VERSION ...` makes a folder with an environment of these, enters the folder,
# and removes it at the end. PYTHON names the interpreter. Nothing of this repository is imported.
set -euo pipefail

packages() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cd "$folder"
  "${PYTHON:-python3}" -m venv venv
  venv/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --only-binary :all: "$@"
  printf '%s\n' "$@" >packages.txt
  echo "$(venv/bin/python --version), $(tr '\n' ' ' <packages.txt)"
  # One thread: what is shown does not come from the number of cores.
  export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
  unset PYTHONPATH
}
