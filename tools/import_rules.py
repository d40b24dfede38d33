"""The import-linter contract that keeps an outside package (torch, a solver) at the edges of lowtide.

import-linter's own contracts name whole modules that must exist; this one matches importers by shell pattern
(``lowtide.emit.torch_*``), so a new file is judged by its name alone. Configured in pyproject.toml.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from grimp import ImportGraph

__all__ = ["ConfinedContract"]


class ConfinedContract(Contract):
    """Only modules whose names match a pattern import the confined packages directly.

    Options:
        confined_modules: Top-level outside packages.
        allowed_importers: Shell patterns of the modules that may import them.
    """

    type_name = "confined"

    confined_modules: Any = fields.ListField(subfield=fields.StringField())
    allowed_importers: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001  (import-linter's signature)
        """Look at every direct import of a confined package.

        Args:
            graph: lowtide's imports, outside packages included.
            verbose: Unused; the rule is one look-up per package.

        Returns:
            The check, kept if no module outside the allowed patterns imports a confined package.
        """
        del verbose
        violations: list[tuple[str, str, int]] = []
        for confined in self.confined_modules:
            if confined not in graph.modules:
                continue
            for importer in sorted(graph.find_modules_that_directly_import(confined)):
                if any(fnmatchcase(importer, pattern) for pattern in self.allowed_importers):
                    continue
                details = graph.get_import_details(importer=importer, imported=confined)
                violations += [(importer, confined, detail["line_number"]) for detail in details]
        return ContractCheck(kept=not violations, metadata={"violations": violations})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Say which module imports what, where, and which modules may.

        Args:
            check: A check that was not kept.
        """
        for importer, confined, line_number in check.metadata["violations"]:
            output.print_error(f"{importer} imports {confined} (line {line_number})", bold=False)
        output.print_error(f"Allowed: {', '.join(self.allowed_importers)}", bold=False)
        output.new_line()
