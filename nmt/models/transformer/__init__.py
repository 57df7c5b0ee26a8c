"""The Transformer and its variants. transformer.py is the paper's model; the other files are its parts."""
