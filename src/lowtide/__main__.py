"""``python -m lowtide``: the same as the command ``lowtide``."""

from __future__ import annotations

from lowtide.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
