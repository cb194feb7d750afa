"""What networks are made of: dense, convolutional and recurrent layers, activations. Imports nothing of the models."""
