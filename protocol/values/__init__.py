"""Values of JSON, Arrow and pandas as inputs: one table of conversions (`table`) for all doors."""
