#!/bin/sh
# Says on standard error what would not be seen of a hang, then becomes the job: preflight.sh torchrun train.py
# Never keeps the job from starting, whatever is found, and takes at most FORENSICS_PREFLIGHT_S seconds (30).
if command -v forensics >/dev/null 2>&1; then
    timeout "${FORENSICS_PREFLIGHT_S:-30}" forensics doctor >&2 </dev/null ||
        echo "preflight: see the lines marked missing above; the job starts all the same" >&2
else
    echo "preflight: forensics is not on PATH" >&2
fi
exec "$@"
