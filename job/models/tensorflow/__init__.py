"""Models that TensorFlow and Keras compute."""
