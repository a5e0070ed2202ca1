"""Training of the learned drafters: corpus, features, EAGLE-3, Medusa, a small draft model."""
