"""Sources of pretrained encoders: presets, files of weights, word vectors, tokenizers."""
