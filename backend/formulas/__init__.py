"""Formulas of LaTeX as pictures. What the reader does not know wholly is not drawn.

`child` is the main module of the process that draws them: `mathml` reads LaTeX, `chemistry` the
equations in it, and `spoken` says them in words. May import: system, ziamath, ziafont and
latex2mathml (each in the child process only).
"""
