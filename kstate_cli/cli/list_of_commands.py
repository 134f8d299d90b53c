"""The text of ``kstate --help``: ``KSTATE_WRITE_DOCS=1 pytest tests/unit/cli/test_help.py`` writes it."""

from __future__ import annotations

from typing import Final

TEXT: Final = """\
Usage: kstate [OPTIONS] COMMAND [ARGS]...

  Inspect, migrate, dump and restore the state directories of Kafka Streams
  applications.

Options:
  --verbose   With --version, also print details for a bug report.
  --version   Print the version.
  --debug     Log kstate's reads and decisions to standard error.
  -h, --help  Show this message and exit.

Commands:
  ls                List tasks and stores with kinds, sizes and offsets.
  inspect-position  Show changelog offsets, IQv2 Positions and lag.
  lag               Show how far stores lag behind their changelogs.
  query             Query a store by key, range or time.
  export            Export a whole store to Parquet files.
  diff              Compare the rows of two application directories.
  check             Predict what Kafka Streams will do when it starts.
  fleet             Compare tasks across hosts.
  verify            Read every data block and report damage.
  migrate           Upgrade or downgrade a directory in place.
  wipe              Move stores aside so that Kafka Streams rebuilds them.
  rehome            Move stores to their tasks in a changed topology.
  dump              Dump changelogs from a broker to Parquet files.
  ls-dump           List a dump's offsets, gaps, age and health.
  verify-dump       Read all files in a dump and report damage.
  restore           Restore stores in bulk from a changelog dump.
  snapshot          Copy store files to a snapshot repository.
  restore-snapshot  Restore stores from snapshots.
  ls-snapshots      List each snapshot's time, host, tasks and health.
  verify-snapshots  Read all snapshot files and report damage.
  prune-snapshots   DELETES expired snapshots and unneeded files.
  seed              Create changelogs for a new application.id.
  start-barrier     Wait until all hosts are ready to start.
  maintain          Run the maintenance steps that are due.
  undo              Undo the newest change.
  status            Show how kstate runs ended and what to do next.
  clean             DELETES the backups that kstate keeps for undo.
  explain           Explain a code or a log line.
  warm-up           Cut Spark's startup time in half.
  demo              Try a downgrade on a bundled sample directory.
  examples          Write examples for Kubernetes, cron and Spark.

Examples:
  Try a downgrade on a bundled sample directory:
    kstate demo
  List the tasks and stores of an application:
    kstate ls /data/app
  Predict what Kafka Streams 4.2 will do when it starts:
    kstate check /data/app --for 4.2

  Exit codes: 0 (done or nothing to do), 1 (finished with warnings), 2 (usage
  error), 3 (condition not met), 4 (refused), 5 (in use), 6 (failed, nothing
  changed), 7 (failed midway: rerun or undo), 128+N (signal N).
"""
