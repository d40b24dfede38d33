"""Row bands: a stretch of local operators computed a few rows at a time, so that no operator needs all rows at once.

x ──conv──▶ wide ──conv──▶ y                      peak: wide and a neighbour, all rows

x ──rows──▶ ▫ ──conv──▶ ▫ ──conv──▶ rows of y ─┐
x ──rows──▶ ▫ ──conv──▶ ▫ ──conv──▶ rows of y ─┴─▶ y      peak: a band of wide; rows at the cuts (halo) twice

rows        which rows of its input an operator reads, in numbers; knows no file format
operators   which operators of a .tflite file can be cut, and how their rows depend on each other
stretch     some operators between inputs and one output, and the steps that compute them band by band
rewrite     a .tflite model with bands, in ordinary operators
search      which stretches, and how many bands each
"""
