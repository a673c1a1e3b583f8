"""Published models of other toolkits, read into a model_dir."""
