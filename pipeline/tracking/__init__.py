"""What MLflow gets, and registered models."""
