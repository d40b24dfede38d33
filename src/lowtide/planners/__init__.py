"""Graph and budget in, proposed plan out; one file each."""
