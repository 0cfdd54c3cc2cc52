"""Train the learned parts with torch: routing predictors and the embedded model."""
