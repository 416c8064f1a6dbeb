"""Models of tables: XGBoost, LightGBM, CatBoost, and scikit-learn through skops."""
