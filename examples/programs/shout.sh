#!/bin/sh
# Exit 0: done. 75: try again later. 100: give up. Anything else: try again.
payload=$(cat)
echo "job $QO_JOB_ID, attempt $QO_ATTEMPT" >&2
printf '%s' "$payload" | tr '[:lower:]' '[:upper:]'
