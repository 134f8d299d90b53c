#!/usr/bin/env bash
# The main job, on a bundled state directory that Kafka Streams 4.3.1 wrote: shown, migrated to 4.2, shown, undone.
source "$(dirname "$0")/env.sh"
exec kstate demo
