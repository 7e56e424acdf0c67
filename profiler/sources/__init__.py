"""Where times come from: CUPTI activity records of NVIDIA GPUs. (CPU launches are timed by the launcher.)"""
