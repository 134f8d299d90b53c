"""kstate in a Python of its own, with the names that it has in the zygote's children: python -m tests.faults.own_process ARGUMENTS."""

import sys

from kstate_cli.cli.app import main

from .zygote import count_names

if __name__ == "__main__":
    count_names(sys.argv[2])
    main()
