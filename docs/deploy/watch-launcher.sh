#!/bin/sh
# Watches a job from beside its launcher, which takes the place of this script: watch-launcher.sh torchrun train.py
# Bundles and what was seen go to FORENSICS_BUNDLES (./forensics). Whatever becomes of the watch, the job runs and ends without it.
folder="${FORENSICS_BUNDLES:-forensics}"
if command -v forensics >/dev/null 2>&1 && mkdir -p "$folder"; then
    # $$ is the launcher's number after exec: the watch ends with it, and stays over restarts of the workers.
    forensics watch --stay --beside $$ --into "$folder" >>"$folder/watch-$(uname -n).jsonl" 2>&1 </dev/null &
else
    echo "watch: forensics is not on PATH, or $folder cannot be made; the job starts all the same" >&2
fi
exec "$@"
