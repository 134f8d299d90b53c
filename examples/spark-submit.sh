#!/usr/bin/env bash
# kstate restore through spark-submit: the same arguments as kstate restore, Spark's own in SPARK_ARGUMENTS.
#
#   examples/spark-submit.sh /var/lib/kafka-streams/my-app --from-changelog /backup/changelogs --for 4.3 --spec kstate.toml
#
# On a cluster:
#
#   export SPARK_ARGUMENTS="--master spark://master:7077 --executor-cores 2 --archives kstate-env.tar.gz#kstate
#       --conf spark.pyspark.driver.python=python3 --conf spark.pyspark.python=./kstate/bin/python"
#   examples/spark-submit.sh /var/lib/kafka-streams/my-app --from-changelog s3://backups/changelogs --for 4.3 \
#       --spec kstate.toml --staging s3://backups/staging
#
# - Client mode only: the driver holds the lock of the state directory and changes it, so it runs on the host that has it.
# - The executors need kstate and its packages: an archive as above (venv-pack, conda-pack), or the image that they run.
# - --staging is where executors leave what they have made, and the driver fetches it: they must all reach it. With
#   local[...] it is not needed.
# - Do not give --master to kstate here: spark-submit has chosen one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
submit=spark-submit
if [ -n "${SPARK_HOME:-}" ]; then
    submit=$SPARK_HOME/bin/spark-submit
fi

# local[*,4] and not local[*]: with local[*] Spark gives up at the first task that fails.
# shellcheck disable=SC2086 # several arguments
exec "$submit" --master 'local[*,4]' --deploy-mode client --driver-memory 512m --name "kstate restore" \
    --conf spark.ui.enabled=false ${SPARK_ARGUMENTS:-} "$here/restore_on_spark.py" "$@"
