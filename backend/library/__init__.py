"""The models on this machine: their facts, whether they fit memory, and their speed.

`scan` searches folders, `facts` reads a model's header, `estimate` computes the verdict from the
facts and this machine's speeds, and `history` keeps folders, last use and measured speeds. The
package imports neither Qt nor the engine.
"""
