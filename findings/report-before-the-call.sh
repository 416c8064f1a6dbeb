#!/usr/bin/env bash
# Guess: ONNX Runtime reports its use from Windows alone, and nowhere after `disable_telemetry_events()`.
# Happens: on Linux too, its import makes an identifier of the user and a store of events in the home folder, and a
#   thread sends them, also if that is the first call after the import. ORT_DISABLE_TELEMETRY=1, set before the
#   import, keeps it from all of this.
# Since: ONNX Runtime 1.29.0; 1.28.0 leaves nothing.
# Ours: job/models/telemetry.py sets the variable before the import, for the engine and for handlers.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnxruntime==1.32.0

# The files that a program leaves in a home folder of its own, with a value of ORT_DISABLE_TELEMETRY.
seen() {
  local home
  home=$(mktemp -d)
  HOME=$home XDG_CACHE_HOME=$home ORT_DISABLE_TELEMETRY=$1 venv/bin/python -c "import onnxruntime; $2"
  find "$home" -type f ! -name '*-shm' ! -name '*-wal' -printf '%f\n' | sort | paste -sd ' '
}

imported=$(seen 0 "pass")
disabled=$(seen 0 "onnxruntime.disable_telemetry_events()")
forbidden=$(seen 1 "pass")
echo "import alone: $imported"
echo "import, then disable_telemetry_events(): $disabled"
echo "ORT_DISABLE_TELEMETRY=1: ${forbidden:-no file}"
[ "$imported" = "deviceid onnxruntime.db" ]
[ "$disabled" = "$imported" ]
[ -z "$forbidden" ]
