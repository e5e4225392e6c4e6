"""A run: its folder, its trained model, the features of its frozen encoders, and signals."""
