//! Golden vectors: the JSON of `proto/vectors`, as every language reads it.
