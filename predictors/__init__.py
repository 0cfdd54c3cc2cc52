"""Train the learned parts: predictors of the routing, and the embedded model.

Only `expert_mlp` and `embedded` need torch, which packages do not have.
"""
