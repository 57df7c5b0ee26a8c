"""What translates with a trained model."""
