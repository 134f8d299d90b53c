"""Every place that prints a hint: the options that it names exist, and a test carries out what it advises.

A test names the hint that it follows (``follows_hint``), or ``CARRIED_OUT`` names the test for a place. All other
places that name an option or a command count as untried, and there may be none: whoever adds such a hint adds the test
that follows it, in the situation that prints it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kstate_cli
from kstate_cli import option
from kstate_cli.cli.registry import COMMANDS
from tests import syntax
from tests.command_line import program
from tests.named_options import faults

ROOT = Path(kstate_cli.__file__).parent
TESTS = ROOT.parent / "tests"
_CLI: Any = program()
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_OTHERS = {"--format": "tar", "--force-reinstall": "pip", "--help": "every command", "--version": "kstate itself",
             "--verbose": "kstate itself"}  # fmt: skip
"""Options of other programs, and those that no single command has."""

CARRIED_OUT = {
    ("cli/other_places.py", "_listing_commands(other, path)"): (
        "directories/test_wrong_places.py::test_the_printed_command_lists_the_place"
    ),
    ("snapshot/capture.py", "pass --guarantee at_least_once"): (
        "directories/test_snapshot.py::test_a_killed_at_least_once_directory_is_restored_as_closed"
    ),
    ("cli/restore_combined.py", "first restore the snapshot without --for"): (
        "directories/test_snapshot_later.py::test_a_release_that_reads_older_files_is_migrated_to_afterwards"
    ),
    ("cli/commands/restore_snapshot.py", "pass --from-changelog DUMP"): (
        "directories/test_snapshot_later.py::test_options_about_a_dump_require_a_dump"
    ),
    ("snapshot/planner.py", "--accept-resurrected"): "directories/test_snapshot.py::test_old_data_is_refused",
    ("cli/commands/ls_snapshots.py", "command('verify-snapshots'"): (
        "directories/test_snapshot.py::test_a_damaged_file_is_stored_again_once_it_is_out_of_the_way"
    ),
    ("change/lockfile.py", "then pass --lock-is-shared"): (
        "directories/test_carried_options.py::test_a_mount_that_may_not_share_locks"
    ),
    ("cli/commands/prune_snapshots.py", "command('verify-snapshots'"): (
        "directories/test_prune_snapshots.py::test_nothing_is_deleted_beside_a_snapshot_that_cannot_be_read"
    ),
    ("change/lockfile.py", "or wait for it "): "directories/test_hints.py::test_a_lock_that_was_waited_for",
    ("change/lockfile.py", "then run the command again"): "directories/test_hints.py::test_a_lock_that_was_waited_for",
    (
        "cli/options/application.py",
        "to see its options, run",
    ): "directories/test_hints_followed.py::test_the_help_of_a_command_that_lacks_its_release",
    ("cli/commands/verify.py", "command('explain', code.name)"): (
        "directories/test_other_folders.py::test_ssts_in_other_folders_are_unknown"
    ),
    **dict.fromkeys(
        [
            ("rows/open.py", "to list the stores"),
            ("cli/commands/query.py", "command('query'"),
            ("diff/applications.py", "command('ls', a.path)"),
            ("wipe.py", "to list the stores"),
            ("statedir/find.py", "to list the stores"),
            ("change/clean.py", "to list the runs, run"),
            ("cli/ending.py", "'--help'"),
            ("cli/commands/explain.py", "command('explain')"),
            ("cli/commands/examples.py", "pass a new directory"),
            ("cli/app.py", "'--version', '--verbose'"),
        ],
        "directories/test_hints.py::test_a_command_that_is_printed_is_run",
    ),
    **dict.fromkeys(
        [
            ("cli/options/shared.py", "pass a topic, a partition and an offset, such as orders:0=1234"),
            ("cli/options/query.py", "pass --key-serde with the serde that the application uses for its keys"),
            ("cli/commands/ls.py", "omit --spec or -o json"),
            ("cli/commands/ls.py", "omit --spec or --sort"),
            ("cli/commands/ls.py", "also pass --spec"),
            ("cli/commands/maintain.py", "--config FILE or"),
            ("cli/commands/restore.py", "pass --missing FILE"),
            ("cli/commands/restore.py", "--share 1/2 and"),
            ("cli/commands/restore.py", "pass --host NAME"),
            ("cli/commands/restore.py", "--barrier PLACE"),
            ("cli/commands/restore.py", "omit --barrier"),
            ("cli/commands/restore.py", "omit --hosts"),
            ("cli/commands/restore.py", "--hosts N"),
            ("cli/commands/wipe.py", "also pass --yes"),
            ("cli/commands/restore.py", "also pass --dry-run"),
            ("wipe.py", "--task, --store, --global or --all"),
            ("export/store_export.py", "omit --value-serde"),
            ("export/files.py", "pass a new folder or --overwrite"),
            ("dump_reader/sources.py", "--dump-is-complete"),
            ("restore/planning/obstacles.py", "--dump-is-committed"),
            ("cli/options/logs.py", "instead of --dump"),
            ("cli/views/spec_draft.py", "omit --from-changelog"),
            ("restore/running/pipeline.py", "omit --follow"),
            ("restore/sorting/memory.py", "pass a larger --memory"),
            ("fleet/listing.py", "command('ls', 'APP'"),
            ("fleet/model.py", "check the files that you passed with --offsets and --spec"),
            ("cli/options/rehome.py", "--topology NEW.txt"),
            ("cli/options/rehome.py", "--for RELEASE"),
            ("rehome/model.py", "--map does not need it"),
            ("specification/homes.py", "with --topology and --from"),
            ("rehome/mapping.py", "pass --from with the description of the topology"),
            ("rehome/mapping.py", "also pass the description of the previous topology"),
            ("rehome/mapping.py", "pass both descriptions: --topology NEW"),
        ],
        "directories/test_hints_followed.py::test_followed",
    ),
    (
        "cli/options/seed.py",
        "pass --source-bootstrap-server",
    ): "interop/test_seed_topics.py::test_refusals_write_nothing_and_their_hints_lead_on",
    **dict.fromkeys(
        [
            ("cli/commands/seed.py", "omit these options"),
            ("cli/commands/seed.py", "pass --undo --delete-topics FILE"),
            ("cli/commands/seed.py", "pass --from DUMP and --app ID"),
        ],
        "interop/test_seed_topics.py::test_refusals_write_nothing_and_their_hints_lead_on",
    ),
    **dict.fromkeys(
        [
            ("cli/commands/seed.py", "pass --drop-keys or omit --receipt"),
            ("cli/commands/seed.py", "omit --source-app"),
            ("seed/directories.py", "to see all problems"),
            ("seed/directories.py", "only one copy of each task is current"),
            ("seed/completeness.py", "they are left over from an earlier topology"),
            ("seed/completeness.py", "pass the directories of all hosts"),
            ("seed/completeness.py", "pass the directory of the host that had the active task"),
        ],
        "interop/test_seed_directories.py::test_refusals_write_nothing_and_their_hints_lead_on",
    ),
    ("seed/completeness.py", "set partitions for store"): (
        "interop/test_seed_directories.py::test_unknown_inputs_need_partitions_in_the_specification"
    ),
    **dict.fromkeys(
        [
            ("seed/rules.py", "omit --accept"),
            ("cli/commands/seed.py", "omit it or pass directories"),
            ("seed/erasure.py", "specify the kinds in kstate.toml"),
            ("seed/erasure.py", "pass --receipt with another file"),
        ],
        "interop/test_seed_topics.py::test_keys_are_erased_with_a_receipt",
    ),
    **dict.fromkeys(
        [
            ("cli/commands/seed.py", "pass --key-of STORE=KIND"),
            ("cli/commands/seed.py", "also pass --partitions"),
            ("cli/commands/seed.py", "pass --spec FILE with the output of"),
            ("seed/partition_plan.py", "omit --partitions"),
            ("seed/partition_plan.py", "too, or add its sub-topology to --spec"),
            ("seed/partition_plan.py", "pass --partitions SUBTOPOLOGY=NUMBER"),
            ("seed/partition_plan.py", "pass one number for all stores"),
            ("seed/emitted_windows.py", "pass --no-offsets and set the new group's offsets"),
            ("seed/partitioning.py", "all its keys fit a different form"),
            ("seed/partitioning.py", "with the left table's rule"),
            ("seed/partition_plan.py", "all its keys fit {name}"),
            ("cli/commands/seed.py", "omit one of them"),
            ("seed/rules.py", "omit --start-offsets"),
            ("seed/moved_inputs.py", "pass --start-offsets"),
            ("seed/start_offsets.py", "correct the --start-offsets file"),
        ],
        "interop/test_seed_partitions.py::test_refusals_write_nothing_and_their_hints_lead_on",
    ),
    ("seed/partition_plan.py", "pass --partitioner murmur2"): (
        "interop/test_seed_partitions.py::test_a_single_partition_proves_no_rule"
    ),
    **dict.fromkeys(
        [
            ("cli/commands/seed.py", "pass --out DIR"),
            ("cli/seeded_directories.py", "pass --for RELEASE and --spec FILE"),
        ],
        "interop/test_seed_topics.py::test_refusals_write_nothing_and_their_hints_lead_on",
    ),
    ("seed/rules.py", "If the topic was deleted because"): (
        "interop/test_seed_topics.py::test_a_changelog_of_the_dump_that_the_broker_does_not_list"
    ),
    ("seed/table_contents.py", "if a transaction is open"): (
        "interop/test_seed_clusters.py::test_a_comparison_ends_at_an_open_transaction"
    ),
    ("seed/execution.py", "complete the undo"): "interop/test_seed_topics.py::test_an_interrupted_undo_continues",
    **dict.fromkeys(
        [("seed/cluster.py", "with the run's cluster"), ("seed/undo.py", "with the run's cluster")],
        "interop/test_seed_topics.py::test_undo_deletes_only_on_the_cluster_of_the_run",
    ),
    ("seed/rules.py", "with the specification of"): (
        "interop/test_seed_check.py::test_the_specification_of_another_application"
    ),
    ("seed/rules.py", "pass --source-stopped"): (
        "interop/test_seed.py::test_results_after_the_move_are_those_of_own_sums"
    ),
    ("seed/input_offsets.py", "pass --start-offsets"): (
        "interop/test_seed_clusters.py::test_the_hint_about_uncertain_offsets_leads_on"
    ),
    ("seed/conditions.py", "pass that run's options"): (
        "interop/test_seed_topics.py::test_a_complete_run_answers_only_for_itself"
    ),
    ("seed/erasure.py", "correct the kind in kstate.toml or write each whole key"): (
        "interop/test_seed_topics.py::test_windowed_keys_of_a_key_value_store_are_not_kept_silently"
    ),
    ("seed/rules.py", "pass another --app"): (
        "interop/test_seed_directories.py::test_lost_changelogs_get_another_number_of_partitions"
    ),
    ("seed/table_contents.py", "recreate the topic on the target"): (
        "interop/test_seed_clusters.py::test_rows_of_a_table_are_those_of_the_source"
    ),
    ("seed/conditions.py", "pass another --app"): "interop/test_seed_topics.py::test_a_dry_run_prints_every_condition",
    ("seed/rules.py", "pass the new application.id with --app"): (
        "interop/test_seed_topics.py::test_refusals_write_nothing_and_their_hints_lead_on"
    ),
    ("seed/rules.py", "stop the new application or pass another --app"): (
        "interop/test_seed_topics.py::test_refusals_write_nothing_and_their_hints_lead_on"
    ),
    ("seed/rules.py", "pass another --app or delete this group"): (
        "interop/test_seed_topics.py::test_refusals_write_nothing_and_their_hints_lead_on"
    ),
    ("seed/rules.py", "--no-offsets"): "interop/test_seed_topics.py::test_hints_about_the_source_lead_on",
    ("seed/planner.py", "pass --source-app"): "interop/test_seed_topics.py::test_hints_about_the_source_lead_on",
    ("seed/rules.py", "pass --journal with the file of the run"): (
        "interop/test_seed_topics.py::test_hints_of_journals_lead_on"
    ),
    ("seed/journal.py", "pass --journal with"): "interop/test_seed_topics.py::test_hints_of_journals_lead_on",
    ("seed/execution.py", "undo this one: {undo}"): (
        "interop/test_seed_topics.py::test_a_source_that_changes_during_the_run"
    ),
    (
        "seed/execution.py",
        "undo that run: {undo}",
    ): "interop/test_seed_topics.py::test_a_plan_that_changed_is_not_continued",
    ("seed/execution.py", "pass another --app"): (
        "interop/test_seed_topics.py::test_a_topic_that_another_program_created_again"
    ),
    ("broker/group_offsets.py", "correct --kafka-settings"): (
        "interop/test_seed_topics.py::test_settings_that_the_client_rejects"
    ),
    ("migrate/obstacles.py", "pass --wipe-unclean to remove these tasks"): (
        "directories/test_migrate.py::test_unclean_directories_are_refused_unless_the_user_vouches"
    ),
    ("migrate/obstacles.py", "without headers, pass --drop-headers"): (
        "directories/test_migrate.py::test_headers_are_refused_or_dropped"
    ),
    ("cli/commands/lag.py", "pass --bootstrap-server"): "directories/test_lag.py::test_without_a_log_there_is_no_lag",
    ("cli/commands/ls.py", "omit --topology and --spec"): (
        "directories/test_screen.py::test_sums_by_store_are_those_of_its_tasks"
    ),
    ("cli/options/rehome.py", "also pass --dry-run"): (
        "directories/test_rehome_completion.py::test_a_dry_run_may_read_no_rows_and_a_run_may_not"
    ),
    (
        "change/undo.py",
        "the cause may be a copy that lost the file times",
    ): "directories/test_edges.py::test_a_copy_without_times_can_be_undone",
    ("change/undo.py", "times_lost=True"): "directories/test_edges.py::test_a_copy_without_times_can_be_undone",
    ("query/streams.py", "--last-flush"): "directories/test_query_cmd.py::test_beside_a_running_application",
    (
        "cli/commands/query_answers.py",
        "--last-flush",
    ): "directories/test_query_cmd.py::test_beside_a_running_application",
    ("rehome/planner.py", "--wipe-unclean to skip only these stores"): (
        "directories/test_rehome.py::test_unclean_tasks_need_an_option"
    ),
    ("rehome/mapping.py", "pass the description of the previous topology"): (
        "directories/test_rehome.py::test_a_started_copy_gives_way_to_that_of_before"
    ),
    ("rehome/task_changes.py", "If a store was previously in memory"): (
        "directories/test_rehome.py::test_a_new_store_is_from_the_beginning_on"
    ),
    ("host.py", "_hint(number)"): "directories/test_limits.py::test_every_command",
    ("cli/ending.py", "short.hint"): "directories/test_limits.py::test_every_command",
    ("change/lockfile.py", "os.R_OK | os.W_OK | os.X_OK"): (
        "directories/test_hints_about_rights.py::test_a_state_dir_of_root"
    ),
    (
        "restore/planning/obstacles.py",
        "_table_lines",
    ): "directories/test_hints.py::test_printed_lines_for_kstate_toml_are_accepted",
    (
        "restore/planning/obstacles.py",
        "for example",
    ): "directories/test_hints.py::test_printed_lines_for_kstate_toml_are_accepted",
    ("statedir/find.py", "mkdir"): "directories/test_hints.py::test_a_state_dir_that_is_not_there_yet",
    ("restore/running/pipeline.py", "pass --spec kstate.toml"): (
        "directories/test_hints.py::test_a_directory_that_is_lost_and_no_specification"
    ),
    (
        "rows/open.py",
        "--last-flush",
    ): "directories/test_hints_followed.py::test_while_the_application_is_running",
    ("change/lockfile.py", "command('clean', plan.app)"): "directories/test_hints_followed.py::test_no_room",
    (
        "change/standby.py",
        "without --standby",
    ): "directories/test_hints_followed.py::test_hint_about_a_directory_that_is_no_standby",
    ("offsets/ages.py", "command('restore'"): "directories/test_hints_followed.py::test_ages_that_cannot_be_read",
    (
        "cli/commands/diff.py",
        "command('verify', request.a)",
    ): "directories/test_hints_followed.py::test_damage_that_diff_meets",
    (
        "cli/views/check.py",
        "command('verify-dump'",
    ): "directories/test_hints_followed.py::test_damage_that_a_dump_has_recorded",
    (
        "change/undo.py",
        "restore the missing files",
    ): "directories/test_hints_followed.py::test_hint_about_a_changed_backup",
    ("change/undo.py", "to abandon this run"): "directories/test_hints_followed.py::test_a_kept_directory_that_is_gone",
    (
        "change/undo.py",
        "or abandon this run",
    ): "directories/test_hints_followed.py::test_a_kept_directory_that_cannot_be_put_back",
    (
        "export/files.py",
        "wait until it ends, or pass a different folder with --out",
    ): "directories/test_hints_followed.py::test_two_exports_at_once",
    (
        "fleet/fleet_output.py",
        "pass an older listing",
    ): "directories/test_hints_followed.py::test_a_listing_that_was_not_whole",
    (
        "rows/open.py",
        "pass one of them: --topology",
    ): "directories/test_hints_followed.py::test_a_store_in_several_topologies",
    (
        "rows/open.py",
        "only one of these sub-topologies is current",
    ): "directories/test_hints_followed.py::test_a_store_in_several_subtopologies",
    (
        "cli/commands/maintain.py",
        "command(*bad.task.plain_words)",
    ): "directories/test_hints_followed.py::test_a_step_of_maintain_that_failed",
    (
        "rehome/mapping.py",
        "also map that sub-topology",
    ): "directories/test_hints_followed.py::test_a_number_that_is_taken",
    (
        "rehome/snapshot.py",
        "what to do about each",
    ): "directories/test_hints_followed.py::test_a_directory_that_cannot_be_rehomed_as_it_is",
    (
        "cli/views/stores.py",
        "to predict the next start",
    ): "directories/test_hints_followed.py::test_hint_about_a_position_without_current",
    (
        "specification/draft.py",
        "these lines to {file_name} and pass it with",
    ): "directories/test_hints_followed.py::test_a_specification_that_is_not_complete",
    (
        "migrate/obstacles.py",
        "command('wipe'",
    ): "directories/test_hints_followed.py::test_sessions_that_a_release_reads_wrong",
    (
        "migrate/obstacles.py",
        "start and stop the application once with the older release",
    ): "directories/test_hints_followed.py::test_sessions_that_a_release_reads_wrong",
    **dict.fromkeys(
        [
            ("rehome/mapping.py", "set the previous names"),
            ("rehome/mapping.py", "also pass the description of the topology that last ran here"),
        ],
        "directories/test_hints_followed.py::test_names_that_the_dsl_has_generated",
    ),
    (
        "rehome/mapping.py",
        "restore the missing part of the task from a changelog dump",
    ): "directories/test_rehome_completion.py::test_a_host_completes_the_task_that_the_other_host_releases",
    (
        "rehome/task_changes.py",
        "on the hosts that have these stores",
    ): "directories/test_rehome_completion.py::test_refuses_a_store_without_a_kind_on_every_host",
    (
        "rehome/live.py",
        "--wait 60",
    ): "interop/test_rehome_broker.py::test_no_instance_may_run_and_nothing_may_be_unread",
    (
        "rehome/live.py",
        "omit --bootstrap-server",
    ): "interop/test_rehome_broker.py::test_no_instance_may_run_and_nothing_may_be_unread",
    (
        "change/lockfile.py",
        "or pass --copy",
    ): "directories/test_hints_about_rights.py::test_a_file_of_another_user",
    (
        "cli/commands/dump.py",
        "--app ID, --spec FILE",
    ): "interop/test_dump_hints.py::test_hints_about_topics_and_bootstrap_servers",
    (
        "broker/client.py",
        "check the address",
    ): "interop/test_dump_hints.py::test_hints_about_topics_and_bootstrap_servers",
    (
        "broker/settings.py",
        "correct --kafka-settings",
    ): "interop/test_dump_hints.py::test_hints_about_topics_and_bootstrap_servers",
    (
        "dump_writer/writing.py",
        "copy this file from another copy",
    ): "interop/test_dump_hints.py::test_a_file_of_a_dump_that_is_lost",
    ("dump_reader/errors.py", "'--out', *out"): "interop/test_dump_hints.py::test_rot_and_a_dump_that_does_not_grow",
    (
        "restore/running/pipeline.py",
        "command('dump'",
    ): "interop/test_dump_hints.py::test_rot_and_a_dump_that_does_not_grow",
    ("parallel.py", "pass fewer --workers"): "restore/test_engines.py::test_a_process_that_is_killed",
    ("rehome/snapshot.py", "pass --for with the release that runs here"): (
        "directories/test_rehome_completion.py::test_refuses_a_release_that_cannot_open_the_directory"
    ),
    ("spark/context.py", "check --master and --conf"): (
        "directories/test_hints_followed.py::test_spark_that_does_not_start"
    ),
    ("change/undo.py", "Fix the cause, then"): "directories/test_hints_followed.py::test_an_undo_without_room",
    ("restore/staging_area.py", "remove it yourself"): (
        "directories/test_runs.py::test_unreachable_staging_area_keeps_its_run_until_the_run_is_named"
    ),
    ("restore/running/steps.py", "rebuild them completely with --rebuild"): (
        "restore/test_distant_bases.py::test_a_versioned_store_is_refused_on_a_cluster"
    ),
    ("change/commit.py", "command('undo', app)"): "faults/test_hints.py::test_a_switch_that_cannot_be_recorded",
    ("change/course.py", "command('clean', plan.app"): (
        "directories/test_hints_about_stores.py::test_a_purge_that_ends_halfway"
    ),
    (
        "dump_writer/round_state.py",
        "To read faster",
    ): "interop/test_dump_hints.py::test_a_log_that_changes_again_and_again",
    ("export/store_export.py", "command('query', 'raw-scan'"): (
        "directories/test_hints_about_stores.py::test_a_store_of_another_kind_in_another_task"
    ),
    ("restore/running/engines.py", "pass a larger --memory"): (
        "directories/test_hints_about_stores.py::test_rows_that_do_not_fit_and_are_in_no_order"
    ),
    ("restore/sorting/history.py", "--rebuild --store"): (
        "directories/test_hints_about_stores.py::test_versions_that_a_started_store_has_filed_wrongly"
    ),
    **dict.fromkeys(
        [("rows/open.py", "pass this file with --spec"), ("rows/open.py", "to create this file")],
        "directories/test_hints_about_stores.py::test_a_store_of_several_kinds",
    ),
    ("rows/open.py", "command('wipe', task.app"): (
        "directories/test_hints_about_stores.py::test_a_store_that_is_not_segmented_where_others_are"
    ),
    ("rows/segment.py", "command('wipe', self.app"): (
        "directories/test_hints_about_stores.py::test_a_database_of_another_store"
    ),
    ("rows/segment.py", "command('query', 'raw-scan'"): (
        "directories/test_hints_about_stores.py::test_segments_that_begin_elsewhere"
    ),
    ("spark/context.py", "pass --engine local, which does not need Spark"): (
        "directories/test_without_spark.py::test_java_without_pyspark"
    ),
    ("cli/commands/restore.py", "--standby, and then with --follow"): (
        "restore/test_standby.py::test_single_use_options_before_follow"
    ),
    ("change/earlier_runs.py", "--after-error"): ("faults/test_hints.py::test_a_restoration_that_ended_in_an_error"),
    ("change/earlier_runs.py", "command('status', app)"): (
        "faults/test_hints.py::test_a_restoration_that_ended_in_an_error"
    ),
    ("cli/commands/ls.py", "command('check', application.path"): (
        "directories/test_hints_about_stores.py::test_ls_of_a_store_without_current"
    ),
    ("migrate/snapshot.py", "command('check', app.path"): (
        "directories/test_hints_about_stores.py::test_a_directory_that_cannot_be_migrated"
    ),
    ("migrate/planner.py", "command('wipe', snapshot.app.path"): (
        "directories/test_hints_about_stores.py::test_offsets_that_streams_never_writes"
    ),
    ("restore/planning/planner.py", "command('export'"): (
        "directories/test_hints_about_stores.py::test_records_that_only_the_store_has"
    ),
    ("restore/planning/planner.py", "command('dump'"): "interop/test_dump_hints.py::test_a_topic_that_the_dump_lacks",
    ("rows/segment.py", "command('restore', self.app"): (
        "directories/test_hints_about_stores.py::test_damage_and_the_dump"
    ),
    ("rows/serdes.py", "command('query', '--help')"): (
        "directories/test_hints_about_stores.py::test_a_serde_that_does_not_exist"
    ),
    ("spark/engine.py", "pass --engine local, which does not need Java"): (
        "directories/test_without_spark.py::test_a_restoration_takes_neither_unless_something_configures_spark"
    ),
    **dict.fromkeys(
        [("cli/commands/explain.py", "command('explain', '-')"), ("cli/commands/explain.py", "command('check', 'APP'")],
        "directories/test_hints_about_stores.py::test_a_text_that_kstate_does_not_know",
    ),
    ("spark/warming.py", "with --for-all"): "restore/test_warm_up.py::test_a_user_without_a_home",
    (
        "specification/toml_file.py",
        "--spec",
    ): "directories/test_hints.py::test_a_directory_that_is_lost_and_no_specification",
}
"""Module and a part of the hint's source -> the test that prints it, does what it says and runs the command again."""
UNTRIED = 0
"""Places that name an option or a command, without an entry above. It stays 0: whoever adds a hint adds its test."""


@dataclass(frozen=True)
class Site:
    """One place in the source that gives an error its hint."""

    module: str
    line: int
    source: str

    @property
    def acts(self) -> bool:
        """Whether it names an option or a command of kstate."""
        return "command(" in self.source or bool(_OPTION.search(self.source))

    @property
    def test(self) -> str | None:
        """The test that carries it out."""
        for (module, part), name in (CARRIED_OUT | followed()).items():
            if module == self.module and part in self.source:
                return name
        return None


@functools.cache
def followed() -> dict[tuple[str, str], str]:
    """Return the hints that tests name themselves, each with its test."""
    by_hint: dict[tuple[str, str], str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if "@follows_hint(" not in path.read_text(encoding="utf-8"):
            continue
        for node in syntax.nodes(path):
            if isinstance(node, ast.FunctionDef):
                by_hint |= dict.fromkeys(_hints_followed(node), f"{path.relative_to(TESTS)}::{node.name}")
    return by_hint


def _hints_followed(test: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for call in test.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "follows_hint":
            module, part = (ast.literal_eval(argument) for argument in call.args)
            yield module, part


@functools.cache
def sites() -> tuple[Site, ...]:
    """All of them, in the order of the modules.

    A hint of the catalogue belongs to no error. ``test_printed_commands.py`` parses it and ``tests/interop/test_check.py``
    carries it out.
    """
    return tuple(_sites())


def _sites() -> Iterator[Site]:
    for path in sorted(ROOT.rglob("*.py")):
        tree = syntax.tree(path)
        for scope in [tree, *(node for node in syntax.nodes(tree) if isinstance(node, ast.FunctionDef))]:
            for node in _nodes_of(scope):
                if not isinstance(node, ast.Call):
                    continue
                hints = [keyword for keyword in node.keywords if keyword.arg in ("hint", "hint_details")]
                if hints and not ast.unparse(node.func).endswith("Code"):
                    assigned = _assignments(scope)
                    for hint in hints:
                        sources = [ast.unparse(hint.value), *_bound(hint.value, assigned)]
                        yield Site(str(path.relative_to(ROOT)), node.lineno, "; ".join(sources))


def _nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in a function or module, but not in the functions within it."""
    waiting = [*ast.iter_child_nodes(scope)]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


@functools.cache
def _assignments(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """What local names are bound to: a hint that is put together first is a hint too."""
    values: dict[str, list[ast.expr]] = {}
    for node in _nodes_of(scope):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values.setdefault(node.target.id, []).append(node.value)
        if isinstance(node, ast.Assign):
            for name in [
                entry.id for target in node.targets for entry in ast.walk(target) if isinstance(entry, ast.Name)
            ]:
                values.setdefault(name, []).append(node.value)
    return values


def _bound(value: ast.expr, assigned: dict[str, list[ast.expr]]) -> list[str]:
    """The sources of what the names in a value are bound to, and of the names in those."""
    sources: list[str] = []
    waiting, looked_up = [value], set[str]()
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Name) and node.id not in looked_up:
                looked_up.add(node.id)
                waiting += assigned.get(node.id, [])
                sources += map(ast.unparse, assigned.get(node.id, []))
    return sources


def _options() -> set[str]:
    commands = [_CLI.commands[name] for name in COMMANDS]
    commands += [inner for command in commands for inner in getattr(command, "commands", {}).values()]
    return {option for command in commands for parameter in command.params for option in parameter.opts}


def test_the_options_of_hints_exist() -> None:
    options = _options() | set(OF_OTHERS)
    unknown = [f"{site.module}:{site.line}: {match}" for site in sites() for match in _OPTION.findall(site.source)
               if match not in options]  # fmt: skip
    assert not unknown
    assert len(sites()) > 300


def test_tests_that_carry_hints_out_exist() -> None:
    everywhere = sites()
    for (module, part), name in (CARRIED_OUT | followed()).items():
        assert any(site.module == module and part in site.source for site in everywhere), (
            f"{module}: no hint has {part!r}"
        )
        file, _, function = name.partition("::")
        tree = syntax.tree(TESTS / file)
        (test,) = [node for node in syntax.nodes(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
        # In the situation, and again once the advice is followed.
        calls = {ast.unparse(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)}
        assert calls & {
            "warm",
            "_restore",
            "_kstate",
            "_sweep",
            "kstate",
            "kstate_here",
            "run_query",
            "world.rehome",
            "support.restore",
            "bare",
            "behind.on",
            "failing",
            "source.seed",
            "source.undo",
            "subprocess.run",
            "tables.check",
        }, f"{name} runs no command"


def test_no_more_hints_are_untried() -> None:
    untried = [site for site in sites() if site.acts and site.test is None]
    text = "\n".join(f"{site.module}:{site.line}: {site.source[:80]}" for site in untried)
    assert len(untried) <= UNTRIED, (
        f"add a test that follows each of these hints, and mark it with follows_hint:\n{text}"
    )


OF_ANOTHER_COMMAND = {("ls-snapshots", "--bootstrap-server"): "the snapshots are taken with this option"}
"""Options in a message of a command that another command has."""


def _texts_of_messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of hints and remarks, with the names of options as the user reads them."""
    for call in syntax.nodes(tree):
        if not isinstance(call, ast.Call):
            continue
        messages = [keyword.value for keyword in call.keywords if keyword.arg == "hint"]
        if ast.unparse(call.func).rpartition(".")[2] in ("remark", "say"):
            messages += call.args
        for message in messages:
            for node in ast.walk(message):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(map(_part_of_text, node.values))
                # A single option is a word of another command line.
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                    yield node.value


def _part_of_text(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    module, _, name = ast.unparse(part.value).partition(".")
    return str(getattr(option, name)) if module == "option" else "X"


def test_messages_name_options_as_the_help_of_their_command_lists_them() -> None:
    """An option of another name may work too, but the help of the command does not contain it."""
    wrong, count = [], 0
    for name in COMMANDS:
        path = ROOT / "cli" / "commands" / f"{name.replace('-', '_')}.py"
        if not path.exists():
            continue
        own = frozenset({"--help", *(text for parameter in _CLI.commands[name].params for text in parameter.opts)})
        for text in _texts_of_messages(syntax.tree(path)):
            count += 1
            faults_of_text = [
                fault for fault in faults(text, own) if (name, fault.partition(":")[0]) not in OF_ANOTHER_COMMAND
            ]
            wrong += [f"{name}: {fault}" for fault in faults_of_text]
    assert count > 100
    assert not wrong
