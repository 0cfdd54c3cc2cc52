"""Learned parts, trained with torch: predictors of routing, and the embedded model."""
