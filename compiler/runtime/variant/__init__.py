"""What is compiled, cached and measured: a kernel for one signature, set of constants, schedule and target."""
