"""Run ``kstate restore`` by spark-submit, with the arguments that follow. See examples/spark-submit.sh."""

import sys

from kstate_cli.cli.app import main

if __name__ == "__main__":
    sys.argv.insert(1, "restore")
    main()
