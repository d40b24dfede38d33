"""What lowtide is measured against. Not part of the package; run from a clone."""
