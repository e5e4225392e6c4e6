"""What pretrained encoders are loaded from: presets, files of weights, word vectors, tokenizers."""
