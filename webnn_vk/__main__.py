"""`python -m webnn_vk` is the command `webnn-vk`."""

import sys

from .tools.cli import main

sys.exit(main())
