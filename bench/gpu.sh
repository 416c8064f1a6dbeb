#!/bin/sh
# Check and measure the engines on a GPU, in about ten minutes.
set -eu

usage() {
    cat <<'TEXT'
Usage: bench/gpu.sh VENV...
       bench/gpu.sh --install FOLDER

Check that the engines compute on a GPU of this machine what they compute on the CPU, and print a table of their times
on both. Nothing is installed without --install.

  VENV      virtual environment with this clone and an engine that is built for the GPU (docs/how-to/gpus.md)
  --install make three of them in FOLDER, from PyPI: torch, onnx and tensorflow, whose builds for CUDA exclude each other
TEXT
}

make_venv() {
    # The path of the environment, then what pip installs there.
    venv=$1
    shift
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --editable '.[server,embedded,openvino]' 'onnx>=1.17,<1.22' \
        'hypothesis>=6.100,<7' 'pytest>=8.3,<9.2' 'pytest-timeout>=2.3,<3' 'pytest-xdist>=3.6,<4' \
        'scikit-learn>=1.5,<2' "$@"
}

check() {
    failed=0
    echo "== $1: what the engines report"
    # Without a GPU, the rest would say nothing.
    "$1/bin/python" -m tests.support.worlds.accelerators || return 1
    echo "== $1: tests"
    "$1/bin/python" -m pytest -q tests/job/models/test_accelerators.py tests/e2e/test_devices.py || failed=1
    echo "== $1: times"
    "$1/bin/python" -m tests.support.programs.device_times || failed=1
    return "$failed"
}

case ${1:-} in
    --install) [ $# -eq 2 ] || { usage >&2; exit 2; } ;;
    -h | --help) usage; exit 0 ;;
    '' | -*) usage >&2; exit 2 ;;
esac

# Relative paths are those of the caller.
from=$PWD
cd "$(dirname "$0")/.."
absolute() {
    case $1 in
        /*) echo "$1" ;;
        *) echo "$from/$1" ;;
    esac
}

if [ "$1" = --install ]; then
    folder=$(absolute "$2")
    if [ -e "$folder" ]; then
        echo "bench/gpu.sh: $folder exists; name a new folder, or run bench/gpu.sh $2/*" >&2
        exit 2
    fi
    make_venv "$folder/torch" '.[torch]'
    make_venv "$folder/onnx" 'onnxruntime-gpu[cuda,cudnn]>=1.21,<2'
    make_venv "$folder/tensorflow" 'tensorflow[and-cuda]>=2.20,<2.21'
    from=$folder
    set -- torch onnx tensorflow
fi

if command -v nvidia-smi > /dev/null; then
    nvidia-smi --list-gpus
fi
status=0
for name in "$@"; do
    venv=$(absolute "$name")
    if [ -x "$venv/bin/python" ]; then
        check "$venv" || status=1
    else
        echo "bench/gpu.sh: $venv is no virtual environment; --install makes some" >&2
        status=1
    fi
done
exit "$status"
