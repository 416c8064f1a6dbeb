# shellcheck shell=bash
# Sourced by each finding. Nothing of this repository is imported.
#   packages NAME==VERSION ...         makes a temporary folder with an environment of these packages, enters the folder,
#                                      and removes it at the end.
#   beside FOLDER NAME==VERSION ...    installs packages without their requirements into FOLDER.
#   support                            is this folder, for the PYTHONPATH of programs that use servers.py.
# PYTHON names the interpreter. REPLACE="NAME==VERSION ..." runs `packages` with other versions than the pinned ones, and
# BESIDE does so for `beside`: the way to see since which version a behaviour is there.
set -euo pipefail
support=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export support

packages() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cd "$folder"
  "${PYTHON:-python3}" -m venv venv
  # One thread: what is shown does not come from the number of cores.
  export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
  unset PYTHONPATH
  mapfile -t pins < <(pinned "${REPLACE:-}" "$@")
  pip_install "${pins[@]}"
  echo "$(venv/bin/python --version), ${pins[*]}"
}

beside() {
  mapfile -t pins < <(pinned "${BESIDE:-}" "${@:2}")
  pip_install --no-deps --target "$1" "${pins[@]}"
  echo "in the folder $1: ${pins[*]}"
}

# Print the pins that follow, each with the version that the first argument has for its name.
pinned() {
  local pin other
  for pin in "${@:2}"; do
    for other in $1; do
      if [[ ${other%%==*} == "${pin%%==*}" ]]; then pin=$other; fi
    done
    echo "$pin"
  done
}

pip_install() {
  venv/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --only-binary :all: "$@"
}
