"""The pool of pre-warmed nodes and the providers that fill it."""
