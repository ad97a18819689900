"""`python -m webnn_vk` is the command `webnn-vk`."""

import sys

from .tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
