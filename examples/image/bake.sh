#!/bin/sh
# Fill a folder with all that warmcc makes ahead, for an image or a cache of CI:
#
#   sh bake.sh FOLDER [LOG]
#
# With the log of a daemon that serves the same callers (log.jsonl), also for the flags that these
# use. Containers with WARMCC_BAKED=FOLDER begin with it, also where it is read-only.
set -eu
export WARMCC_CACHE_DIR="$1"
if [ -n "${2-}" ]; then
    warmcc warm --from-log "$2"
else
    warmcc warm
fi
warmcc stop
chmod -R a+rX,go-w "$1"
