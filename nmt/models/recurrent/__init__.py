"""Recurrent models with attention: LSTM and GRU, GNMT, deep-att, mixtures of experts."""
