#!/usr/bin/env bash
# Run kstate restore through spark-submit. Pass the arguments of kstate restore, and Spark's own arguments in
# SPARK_ARGUMENTS.
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
# - Only client mode is supported: the driver locks and changes the state directory, so it runs on the host of this
# directory.
# - The executors need kstate and its packages, either as an archive as above (venv-pack, conda-pack), or in their
# image.
# - --staging is the place to which executors write their files, and from which the driver fetches them. All of them
# must be able to access it. With local[...], it is not needed.
# - Do not pass --master to kstate, because spark-submit already selects the master.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
submit=spark-submit
if [ -n "${SPARK_HOME:-}" ]; then
    submit=$SPARK_HOME/bin/spark-submit
fi

# local[*,4] instead of local[*], because with local[*] Spark ends at the first task that fails.
# shellcheck disable=SC2086 # several arguments
exec "$submit" --master 'local[*,4]' --deploy-mode client --driver-memory 512m --name "kstate restore" \
    --conf spark.ui.enabled=false ${SPARK_ARGUMENTS:-} "$here/restore_on_spark.py" "$@"
