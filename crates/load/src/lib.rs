//! Load, stub servers with an exact capacity, and plots. Knows no Polder type.
