"""The built-in corpus: a grammar that writes English sentences and their German."""
