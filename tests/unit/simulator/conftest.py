"""Lets the tests of this folder, and the properties, share the programs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
