"""Linear models in closed form: canonical correlations of images and captions. NumPy alone."""
