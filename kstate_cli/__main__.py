"""``python -m kstate_cli``: the same as the console script ``kstate``."""

from kstate_cli.cli.start import main

if __name__ == "__main__":
    main()
