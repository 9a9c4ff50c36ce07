#!/bin/bash
# Tells the pool how the start of this VM goes, in the guest attribute seep/state: `ready`, or `failed` and where.
set -Eeuo pipefail

say() {
    curl --silent --show-error --fail --retry 5 --request PUT --header 'Metadata-Flavor: Google' --data "$1" \
        http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/seep/state
}

trap 'say "failed: $BASH_COMMAND (exit code $?)"' ERR

