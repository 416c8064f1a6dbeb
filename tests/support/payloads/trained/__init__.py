"""Models of tables as their own classes train them: each estimator and objective of each library, by its tasks."""
