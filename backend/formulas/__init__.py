"""Formulas of LaTeX as pictures. What the reader does not know wholly is not drawn.

May import: system, ziamath and latex2mathml (each in the child process only).
"""
