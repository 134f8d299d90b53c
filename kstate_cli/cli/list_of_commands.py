"""The text of ``kstate --help``: ``KSTATE_WRITE_DOCS=1 pytest tests/unit/cli/test_help.py`` writes it."""

from __future__ import annotations

from typing import Final

TEXT: Final = """\
Usage: kstate [OPTIONS] COMMAND [ARGS]...

  Inspect, migrate, dump and restore the state directories of Kafka Streams
  applications.

Options:
  --verbose   With --version: details for a bug report.
  --version   Print the version.
  --debug     Log to standard error what is read, and which rules decide.
  -h, --help  Show this message and exit.

Commands:
  ls                List tasks and stores: kind, size, offsets.
  inspect-position  Show changelog offsets, IQv2 Positions, and lag.
  lag               Show how far stores are behind their changelogs.
  query             Query a store by key, range or time.
  export            Write a whole store to Parquet, decoded.
  diff              Compare the rows of two application directories.
  check             Predict what the next start of a release does.
  fleet             Compare many hosts: which has which task.
  verify            Read every block, and report damage.
  migrate           Upgrade or downgrade a directory in place.
  wipe              Move stores out, so that Streams rebuilds them.
  rehome            Move stores to their tasks in a changed topology.
  dump              Write changelogs from a broker to a dump.
  ls-dump           List a dump: offsets, gaps, age, health.
  verify-dump       Read every file of a dump, and report damage.
  restore           Restore stores in bulk from a changelog dump.
  snapshot          Copy the files of closed stores, each once.
  restore-snapshot  Copy stores back from snapshots.
  ls-snapshots      List snapshots: time, host, tasks, size, health.
  verify-snapshots  Read every file of snapshots: report damage.
  start-barrier     Wait until all hosts are ready to start.
  maintain          Run the steps that are due, for cron and timers.
  undo              Undo the newest change.
  status            Show the runs of kstate, and what to do next.
  clean             DELETES the backups that runs keep for undo.
  explain           Explain a finding, a state or an exit code.
  warm-up           Make Spark start in half the time.
  demo              Downgrade and undo on a bundled directory.
  examples          Write the examples: Kubernetes, cron, Spark, a dump.

Examples:
  See what kstate does, on a bundled directory:
    kstate demo
  List the tasks and stores of an application:
    kstate ls /data/app
  Predict what the next start of 4.2 does:
    kstate check /data/app --for 4.2

  Exit codes: 0 done or nothing to do, 1 finished with warnings, 2 usage, 3
  condition not met, 4 refused, 5 in use, 6 failed and nothing changed, 7
  failed midway (rerun or undo), 128+N signal.
"""
